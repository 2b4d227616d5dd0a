"""The tables that the second paper's claims are judged from; see `headroom.analysis.claims_tables`.

A stated loss is held against the measured change: what depends on the division of the data, the
accuracy itself, counts as the paper's baseline plus that change. A measured cut is the larger of
the ways to count it, and may exceed what is stated.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from headroom.analysis.arithmetic import ENCODERS, LONGEST
from headroom.analysis.compression.numbers import accuracy, difference_of_changes, savings
from headroom.analysis.compression.published import STRATA, STRATEGIES, Published
from headroom.analysis.compression.trial import BASELINE, METHOD, Trial, mixtures_of, ratios_of

_QUANTITIES = {
    "dataset": "data",
    "pruning_ratio_pct": "ratio",
    "accuracy_pct": "accuracy",
    "baseline_accuracy_pct": "before",
    "param_reduction_pct": "parameters",
    "speedup_pct": "speed",
    "flops_reduction_pct": "flops",
    "memory_reduction_pct": "memory",
}
_SAVED = {
    "parameters": ["parameters_removed", "whole_removed"],
    "speed": ["faster_small", "faster_large"],
    "flops": ["flops_removed"],
    "memory": ["weight_removed", "peak_removed"],
}
_OF = {
    "ratios": "{model} on {data} at {ratio:g}%",
    "arms": "arm {arm} of {model} on {data}",
    "alphas": "alpha {alpha:g} of {model} on {data}",
    "strata": "{stratum} problems of {model} on {data}",
}
"""What a row of each table is about."""

_WITHIN = 0.005  # by which measured cuts may fall short of stated ones


def printed(paper: Published) -> dict[str, pd.DataFrame]:
    """Return what the paper prints in its Tables 1-4."""
    condition = ["model", "dataset", "pruning_ratio_pct"]
    ratios = pd.concat([paper.ratios, paper.sizes]).drop_duplicates(condition)
    first = ratios.groupby(condition[:2])["accuracy_pct"].transform("first")
    whole = paper.strategies["accuracy_pct"].iloc[0]
    factors = paper.factors.assign(model="ATHENA-base", dataset="Math23k")  # of its Table 3
    alphas, strata = (factors[factors["factor"] == name] for name in ("alpha", "complexity"))
    tables = {
        "ratios": ratios.assign(baseline_accuracy_pct=first),
        "arms": paper.strategies.assign(baseline_accuracy_pct=whole, arm=lambda t: t["strategy"]),
        "alphas": alphas.assign(baseline_accuracy_pct=whole, alpha=alphas["level"].astype(float)),
        "strata": strata.assign(stratum=strata["level"]),
    }
    found = {name: _labelled(_parts(table), name) for name, table in tables.items()}
    cut = found["ratios"].query("ratio == 25").pivot(index="data", columns="model", values="drop")
    lead = (cut["ATHENA-base"] - cut["ATHENA-large"]).round(9)
    sizes = pd.DataFrame({"name": lead.index, "difference": lead.to_numpy(), "of": "sizes"})
    return found | {"sizes": sizes}


def measured(trials: Sequence[Trial], paper: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return what a run measured of the paper's solvers on its data, and of any two sizes.

    Args:
        trials: the compressions of the run.
        paper: the table of ratios that the paper prints.
    """
    before = paper.groupby(["model", "data"])["before"].first().to_dict()
    own = [t for t in trials if (t.papers_model, t.papers_data) in before]
    makers: dict[str, Callable[[Trial, float], Iterator[dict[str, Any]]]] = {
        "ratios": _ratios,
        "arms": _arms,
        "alphas": _alphas,
        "strata": _strata,
    }
    found = {}
    for name, make in makers.items():
        rows = [
            {"model": trial.papers_model, "data": trial.papers_data, "title": trial.title, **row}
            for trial in own
            for row in make(trial, before[trial.papers_model or "", trial.papers_data or ""])
        ]
        if rows:
            found[name] = _labelled(pd.DataFrame(rows), name).drop_duplicates("of")
    sizes = list(_sizes(trials))
    return found | ({"sizes": pd.DataFrame(sizes)} if sizes else {})


def _parts(table: pd.DataFrame) -> pd.DataFrame:
    """Return rows of the paper as parts of 1, with what arithmetic allows."""
    percents = [name for name in table if name in _QUANTITIES and str(name).endswith("_pct")]
    table = table.rename(columns=_QUANTITIES)
    ratio = table["ratio"] / 100
    shown = [_QUANTITIES[str(name)] for name in percents if name != "pruning_ratio_pct"]
    table = table.assign(**{name: table[name] / 100 for name in shown})
    encoders = list(zip(table["model"].map(ENCODERS), ratio, strict=True))
    flops = np.array([encoder.flops_cut(part, LONGEST) for encoder, part in encoders])
    return table.assign(
        drop=(table["before"] - table["accuracy"]).round(9),
        parameters_most=[encoder.parameter_cut(part) for encoder, part in encoders],
        flops_most=flops,
        speed_most=1 / (1 - flops) - 1,
    )


def _labelled(table: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Name the rows; a run's by its own solver and data."""
    rows = [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]
    of = [_OF[kind].format(**row) for row in rows]
    own = [f"{row['model']} on {row['data']}" for row in rows]
    titles = table.get("title", own)
    names = [name.replace(*pair) for name, *pair in zip(of, own, titles, strict=True)]
    return table.assign(of=of, name=names)


def _ratios(trial: Trial, before: float) -> Iterator[dict[str, Any]]:
    for ratio, arm in ratios_of(trial).items():
        yield {"ratio": round(100 * ratio, 6), **_row(trial, arm, before)}


def _arms(trial: Trial, before: float) -> Iterator[dict[str, Any]]:
    for arm, name in STRATEGIES.items():
        if arm in trial.settings and arm != BASELINE:
            ratio = round(100 * trial.settings[arm].ratio, 6)
            yield {"arm": name, "ratio": ratio, **_row(trial, arm, before)}


def _alphas(trial: Trial, before: float) -> Iterator[dict[str, Any]]:
    for alpha, arm in mixtures_of(trial, distilled=True).items():
        yield {"alpha": alpha, **_row(trial, arm, before)}


def _strata(trial: Trial, before: float) -> Iterator[dict[str, Any]]:
    if {BASELINE, METHOD} <= set(trial.settings):
        for own, name in STRATA.items():
            if own in set(trial.outcomes["stratum"]):
                yield {"stratum": name, **_row(trial, METHOD, before, own)}


def _row(trial: Trial, arm: str, before: float, stratum: str | None = None) -> dict[str, Any]:
    found, saved = accuracy(trial, arm, stratum=stratum), savings(trial, arm)
    change, low, high = (found[f"change{end}"] for end in ("", "_low", "_high"))
    cuts = {
        name: pd.Series([saved[column] for column in columns], dtype=float).max()
        for name, columns in _SAVED.items()
    }
    return {
        **_interval("before", before, before, before),
        **_interval("accuracy", before + change, before + low, before + high, before),
        **_interval("drop", -change, -high, -low, 0.0),
        **{name: value for cut in cuts for name, value in _cut(cut, cuts[cut]).items()},
    }


def _cut(name: str, value: float) -> dict[str, float]:
    return _interval(name, value, -np.inf, value + _WITHIN)


def _interval(
    name: str, value: float, low: float, high: float, null: float = np.nan
) -> dict[str, float]:
    return {name: value, f"{name}_low": low, f"{name}_high": high, f"{name}_null": null}


def _sizes(trials: Sequence[Trial]) -> Iterator[dict[str, Any]]:
    """Yield by how much less accuracy the larger of two solvers loses to the method.

    Of one seed each, trainings show nothing of others.
    """
    able = [trial for trial in trials if {BASELINE, METHOD} <= set(trial.settings)]
    pairs = [
        (small, large)
        for small, large in combinations(sorted(able, key=lambda trial: trial.size), 2)
        if (small.data, small.study.method.ratio) == (large.data, large.study.method.ratio)
        and small.subject != large.subject
    ]
    found = [difference_of_changes(small, large, METHOD) for small, large in pairs]
    alone = all(own.seeds == 1 for own in found)
    for (small, large), own in zip(pairs, found, strict=True):
        yield {
            "name": f"{large.title} against {small.subject}",
            "of": "sizes",
            "difference": own.value,
            "difference_low": -np.inf if alone else own.low,
            "difference_high": np.inf if alone else own.high,
        }
