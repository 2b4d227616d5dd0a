"""The tables as numbers: Tables 1-4 of the paper, the knee, eight bits, and what it all cost.

Accuracies and cuts are parts of 1. What was not measured, and what the paper has no number for, is
empty.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from headroom.analysis.compression.findings import knee, notices
from headroom.analysis.compression.numbers import (
    ACCURACY,
    SAVINGS,
    accuracy,
    difference,
    savings,
)
from headroom.analysis.compression.published import Published
from headroom.analysis.compression.trial import BASELINE, METHOD, Trial, mixtures_of, ratios_of
from headroom.config.study import ARMS

_ARM = ["compression", "subject", "data", "arm"]
_SAME = ["published_accuracy", "published_change"]
_CONDITION = ["published_model", *_SAME, "published_parameters", "published_parameters_at_most"]
_CONDITION += ["published_speedup", "published_flops"]

_BASE = ["baseline", "baseline_sd"]
_KNEE = ["knee", "knee_low", "knee_high", "safe"]
_GAP = ["gap", "gap_low", "gap_high"]
_WARNED = ["device_hours", "warnings", "warned"]
_OF_ARM = ["published_accuracy", "published_parameters", "published_speedup", "published_memory"]

COLUMNS: dict[str, list[str]] = {
    "table1": [*_ARM, "ratio", *ACCURACY, *SAVINGS, *_CONDITION],
    "table2": [*_ARM, "ratio", *ACCURACY, *SAVINGS, *_CONDITION],
    "table3a": [*_ARM, "alpha", "distilled", *ACCURACY, "against", *_GAP, *_SAME],
    "table3b": [*_ARM, "stratum", *_BASE, *ACCURACY, "published_baseline", *_SAME],
    "table4": [*_ARM, "ratio", *ACCURACY, *_GAP, *SAVINGS, *_OF_ARM],
    "knee": [*_ARM, "ratio", *ACCURACY, "heads_removed", "heads", *_KNEE],
    "quantisation": [*_ARM, "quantised", *ACCURACY, *SAVINGS],
    "cost": [*_ARM, "seeds", "rounds", "epochs", "tokens", "seconds", *_WARNED],
}
"""Columns of each table. ``gap``: accuracy minus that of the method (Table 4), or of the mixture
``against`` (Table 3a). ``knee``: the largest ratio not shown to lose more than `NOTABLE`, with a
95% range; ``safe``: the largest shown to lose less."""

Rows = Iterator[dict[str, Any]]


def exhibits(trials: Sequence[Trial], beside: Published) -> dict[str, pd.DataFrame]:
    """Return every table by name, with `COLUMNS`; one without rows where a run has none."""
    makers: Mapping[str, Callable[[Trial], Rows]] = {
        "table1": lambda trial: _ratios(trial, beside),
        "table3a": lambda trial: _mixtures(trial, beside),
        "table3b": lambda trial: _strata(trial, beside),
        "table4": lambda trial: _ablation(trial, beside),
        "knee": _knee,
        "quantisation": _quantised,
        "cost": _cost,
    }
    rows = {name: [row for trial in trials for row in make(trial)] for name, make in makers.items()}
    rows["table2"] = [row for trial in trials for row in _sizes(trial, trials, beside)]
    return {name: pd.DataFrame(rows[name], columns=columns) for name, columns in COLUMNS.items()}


def _row(trial: Trial, name: str) -> dict[str, Any]:
    return {"compression": trial.name, "subject": trial.subject, "data": trial.data, "arm": name}


def _ratios(trial: Trial, beside: Published) -> Rows:
    baseline = [BASELINE] if BASELINE in trial.settings else []
    for name in [*baseline, *ratios_of(trial).values()]:
        yield _condition(trial, name, beside, "ATHENA-base")


def _sizes(trial: Trial, trials: Sequence[Trial], beside: Published) -> Rows:
    """Yield the baseline and the method; two solvers on the same data stand for the paper's two."""
    on_same = {other.subject: other for other in trials if other.data == trial.data}
    by_size = sorted(on_same, key=lambda subject: on_same[subject].size)
    larger = len(by_size) == 2 and by_size[1] == trial.subject
    for name in (BASELINE, METHOD):
        if name in trial.settings:
            yield _condition(trial, name, beside, "ATHENA-large" if larger else "ATHENA-base")


def _condition(trial: Trial, name: str, beside: Published, model: str) -> dict[str, Any]:
    """Return a row of Table 1 or 2, beside a model of the paper, by default the given one."""
    ratio = trial.settings[name].ratio
    return {
        **_row(trial, name),
        "ratio": ratio,
        **accuracy(trial, name),
        **savings(trial, name),
        **beside.condition(trial.papers_data, ratio, trial.papers_model or model),
    }


def _mixtures(trial: Trial, beside: Published) -> Rows:
    middle = trial.study.method.importance.alpha
    for distilled in (True, False):
        found = mixtures_of(trial, distilled=distilled)
        for alpha, name in found.items() if len(found) > 1 else ():
            against = found[middle] if middle in found and alpha != middle else None
            ratio = trial.settings[name].ratio
            yield {
                **_row(trial, name),
                "alpha": alpha,
                "distilled": distilled,
                **accuracy(trial, name),
                "against": middle,
                **_gap(trial, name, against),
                **beside.alpha(trial.papers_data, ratio, alpha, distilled=distilled),
            }


def _gap(trial: Trial, name: str, other: str | None) -> dict[str, float]:
    if other is None:
        return {}
    found = difference(trial, name, other)
    return {"gap": found.value, "gap_low": found.low, "gap_high": found.high}


def _strata(trial: Trial, beside: Published) -> Rows:
    if not {BASELINE, METHOD} <= set(trial.settings):
        return
    order = ("low", "medium", "high")
    strata = sorted(set(trial.outcomes["stratum"]))
    known = [stratum for stratum in order if stratum in strata]
    for stratum in (*known, *(other for other in strata if other not in order), "all"):
        asked = None if stratum == "all" else stratum
        base = accuracy(trial, BASELINE, stratum=asked)
        yield {
            **_row(trial, METHOD),
            "stratum": stratum,
            "baseline": base["accuracy"],
            "baseline_sd": base["sd"],
            **accuracy(trial, METHOD, stratum=asked),
            **beside.stratum(trial.papers_data, trial.study.method.ratio, stratum),
        }


def _ablation(trial: Trial, beside: Published) -> Rows:
    for name in ARMS:
        if name not in trial.settings:
            continue
        against = METHOD if name != METHOD and METHOD in trial.settings else None
        yield {
            **_row(trial, name),
            "ratio": trial.settings[name].ratio,
            **accuracy(trial, name),
            **_gap(trial, name, against),
            **savings(trial, name),
            **beside.arm(trial.papers_data, trial.study.method.ratio, name),
        }


def _knee(trial: Trial) -> Rows:
    found = knee(trial)
    if found is None:
        return
    for ratio, name in ratios_of(trial).items():
        removed, heads = trial.heads(name)
        yield {
            **_row(trial, name),
            "ratio": ratio,
            **accuracy(trial, name),
            "heads_removed": removed,
            "heads": heads,
            "knee": found.ratio,
            "knee_low": found.low,
            "knee_high": found.high,
            "safe": found.safe,
        }


def _quantised(trial: Trial) -> Rows:
    both = [name for name in trial.study.int8 if name in trial.settings]
    for name in both:
        for quantised in (False, True):
            if trial.right(name, quantised=quantised).empty:
                continue
            yield {
                **_row(trial, name),
                "quantised": quantised,
                **accuracy(trial, name, quantised=quantised),
                **savings(trial, name, quantised=quantised),
            }


def _cost(trial: Trial) -> Rows:
    warned = notices(trial)
    for name in trial.settings:
        runs = trial.histories[name].values()
        rounds = [run["rounds"] for run in runs]
        seconds = [run["seconds"] for run in runs]
        yield {
            **_row(trial, name),
            "seeds": len(seconds),
            "rounds": np.mean([len(own) for own in rounds]),
            "epochs": np.mean([sum(len(each["epochs"]) for each in own) for own in rounds]),
            "tokens": np.mean([run["tokens"] for run in runs]),
            "seconds": np.mean(seconds),
            "device_hours": sum(seconds) / 3600,
            "warnings": sum(notice.arm == name for notice in warned),
            "warned": "; ".join(notice.text for notice in warned if notice.arm == name),
        }
