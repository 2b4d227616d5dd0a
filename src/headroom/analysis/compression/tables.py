"""A compression's tables beside the paper's numbers: Tables 1-4, knee, quantisation, cost.

Accuracies and cuts are fractions. Cells are empty where nothing was measured or published.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headroom.analysis.audit import ENCODERS
from headroom.analysis.compression.findings import knee, notices
from headroom.analysis.compression.trial import (
    ACCURACY,
    BASELINE,
    METHOD,
    SAVINGS,
    Trial,
    accuracy,
    difference,
    mixtures_of,
    ratios_of,
    savings,
)
from headroom.analysis.published import (
    COMPRESSION,
    COMPRESSION_FACTORS,
    COMPRESSION_SIZES,
    COMPRESSION_STRATEGIES,
)
from headroom.analysis.sheet import read_csv
from headroom.config.study import ARMS

STRATEGIES = {
    "baseline": "baseline",
    "pruning only": "pruning_only",
    "without entropy": "without_entropy",
    "without norm": "without_norm",
    "with response distillation": "response_distillation",
    "with feature distillation": "feature_distillation",
    "random pruning": "random",
    "global threshold pruning": "global",
    "attention visualization pruning": "attention_visualisation",
    "distillation only": "distillation_only",
    "ours": "full",
}
"""The arm of each name in the paper's Table 4."""

_STRATA = {"Simple": "low", "Medium": "medium", "Complex": "high", "All": "all"}
_ALONE = {
    "without_norm": 0.0,
    "pruning_only": 0.5,
    "without_entropy": 1.0,
}  # alpha, no distillation
_PARTS = {
    "baseline_accuracy_pct": "published_baseline",
    "accuracy_pct": "published_accuracy",
    "param_reduction_pct": "published_parameters",
    "speedup_pct": "published_speedup",
    "flops_reduction_pct": "published_flops",
    "memory_reduction_pct": "published_memory",
}

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


def printed(folder: Path) -> pd.DataFrame:
    """Return the numbers of the paper's Tables 1-4, one row per condition.

    Args:
        folder: folder of the published tables.

    Returns:
        ``of`` (ratio, arm, alpha or stratum) and ``key`` identify the condition; the key is the
        model for a ratio, our name for an arm or stratum, and `_mixture`'s text for alpha. Then
        ``published_model``, ``data``, ``ratio`` and the numbers.

    Raises:
        TableError: a table is missing or damaged.
    """
    names = (COMPRESSION, COMPRESSION_SIZES, COMPRESSION_FACTORS, COMPRESSION_STRATEGIES)
    first, sizes, factors, arms = (read_csv(folder / name, ["accuracy_pct"]) for name in names)
    ratios = pd.concat([first, sizes]).drop_duplicates(["model", "dataset", "pruning_ratio_pct"])
    whole = ratios.groupby(["model", "dataset"])["accuracy_pct"].transform("first")
    arms = arms.assign(of="arm", key=arms["strategy"].map(STRATEGIES))
    arms = arms.assign(baseline_accuracy_pct=arms["accuracy_pct"].iloc[0])
    factors = factors.assign(model="ATHENA-base", dataset="Math23k")  # of its Table 3
    alphas, strata = (factors[factors["factor"] == name] for name in ("alpha", "complexity"))
    mixed = [_mixture(float(level), distilled=True) for level in alphas["level"]]
    alone = arms[arms["key"].isin(_ALONE)]
    tables = [
        ratios.assign(of="ratio", key=ratios["model"], baseline_accuracy_pct=whole),
        arms,
        alphas.assign(of="alpha", key=mixed, baseline_accuracy_pct=arms["accuracy_pct"].iloc[0]),
        alone.assign(of="alpha", key=[_mixture(_ALONE[arm]) for arm in alone["key"]]),
        strata.assign(of="stratum", key=strata["level"].map(_STRATA)),
    ]
    table = pd.concat(tables, ignore_index=True).rename(columns=_PARTS)
    table[[*_PARTS.values()]] /= 100
    shape = zip(table["model"].map(ENCODERS), table["pruning_ratio_pct"] / 100, strict=True)
    held = [encoder.parameter_cut(ratio) for encoder, ratio in shape]
    return table.rename(columns={"model": "published_model", "dataset": "data"}).assign(
        ratio=table["pruning_ratio_pct"] / 100,
        published_change=(table["published_accuracy"] - table["published_baseline"]).round(9),
        published_parameters_at_most=held,
    )


def _mixture(alpha: float, *, distilled: bool = False) -> str:
    return f"{alpha:g}, distilled" if distilled else f"{alpha:g}"


def exhibits(trials: Sequence[Trial], beside: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return every table by name, with `COLUMNS`; a table may have no rows.

    Args:
        trials: the compressions of the run.
        beside: the paper's numbers, as returned by `printed`.
    """

    def paper(of: str, key: object, ratio: float, trial: Trial) -> dict[str, Any]:
        found = beside[(beside["of"] == of) & (beside["key"] == key)]
        found = found[(found["data"] == trial.papers_data) & np.isclose(found["ratio"], ratio)]
        row = found.filter(like="published_").to_dict("records")[:1]
        return {str(name): value for own in row for name, value in own.items()}

    def condition(trial: Trial, arm: str, model: str) -> dict[str, Any]:
        ratio = trial.settings[arm].ratio
        own = {"ratio": ratio, **accuracy(trial, arm), **savings(trial, arm)}
        return {"arm": arm, **own, **paper("ratio", trial.papers_model or model, ratio, trial)}

    def ratios(trial: Trial) -> Rows:
        for arm in [BASELINE, *ratios_of(trial).values()]:
            if arm in trial.settings:
                yield condition(trial, arm, "ATHENA-base")

    def sizes(trial: Trial) -> Rows:
        """Yield baseline and method; of two solvers, the larger one matches the paper's larger."""
        alike = {other.subject: other.size for other in trials if other.data == trial.data}
        larger = len(alike) == 2 and max(alike, key=lambda own: alike[own]) == trial.subject
        larger &= len(set(alike.values())) == 2
        for arm in (BASELINE, METHOD):
            if arm in trial.settings:
                yield condition(trial, arm, "ATHENA-large" if larger else "ATHENA-base")

    def mixtures(trial: Trial) -> Rows:
        middle, settings = trial.study.method.importance.alpha, trial.settings
        for distilled in (True, False):
            found = mixtures_of(trial, distilled=distilled)
            for alpha, arm in found.items() if len(found) > 1 else ():
                yield {
                    "arm": arm,
                    "alpha": alpha,
                    "distilled": distilled,
                    **accuracy(trial, arm),
                    "against": middle,
                    **_gap(trial, arm, found.get(middle)),
                    **paper(
                        "alpha", _mixture(alpha, distilled=distilled), settings[arm].ratio, trial
                    ),
                }

    def strata(trial: Trial) -> Rows:
        if not {BASELINE, METHOD} <= set(trial.settings):
            return
        there = set(trial.outcomes["stratum"])
        known = [stratum for stratum in _STRATA.values() if stratum in there]
        for stratum in (*known, *sorted(there - set(known)), "all"):
            asked = None if stratum == "all" else stratum
            base = accuracy(trial, BASELINE, stratum=asked)
            yield {
                "arm": METHOD,
                "stratum": stratum,
                **dict(zip(_BASE, (base["accuracy"], base["sd"]), strict=True)),
                **accuracy(trial, METHOD, stratum=asked),
                **paper("stratum", stratum, trial.study.method.ratio, trial),
            }

    def ablation(trial: Trial) -> Rows:
        for arm in (arm for arm in ARMS if arm in trial.settings):
            yield {
                "arm": arm,
                "ratio": trial.settings[arm].ratio,
                **accuracy(trial, arm),
                **_gap(trial, arm, METHOD if METHOD in trial.settings else None),
                **savings(trial, arm),
                **paper("arm", arm, trial.study.method.ratio, trial),
            }

    makers: Mapping[str, Callable[[Trial], Rows]] = {
        "table1": ratios,
        "table2": sizes,
        "table3a": mixtures,
        "table3b": strata,
        "table4": ablation,
        "knee": _knee,
        "quantisation": _quantised,
        "cost": _cost,
    }
    found = {}
    for name, make in makers.items():
        rows = [
            {"compression": trial.name, "subject": trial.subject, "data": trial.data, **row}
            for trial in trials
            for row in make(trial)
        ]
        found[name] = pd.DataFrame(rows, columns=COLUMNS[name])
    return found


def _gap(trial: Trial, arm: str, other: str | None) -> dict[str, float]:
    if other in (None, arm):
        return {}
    return dict(zip(_GAP, difference(trial, arm, str(other)), strict=False))


def _knee(trial: Trial) -> Rows:
    found = knee(trial)
    for ratio, arm in ratios_of(trial).items() if found else ():
        removed, heads = trial.heads(arm)
        places = (found.ratio, found.low, found.high, found.safe) if found else ()
        yield {
            "arm": arm,
            "ratio": ratio,
            **accuracy(trial, arm),
            "heads_removed": removed,
            "heads": heads,
            **dict(zip(_KNEE, places, strict=True)),
        }


def _quantised(trial: Trial) -> Rows:
    for arm in (arm for arm in trial.study.int8 if arm in trial.settings):
        for bits in (False, True):
            if not trial.right(arm, quantised=bits).empty:
                saved = savings(trial, arm, quantised=bits)
                own = accuracy(trial, arm, quantised=bits)
                yield {"arm": arm, "quantised": bits, **own, **saved}


def _cost(trial: Trial) -> Rows:
    warned = notices(trial)
    for arm in trial.settings:
        runs = trial.histories[arm].values()
        rounds = [run["rounds"] for run in runs]
        seconds = [run["seconds"] for run in runs]
        texts = [notice.text for notice in warned if notice.arm == arm]
        yield {
            "arm": arm,
            "seeds": len(seconds),
            "rounds": np.mean([len(own) for own in rounds]),
            "epochs": np.mean([sum(len(each["epochs"]) for each in own) for own in rounds]),
            "tokens": np.mean([run["tokens"] for run in runs]),
            "seconds": np.mean(seconds),
            "device_hours": sum(seconds) / 3600,
            "warnings": len(texts),
            "warned": "; ".join(texts),
        }
