"""The tables as text: ours and the paper's numbers in columns side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from headroom.analysis.compression.findings import NOTABLE
from headroom.analysis.compression.trial import Trial, label
from headroom.analysis.sheet import (
    NONE,
    Cell,
    Columns,
    Sheet,
    in_percent,
    interval,
    joined,
    name,
    number,
)


@dataclass(frozen=True)
class _Layout:
    """How a table is shown: what it is, what is said where it has no rows, its columns."""

    caption: str
    without: str
    texts: int
    """How many columns, from the left, hold text."""
    columns: Columns


def _arm(row: Any) -> str:
    return label(row.arm)


def _mean(column: str, sd: str) -> Cell:
    """Return the cell of an accuracy in percent, with its spread over seeds if there are some."""
    alone, spread = in_percent(column), joined(in_percent(column), " ± ", in_percent(sd))
    return lambda row: alone(row) if spread(row) == NONE else spread(row)


def _both(first: str, second: str) -> Cell:
    """Return the cell of two numbers in percent; a dash where both lack."""
    cells = in_percent(first), in_percent(second)

    def cell(row: Any) -> str:
        found = [each(row) for each in cells]
        return NONE if set(found) == {NONE} else ", ".join(found)

    return cell


_HOW = (
    "Accuracy: share of right answers, mean ± standard deviation over seeds. Change: against the "
    "baseline of the same seeds, in points, with paired 95% bootstrap intervals over seeds and "
    "examples."
)
_SPEED = (
    "Small, large: how much faster a pass over a batch is, timed in turns with the baseline's, as "
    "t0/t1 − 1 and as 1 − t1/t0. At most: what the removed heads can save by arithmetic: the "
    "parameters that they held; the speed-up (t0/t1 − 1) of a pass whose time is that of its FLOPs."
)
_PUBLISHED = (
    "Paper: arXiv 2511.17577, on the same data with solvers and divisions of its own; its "
    "ways to count parameters and to time are not stated."
)
_COMPRESSION = ("compression", name("compression"))
_RATIO = ("ratio (%)", in_percent("ratio"))
_CUT = ("heads cut", joined(number("heads_removed"), " of ", number("heads")))
_ACCURACY = ("accuracy (%)", _mean("accuracy", "sd"))
_CHANGE = ("change", interval("change"))
_PAPER = {
    what: ("paper", in_percent(f"published_{what}"))
    for what in ("accuracy", "change", "baseline", "parameters", "flops", "speedup", "memory")
}
_OUTCOME = (_ACCURACY, _PAPER["accuracy"], _CHANGE, _PAPER["change"])
_SPEEDS = (
    ("small (%)", _both("faster_small", "saved_small")),
    ("large (%)", _both("faster_large", "saved_large")),
)
_CONDITION = (
    _COMPRESSION,
    _RATIO,
    _CUT,
    *_OUTCOME,
    ("params (%)", in_percent("parameters_removed")),
    ("at most", in_percent("parameters_at_most")),
    _PAPER["parameters"],
    ("FLOPs (%)", in_percent("flops_removed")),
    _PAPER["flops"],
    *_SPEEDS,
    ("at most", in_percent("speedup_at_most")),
    _PAPER["speedup"],
)
_LAYOUTS: Mapping[str, _Layout] = {
    "table1": _Layout(
        f"Table 1: ratios. {_HOW} Params, FLOPs: of the encoder, cut. {_SPEED} {_PUBLISHED}",
        "No arm of this run is the baseline, or differs from the method in its ratio only.",
        1,
        _CONDITION,
    ),
    "table2": _Layout(
        "Table 2: solvers of two sizes. Parameters: of the whole solver, in thousands; cut: of the "
        f"encoder. {_HOW} {_SPEED} {_PUBLISHED}",
        "No compression of this run has the baseline or the method.",
        2,
        (
            _COMPRESSION,
            ("solver", name("subject")),
            ("parameters", number("whole", ",.0f", 1e3)),
            _RATIO,
            *_OUTCOME,
            ("cut (%)", in_percent("parameters_removed")),
            _PAPER["parameters"],
            *_SPEEDS,
            _PAPER["speedup"],
        ),
    ),
    "table3a": _Layout(
        "Table 3(a): alpha, the weight of the norm in the score, with and without distillation. "
        f"{_HOW} Against middle: the method's own alpha, in points. Paper, without "
        "distillation: from Table 4 of the paper.",
        "No two arms of this run differ in alpha only.",
        2,
        (
            _COMPRESSION,
            ("distillation", lambda row: "with" if row.distilled else "without"),
            ("alpha", number("alpha", "g")),
            *_OUTCOME,
            ("against middle", interval("gap")),
        ),
    ),
    "table3b": _Layout(
        f"Table 3(b): the method by stratum of the examples. {_HOW} {_PUBLISHED}",
        "No compression of this run has both the baseline and the method.",
        2,
        (
            _COMPRESSION,
            ("stratum", name("stratum")),
            ("n", number("n", "d")),
            ("baseline (%)", _mean("baseline", "baseline_sd")),
            _PAPER["baseline"],
            *_OUTCOME,
        ),
    ),
    "table4": _Layout(
        f"Table 4: arms of the ablation. {_HOW} Against full: minus the method's accuracy, in "
        "points. Params: cut of the encoder, of the whole solver. Memory: cut of the bytes of the "
        f"weights, of the peak of a fresh process. {_SPEED} {_PUBLISHED}",
        "No arm of the ablation is in this run.",
        2,
        (
            _COMPRESSION,
            ("arm", _arm),
            _ACCURACY,
            _PAPER["accuracy"],
            _CHANGE,
            ("against full", interval("gap")),
            ("params (%)", _both("parameters_removed", "whole_removed")),
            _PAPER["parameters"],
            *_SPEEDS,
            _PAPER["speedup"],
            ("memory (%)", _both("weight_removed", "peak_removed")),
            _PAPER["memory"],
        ),
    ),
    "knee": _Layout(
        f"Where accuracy breaks. {_HOW} Knee: the largest ratio whose interval still reaches "
        f"−{100 * NOTABLE:g} points, with the 95% range of the largest ratio that loses no more, "
        f"over resamples. Safe: the largest whose whole interval is above. 0: the baseline.",
        "No compression of this run has the baseline and two ratios.",
        1,
        (
            _COMPRESSION,
            _RATIO,
            _CUT,
            _ACCURACY,
            _CHANGE,
            ("knee (%)", in_percent("knee")),
            (
                "95% range",
                joined(number("knee_low", ".0f", 0.01), " to ", number("knee_high", ".0f", 0.01)),
            ),
            ("safe (%)", in_percent("safe")),
        ),
    ),
    "quantisation": _Layout(
        f"Pruning, weights of eight bits, and both. {_HOW} Weights in thousands of bytes, and cut "
        "against the baseline's. Whole test: seconds, and t0/t1 − 1 in percent. Quantised solvers "
        f"run on the CPU. {_SPEED}",
        "No arm of this run is tested with weights of eight bits.",
        3,
        (
            _COMPRESSION,
            ("arm", _arm),
            ("weights", lambda row: "int8" if row.quantised else "float"),
            _ACCURACY,
            _CHANGE,
            ("weights (kB)", number("weight_bytes", ",.0f", 1e3)),
            ("cut (%)", in_percent("weight_removed")),
            *_SPEEDS,
            ("whole test (s)", number("end_to_end", ".2f")),
            ("faster (%)", in_percent("end_to_end_faster")),
        ),
    ),
    "cost": _Layout(
        "What compression costs. Means of one seed: rounds, epochs and tokens trained on in all of "
        "them, wall time; hours of the device for all seeds. The training before is not counted. "
        "Warnings: how many things a user should look at; listed below.",
        "Nothing was compressed in this run.",
        2,
        (
            _COMPRESSION,
            ("arm", _arm),
            ("seeds", number("seeds", "d")),
            ("rounds", number("rounds", "g")),
            ("epochs", number("epochs", ".3g")),
            ("tokens", number("tokens", ",.0f")),
            ("wall time (s)", number("seconds", ",.0f")),
            ("device hours", number("device_hours", ".3f")),
            ("warnings", number("warnings")),
        ),
    ),
}


def sheet_of(exhibit: str, table: pd.DataFrame, trials: Sequence[Trial]) -> Sheet:
    """Return a table as text; one without rows is a sentence.

    Args:
        exhibit: its name, see `headroom.analysis.compression.exhibits.COLUMNS`.
        table: its numbers.
        trials: the compressions of the run.
    """
    layout = _LAYOUTS[exhibit]
    shown = [trial for trial in trials if trial.name in set(table["compression"])]
    caption = " ".join([layout.caption, *map(introduced, shown)]) if len(table) else layout.without
    return Sheet.of(table, layout.columns, caption, texts=layout.texts)


def warned(cost: pd.DataFrame) -> Sheet:
    """Return what a user should look at, from the table of costs; or a sentence."""
    columns = (("compression", name("compression")), ("arm", _arm), ("warning", name("warned")))
    found = cost[cost["warnings"] > 0]
    none = "No warning: no arm lost notably, is no faster, or was trained unstably."
    caption = "What to look at." if len(found) else none
    return Sheet.of(found, columns, caption, texts=3, widths=(0.16, 0.2, 0.58))


def introduced(trial: Trial) -> str:
    """Say what a compression is of, how much it was tested on, and how it was timed."""
    right = trial.right(next(iter(trial.settings)))
    seeds = f"{len(right)} seeds" if len(right) > 1 else "one seed, so that intervals are about it"
    text = f"{trial.name}: {trial.title}, {right.shape[1]} test examples, {seeds}"
    if trial.measurements.empty:
        return f"{text}; not timed."
    batches = sorted(set(trial.measurements["batch"]))
    tokens = trial.measurements["tokens"].iloc[0]
    return f"{text}; batches of {batches[0]} and {batches[-1]} texts, {tokens} tokens each."
