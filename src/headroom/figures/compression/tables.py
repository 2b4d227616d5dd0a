"""The tables as text: ours and the paper's numbers in columns side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from headroom.figures.compression.cells import (
    Cell,
    amount,
    arm,
    both_ways,
    change,
    heads_cut,
    label,
    mean,
    percent,
    text,
)
from headroom.figures.compression.evidence import Trial
from headroom.figures.compression.notices import NOTABLE, notices
from headroom.figures.latex_table import NEEDS
from headroom.figures.listing import listing, rows_of
from headroom.figures.text import latex, markdown


@dataclass(frozen=True)
class _Layout:
    """How a table is shown: what it is, what is said where it has no rows, its columns."""

    caption: str
    without: str
    texts: int
    """How many columns, from the left, hold text."""
    columns: Sequence[tuple[str, Cell]]


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
_COMPRESSION = ("compression", text("compression"))
_ACCURACY = ("accuracy (%)", mean("accuracy", "sd"))
_CHANGE = ("change", change("change"))
_SMALL = ("small (%)", both_ways("faster_small", "saved_small"))
_LARGE = ("large (%)", both_ways("faster_large", "saved_large"))
_CONDITION = (
    _COMPRESSION,
    ("ratio (%)", percent("ratio")),
    ("heads cut", heads_cut),
    _ACCURACY,
    ("paper", percent("published_accuracy")),
    _CHANGE,
    ("paper", percent("published_change")),
    ("params (%)", percent("parameters_removed")),
    ("at most", percent("parameters_at_most")),
    ("paper", percent("published_parameters")),
    ("FLOPs (%)", percent("flops_removed")),
    ("paper", percent("published_flops")),
    _SMALL,
    _LARGE,
    ("at most", percent("speedup_at_most")),
    ("paper", percent("published_speedup")),
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
            ("solver", text("subject")),
            ("parameters", amount("whole", ",.0f", 1e3)),
            ("ratio (%)", percent("ratio")),
            _ACCURACY,
            ("paper", percent("published_accuracy")),
            _CHANGE,
            ("paper", percent("published_change")),
            ("cut (%)", percent("parameters_removed")),
            ("paper", percent("published_parameters")),
            _SMALL,
            _LARGE,
            ("paper", percent("published_speedup")),
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
            ("alpha", amount("alpha", "g")),
            _ACCURACY,
            ("paper", percent("published_accuracy")),
            _CHANGE,
            ("paper", percent("published_change")),
            ("against middle", change("gap")),
        ),
    ),
    "table3b": _Layout(
        f"Table 3(b): the method by stratum of the examples. {_HOW} {_PUBLISHED}",
        "No compression of this run has both the baseline and the method.",
        2,
        (
            _COMPRESSION,
            ("stratum", text("stratum")),
            ("n", amount("n", "d")),
            ("baseline (%)", mean("baseline", "baseline_sd")),
            ("paper", percent("published_baseline")),
            _ACCURACY,
            ("paper", percent("published_accuracy")),
            _CHANGE,
            ("paper", percent("published_change")),
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
            ("arm", arm),
            _ACCURACY,
            ("paper", percent("published_accuracy")),
            _CHANGE,
            ("against full", change("gap")),
            ("params (%)", both_ways("parameters_removed", "whole_removed")),
            ("paper", percent("published_parameters")),
            _SMALL,
            _LARGE,
            ("paper", percent("published_speedup")),
            ("memory (%)", both_ways("weight_removed", "peak_removed")),
            ("paper", percent("published_memory")),
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
            ("ratio (%)", percent("ratio")),
            ("heads cut", heads_cut),
            _ACCURACY,
            _CHANGE,
            ("knee (%)", percent("knee")),
            ("95% range", lambda row: f"{100 * row.knee_low:.0f} to {100 * row.knee_high:.0f}"),
            ("safe (%)", percent("safe")),
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
            ("arm", arm),
            ("weights", lambda row: "int8" if row.quantised else "float"),
            _ACCURACY,
            _CHANGE,
            ("weights (kB)", amount("weight_bytes", ",.0f", 1e3)),
            ("cut (%)", percent("weight_removed")),
            _SMALL,
            _LARGE,
            ("whole test (s)", amount("end_to_end", ".2f")),
            ("faster (%)", percent("end_to_end_faster")),
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
            ("arm", arm),
            ("seeds", amount("seeds", "d")),
            ("rounds", amount("rounds", "g")),
            ("epochs", amount("epochs", ".3g")),
            ("tokens", amount("tokens", ",.0f")),
            ("wall time (s)", amount("seconds", ",.0f")),
            ("device hours", amount("device_hours", ".3f")),
            ("warnings", amount("warnings", "d")),
        ),
    ),
}


def texts_of(exhibit: str, table: pd.DataFrame, trials: Sequence[Trial]) -> dict[str, str]:
    """Return a table as text, by suffix: md, tex, csv.

    Args:
        exhibit: its name, see `headroom.figures.compression.exhibits.COLUMNS`.
        table: its numbers.
        trials: the compressions of the run.
    """
    layout = _LAYOUTS[exhibit]
    csv = {"csv": table.to_csv(index=False, lineterminator="\n", float_format="%.6g")}
    if table.empty:
        sentence = layout.without
        return {"md": f"{markdown(sentence)}\n", "tex": f"{NEEDS}\n{latex(sentence)}\n", **csv}
    header = [title for title, _ in layout.columns]
    rows = [[cell(row) for _, cell in layout.columns] for row in rows_of(table)]
    shown = [trial for trial in trials if trial.name in set(table["compression"])]
    caption = " ".join([layout.caption, *map(introduced, shown)])
    return {**listing(header, rows, caption, layout.texts, "scriptsize"), **csv}


def warned(trials: Sequence[Trial]) -> str:
    """Return what a user should look at as a Markdown table, or a sentence."""
    rows = [
        [trial.name, label(notice.arm), notice.text]
        for trial in trials
        for notice in notices(trial)
    ]
    if not rows:
        return "No warning: no arm lost notably, is no faster, or was trained unstably.\n"
    return listing(["compression", "arm", "warning"], rows, "What to look at.", 3)["md"]


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
