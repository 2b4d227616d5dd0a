"""A compression's tables as text, with the paper's numbers beside the run's."""

from collections.abc import Mapping, Sequence

import pandas as pd

from headroom.analysis.compression.findings import NOTABLE
from headroom.analysis.compression.trial import Trial, label
from headroom.analysis.sheet import Columns, Sheet, interval, sheet

_HOW = (
    "Accuracy: share of right answers, mean ± standard deviation over seeds. Change: against the "
    "baseline of the same seeds, in points, with paired 95% bootstrap intervals over seeds and "
    "examples."
)
_SPEED = (
    "Time: of the whole test, in percent of the baseline's. At most: what the removed heads can "
    "save by arithmetic: the parameters that they held; the speed-up (t0/t1 − 1) of a pass whose "
    "time is that of its FLOPs."
)
_PUBLISHED = (
    "Paper: arXiv 2511.17577, on the same data with solvers and divisions of its own; its ways to "
    "count parameters and to time are not stated."
)
_OF: Columns = {"compression": "{compression}"}
_RATIO: Columns = {"ratio (%)": "{ratio:%}"}
_CUT: Columns = {"heads cut": "{heads_removed:int} of {heads:int}"}
_RIGHT: Columns = {"accuracy (%)": "{accuracy_text}", "change": interval("change")}
_OUTCOME: Columns = {
    "accuracy (%)": "{accuracy_text}",
    "accuracy, paper": "{published_accuracy:%}",
    "change": interval("change"),
    "change, paper": "{published_change:%}",
}
_TIME: Columns = {"time (%)": "{test_time:%}", "speed-up at most (%)": "{speedup_at_most:%}"}
_FASTER: Columns = {"speed-up, paper": "{published_speedup:%}"}
_HELD: Columns = {
    "params cut (%)": "{parameters_removed:%}",
    "params at most": "{parameters_at_most:%}",
    "params, paper": "{published_parameters:%}",
}
_LAYOUTS: Mapping[str, tuple[str, str, int, Columns]] = {
    "table1": (
        f"Table 1: ratios. {_HOW} Params, FLOPs: of the encoder, cut. {_SPEED} {_PUBLISHED}",
        "No arm of this run is the baseline, or differs from the method in its ratio only.",
        1,
        {
            **(_OF | _RATIO | _CUT | _OUTCOME | _HELD),
            "FLOPs cut (%)": "{flops_removed:%}",
            "FLOPs, paper": "{published_flops:%}",
            **(_TIME | _FASTER),
        },
    ),
    "table2": (
        "Table 2: solvers of two sizes. Parameters: of the whole solver, in thousands; cut: of the "
        f"encoder. {_HOW} {_SPEED} {_PUBLISHED}",
        "No compression of this run has the baseline or the method.",
        2,
        {
            **_OF,
            "solver": "{subject}",
            "parameters": "{whole:k}",
            **(_RATIO | _OUTCOME | _HELD | _TIME | _FASTER),
        },
    ),
    "table3a": (
        "Table 3(a): alpha, the weight of the norm in the score, with and without distillation. "
        f"{_HOW} Against middle: the method's own alpha, in points. Paper, without "
        "distillation: from Table 4 of the paper.",
        "No two arms of this run differ in alpha only.",
        2,
        {
            **_OF,
            "distillation": "{distilled_text}",
            "alpha": "{alpha:g}",
            **_OUTCOME,
            "against middle": interval("gap"),
        },
    ),
    "table3b": (
        f"Table 3(b): the method by stratum of the examples. {_HOW} {_PUBLISHED}",
        "No compression of this run has both the baseline and the method.",
        2,
        {
            **_OF,
            "stratum": "{stratum}",
            "n": "{n:int}",
            "baseline (%)": "{baseline_text}",
            "baseline, paper": "{published_baseline:%}",
            **_OUTCOME,
        },
    ),
    "table4": (
        f"Table 4: arms of the ablation. {_HOW} Against full: minus the method's accuracy, in "
        "points. Params: cut of the encoder. Memory: cut of the bytes of the weights. "
        f"{_SPEED} {_PUBLISHED}",
        "No arm of the ablation is in this run.",
        2,
        {
            **_OF,
            "arm": "{arm_text}",
            "accuracy (%)": "{accuracy_text}",
            "accuracy, paper": "{published_accuracy:%}",
            "change": interval("change"),
            "against full": interval("gap"),
            **(_HELD | _TIME | _FASTER),
            "memory (%)": "{weight_removed:%}",
            "memory, paper": "{published_memory:%}",
        },
    ),
    "knee": (
        f"Where accuracy breaks. {_HOW} Knee: the largest ratio whose interval still reaches "
        f"−{100 * NOTABLE:g} points, with the 95% range of the largest ratio that loses no more, "
        f"over resamples. Safe: the largest whose whole interval is above. 0: the baseline.",
        "No compression of this run has the baseline and two ratios.",
        1,
        {
            **(_OF | _RATIO | _CUT | _RIGHT),
            "knee (%)": "{knee:%}",
            "95% range": "{knee_low:%} to {knee_high:%}",
            "safe (%)": "{safe:%}",
        },
    ),
    "quantisation": (
        f"Pruning, weights of eight bits, and both. {_HOW} Weights in thousands of bytes, and cut "
        "against the baseline's. Time: of the whole test, in seconds and in percent of the "
        "baseline's. Quantised solvers run on the CPU.",
        "No arm of this run is tested with weights of eight bits.",
        3,
        {
            **_OF,
            "arm": "{arm_text}",
            "weights": "{weights_text}",
            **_RIGHT,
            "weights (kB)": "{weight_bytes:k}",
            "cut (%)": "{weight_removed:%}",
            "whole test (s)": "{end_to_end:.2f}",
            "time (%)": "{test_time:%}",
        },
    ),
    "cost": (
        "What compression costs. Means of one seed: rounds, epochs and tokens trained on in all of "
        "them, wall time; hours of the device for all seeds. The training before is not counted. "
        "Warnings: how many things a user should look at; their words are in the CSV file.",
        "Nothing was compressed in this run.",
        2,
        {
            **_OF,
            "arm": "{arm_text}",
            "seeds": "{seeds:int}",
            "rounds": "{rounds:g}",
            "epochs": "{epochs:.3g}",
            "tokens": "{tokens:,.0f}",
            "wall time (s)": "{seconds:,.0f}",
            "device hours": "{device_hours:.3f}",
            "warnings": "{warnings:int}",
        },
    ),
}
"""For each table its caption, the sentence shown if it has no rows, the number of text columns, and
its columns; `sheet_of` adds those that end in ``_text``."""


def sheet_of(exhibit: str, table: pd.DataFrame, trials: Sequence[Trial]) -> Sheet:
    """Return a table as text; one without rows is a sentence.

    Args:
        exhibit: its name in `headroom.analysis.compression.tables.COLUMNS`.
        table: its numbers.
        trials: the compressions of the run.
    """
    caption, without, texts, columns = _LAYOUTS[exhibit]
    if table.empty:
        return Sheet([], [], without)
    shown = set(table["compression"])
    numbers = {
        f"{name}_text": [
            f"{100 * mean:.1f}" + (f" ± {100 * sd:.1f}" if sd == sd else "")
            for mean, sd in zip(table[name], table[spread], strict=True)
        ]
        for name, spread in (("accuracy", "sd"), ("baseline", "baseline_sd"))
        if name in table
    }
    words = {"arm_text": table["arm"].map(label)}
    for name, kinds in (("distilled", ("without", "with")), ("quantised", ("float", "int8"))):
        if name in table:
            as_text = "weights_text" if name == "quantised" else "distilled_text"
            words[as_text] = table[name].map(dict(enumerate(kinds)))
    captions = [caption, *(_introduced(trial) for trial in trials if trial.name in shown)]
    return sheet(table.assign(**numbers, **words), columns, " ".join(captions), texts)


def _introduced(trial: Trial) -> str:
    """Return a sentence on what was compressed, the number of test examples and of seeds."""
    right = trial.right(next(iter(trial.settings)))
    seeds = f"{len(right)} seeds" if len(right) > 1 else "one seed, so that intervals are about it"
    return f"{trial.name}: {trial.title}, {right.shape[1]} test examples, {seeds}."
