"""A compression's tables beside the paper's numbers: Tables 1-4, knee, quantisation, cost.

Accuracies and cuts are fractions. Cells are empty where nothing was measured or published.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headroom.analysis.audit import ENCODERS
from headroom.analysis.compression.trial import (
    ACCURACY,
    BASELINE,
    METHOD,
    SAVINGS,
    Trial,
    accuracy,
    bootstrap,
    difference,
    mixtures_of,
    paired,
    ratios_of,
    savings,
)
from headroom.analysis.files import read_csv
from headroom.analysis.published import CONDITIONS
from headroom.analysis.text import percent, points
from headroom.config.study import ARMS

NOTABLE = 0.015
"""Loss of accuracy (0 to 1) above which a user is warned."""

_STRATA = ("low", "medium", "high")
_NUMBERS = {
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
_KNEE = ["knee", "knee_low", "knee_high", "safe"]
_GAP = ["gap", "gap_low", "gap_high"]
_SPEED = ["seconds", "faster", "flops_removed", "tokens_per_second", "cache_bytes"]
_OF_ARM = ["published_accuracy", "published_parameters", "published_speedup", "published_memory"]

COLUMNS: dict[str, list[str]] = {
    "table1": [*_ARM, "ratio", *ACCURACY, *SAVINGS, *_CONDITION],
    "table2": [*_ARM, "ratio", *ACCURACY, *SAVINGS, *_CONDITION],
    "table3a": [*_ARM, "alpha", "distilled", *ACCURACY, "against", *_GAP, *_SAME],
    "table3b": [*_ARM, "stratum", "baseline", *ACCURACY, "published_baseline", *_SAME],
    "table4": [*_ARM, "ratio", *ACCURACY, *_GAP, *SAVINGS, *_OF_ARM],
    "variations": [*_ARM, "changed", "ratio", *ACCURACY, *_GAP],
    "knee": [*_ARM, "ratio", *ACCURACY, "heads_removed", "heads", *_KNEE],
    "quantisation": [*_ARM, "quantised", *ACCURACY, *SAVINGS],
    "speed": [*_ARM, "quantised", "tokens", "batch", *_SPEED],
    "cost": [*_ARM, "seeds", "rounds", "epochs", "tokens", "seconds", "device_hours", "warned"],
}
"""Columns of each table. ``gap``: accuracy minus that of the method (Table 4), or of the mixture
``against`` (Table 3a). ``changed``: in what a variation differs from the method (ratio and alpha
have tables of their own). ``seconds``: of a pass, with ``faster`` (t0 / t1 - 1) and FLOPs against
the unpruned model at the same length and batch. ``knee``: the largest ratio whose interval reaches
−`NOTABLE`, with the 95% range over resamples of the largest ratio that loses no more; ``safe``: the
largest whose whole interval is above; 0 if none is. ``cost``: means of one seed; hours of the
device for all."""

Rows = Iterator[dict[str, Any]]


def printed(folder: Path) -> pd.DataFrame:
    """Return the numbers of the paper's Tables 1-4, one row per condition.

    Args:
        folder: folder of the published tables.

    Returns:
        ``of`` (ratio, arm, alpha or stratum) and ``key`` identify the condition; the key is the
        model for a ratio, our name for an arm or stratum, and alpha. Then ``published_model``,
        ``data``, ``ratio`` and the numbers.

    Raises:
        TableError: a table is missing or damaged.
    """
    first, sizes, factors, arms = (read_csv(folder / name, ["accuracy_pct"]) for name in CONDITIONS)
    ratios = pd.concat([first, sizes]).drop_duplicates(["model", "dataset", "pruning_ratio_pct"])
    whole = ratios.groupby(["model", "dataset"])["accuracy_pct"].transform("first")
    factors = factors.assign(model="ATHENA-base", dataset="Math23k")  # of its Table 3
    alphas, strata = (factors[factors["factor"] == name] for name in ("alpha", "complexity"))
    base = arms["accuracy_pct"].iloc[0]
    tables = [
        ratios.assign(of="ratio", key=ratios["model"], baseline_accuracy_pct=whole),
        arms.assign(of="arm", key=arms["ours"], baseline_accuracy_pct=base),
        alphas.assign(of="alpha", key=alphas["level"].astype(float), baseline_accuracy_pct=base),
        strata.assign(of="stratum", key=strata["ours"]),
    ]
    table = pd.concat(tables, ignore_index=True).rename(columns=_NUMBERS)
    table[[*_NUMBERS.values()]] /= 100
    ratio = table["pruning_ratio_pct"] / 100
    shape = zip(table["model"].map(ENCODERS), ratio, strict=True)
    return table.rename(columns={"model": "published_model", "dataset": "data"}).assign(
        ratio=ratio,
        published_change=(table["published_accuracy"] - table["published_baseline"]).round(9),
        published_parameters_at_most=[encoder.parameter_cut(ratio) for encoder, ratio in shape],
    )


def tables(trials: Sequence[Trial], beside: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return every table by name, with `COLUMNS`; a table may have no rows.

    Args:
        trials: the compressions of the run.
        beside: the paper's numbers, as returned by `printed`.
    """
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in COLUMNS}
    for trial in trials:
        alike = {other.subject: other.size for other in trials if other.data == trial.data}
        larger = max(alike, key=lambda own: alike[own]) == trial.subject
        larger &= len(alike) == len(set(alike.values())) == 2
        of = {"compression": trial.name, "subject": trial.subject, "data": trial.data}
        for name, rows in _tables(trial, beside, larger).items():
            found[name] += [of | row for row in rows]
    return {name: pd.DataFrame(rows, columns=COLUMNS[name]) for name, rows in found.items()}


def _tables(trial: Trial, beside: pd.DataFrame, larger: bool) -> dict[str, Rows]:
    """Return the rows of each table about a compression.

    `larger`: of two solvers, it is the one to set beside the paper's larger one.
    """
    tested, middle = trial.settings, trial.study.method.importance.alpha
    method = METHOD if METHOD in tested else None
    beside = beside[beside["data"] == trial.papers_data]

    def row(arm: str, of: str = "", key: object = "", **asked: Any) -> dict[str, Any]:
        """Return what was measured of an arm, and what the paper prints of a condition."""
        ratio = tested[arm].ratio
        same = beside[(beside["of"] == of) & (beside["key"] == key)]
        same = same[np.isclose(same["ratio"], trial.study.method.ratio if of == "arm" else ratio)]
        paper = same.filter(like="published_").to_dict("records")[:1]
        measured = {**accuracy(trial, arm, **asked), "arm": arm, "ratio": ratio}
        if "stratum" not in asked:
            measured |= savings(trial, arm, **asked)
        return measured | {str(name): value for own in paper for name, value in own.items()}

    def gap(arm: str, other: str | None) -> dict[str, float]:
        if other in (None, arm):
            return {}
        return dict(zip(_GAP, difference(trial, arm, str(other)), strict=True))

    def mixtures(*, distilled: bool) -> Rows:
        found = mixtures_of(trial, distilled=distilled)
        for alpha, arm in found.items() if len(found) > 1 else ():
            told = {"alpha": alpha, "distilled": distilled, "against": middle}
            of = ("alpha", alpha) if distilled else ("arm", arm)
            yield row(arm, *of) | told | gap(arm, found.get(middle))

    def strata() -> Rows:
        there = set(trial.outcomes["stratum"])
        known = [name for name in (*_STRATA, *sorted(there - set(_STRATA))) if name in there]
        for name, asked in [*zip(known, known, strict=True), ("all", None)]:
            base = accuracy(trial, BASELINE, stratum=asked)["accuracy"]
            yield row(METHOD, "stratum", name, stratum=asked) | {"stratum": name, "baseline": base}

    def variations() -> Rows:
        others = {*ratios_of(trial).values()}
        for distilled in (True, False):
            others |= {*mixtures_of(trial, distilled=distilled).values()}
        changes = {arm: own for arm, own in trial.study.variations.items() if arm not in others}
        for arm in (METHOD, *changes) if changes else ():
            if arm in tested:
                yield row(arm) | gap(arm, method) | {"changed": _told(changes.get(arm, {}))}

    both = [arm for arm in (BASELINE, METHOD) if arm in tested]
    model = trial.papers_model or "ATHENA-base"
    size = trial.papers_model or ("ATHENA-large" if larger else "ATHENA-base")
    broken = knee(trial)
    lowest = [arm for arm in (BASELINE, *ratios_of(trial).values()) if arm in tested]
    return {
        "table1": (row(arm, "ratio", model) for arm in lowest),
        "table2": (row(arm, "ratio", size) for arm in both),
        "table3a": (own for distilled in (True, False) for own in mixtures(distilled=distilled)),
        "table3b": strata() if len(both) == 2 else iter(()),
        "table4": (row(arm, "arm", arm) | gap(arm, method) for arm in ARMS if arm in tested),
        "variations": variations(),
        "speed": _speed(trial),
        "knee": (row(arm) | broken for arm in lowest[1:]) if broken else iter(()),
        "quantisation": (
            row(arm, quantised=bits) | {"quantised": bits}
            for arm in trial.study.int8
            for bits in (False, True)
            if not trial.right(arm, quantised=bits).empty
        ),
        "cost": ({"arm": arm, **_cost(trial, arm)} for arm in tested),
    }


def _told(changes: Mapping[str, Any], path: str = "") -> str:
    """Return changed settings as text: ``importance.alpha: 0.3``."""
    return "; ".join(
        _told(value, f"{path}{key}.") if isinstance(value, Mapping) else f"{path}{key}: {value}"
        for key, value in changes.items()
    )


def _speed(trial: Trial) -> Rows:
    """Yield every length and batch at which an arm was timed, against the unpruned model."""
    same = ["tokens", "batch"]
    rows = trial.measurements
    base = rows[(rows["arm"] == BASELINE) & ~rows["quantised"]].set_index(same)
    for row in rows.to_dict("records"):
        place = tuple(row[name] for name in same)
        if place in base.index:
            before = base.loc[place]
            row["faster"] = before["seconds"] / row["seconds"] - 1
            row["flops_removed"] = 1 - row["flops"] / before["flops"]
        yield {str(key): value for key, value in row.items()}


def knee(trial: Trial) -> dict[str, float] | None:
    """Return where the method breaks down; None without a baseline and two ratios."""
    found = ratios_of(trial)
    if len(found) < 2 or BASELINE not in trial.settings:
        return None
    ratios = np.array(list(found))
    changes = np.stack(
        [paired(trial.right(arm), trial.right(BASELINE)) for arm in found.values()], axis=-1
    )
    means = bootstrap(*changes.shape[:2], trial.seed)
    ends = [
        np.array([accuracy(trial, arm)[f"change_{end}"] for arm in found.values()])
        for end in ("low", "high")
    ]
    drawn, safe, reached = (
        (ratios * (kept >= -NOTABLE)).max(axis=-1) for kept in (means.means(changes), *ends)
    )
    low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")
    return dict(zip(_KNEE, map(float, (reached, low, high, safe)), strict=True))


def _cost(trial: Trial, arm: str) -> dict[str, Any]:
    runs = trial.histories[arm].values()
    rounds, seconds = [run["rounds"] for run in runs], [run["seconds"] for run in runs]
    return {
        "seeds": len(seconds),
        "rounds": np.mean([len(own) for own in rounds]),
        "epochs": np.mean([sum(len(each["epochs"]) for each in own) for own in rounds]),
        "tokens": np.mean([run["tokens"] for run in runs]),
        "seconds": np.mean(seconds),
        "device_hours": sum(seconds) / 3600,
        "warned": "; ".join(warnings(trial, arm)),
    }


def warnings(trial: Trial, arm: str) -> Iterator[str]:
    """Yield what a user should look at: a loss of accuracy, no speed-up, an unstable training."""
    found = {**accuracy(trial, arm), **savings(trial, arm)}
    if found["change"] < -NOTABLE:
        yield (
            f"accuracy changed by {points(found['change'])} points (95% interval "
            f"{points(found['change_low'])} to {points(found['change_high'])}); look at alpha, or "
            "lower the ratio"
        )
    slow = [size for size in ("small", "large") if found[f"faster_{size}"] <= 0]
    if slow and found["heads_removed"]:
        where = " and ".join(
            f"batch {found[f'{size}_batch']} ({points(found[f'faster_{size}'])}%)" for size in slow
        )
        gone = f"{percent(found['parameters_removed'])} of the encoder's parameters"
        yield (
            f"no speed-up is measured at {where}, though {found['heads_removed']} of "
            f"{found['heads']} heads are gone, and {gone}: are heads really removed?"
        )
    seeds = defaultdict(list)
    for seed, history in trial.histories[arm].items():
        for warning in history["warnings"]:
            if not warning.startswith("accuracy fell"):  # of the development part: see above
                seeds[warning].append(seed)
    for warning, own in seeds.items():
        yield f"seed {', '.join(map(str, own))}: {warning}"
