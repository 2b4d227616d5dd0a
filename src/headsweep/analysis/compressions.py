"""The second paper's tables of a run's compressions, the paper's numbers beside.

Tables 1-4, variations, knee, quantisation, speed and cost. Shares are fractions: 0.25 is 25%. Cells
are empty where nothing was measured or published.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from headsweep.analysis.facts import rows_of
from headsweep.analysis.trials import (
    ACCURACY,
    BASELINE,
    LEAST,
    METHOD,
    SAVINGS,
    TEST_TIME,
    Trial,
    accuracy,
    bootstrap,
    compared,
    control,
    mixtures_of,
    ratios_of,
    savings,
)
from headsweep.config.compression import NOTABLE, advised, is_narrow
from headsweep.config.experiments import ARMS
from headsweep.text import percent, points

_ARM = ["compression", "subject", "data", "arm"]
_SAME = ["published_accuracy", "published_change"]
_CONDITION = ["published_model", *_SAME, "published_parameters", "published_parameters_at_most"]
_CONDITION += ["published_speedup", "published_flops"]
_KNEE = ["knee", "knee_low", "knee_high"]
_GAP = ["gap", "gap_low", "gap_high"]
_SPEED = ["seconds", "faster", "flops_removed", "tokens_per_second", "cache_bytes"]
_OF_ARM = ["published_accuracy", "published_parameters", "published_speedup", "published_memory"]

COLUMNS: dict[str, list[str]] = {
    "table1": [*_ARM, "ratio", *ACCURACY, *SAVINGS, *_CONDITION],
    "table2": [*_ARM, "ratio", *ACCURACY, *SAVINGS, *_CONDITION],
    "table3a": [*_ARM, "alpha", "distilled", *ACCURACY, "against", *_GAP, *_SAME],
    "table3b": [*_ARM, "stratum", "baseline", *ACCURACY, "published_baseline", *_SAME],
    "table4": [*_ARM, "ratio", *ACCURACY, *_GAP, *SAVINGS, *_OF_ARM],
    "variations": [*_ARM, "changed", "ratio", *ACCURACY, *_GAP, *SAVINGS],
    "knee": [*_ARM, "ratio", *ACCURACY, "heads_removed", "heads", *_KNEE],
    "quantisation": [*_ARM, "quantised", *ACCURACY, *SAVINGS],
    "speed": [*_ARM, "quantised", "tokens", "batch", *_SPEED],
    "cost": [*_ARM, "seeds", "rounds", "epochs", "tokens", "seconds", "device_hours", "warned"],
}
"""Columns of each table. ``gap``: accuracy minus that of the method (Table 4), or of the mixture
``against`` (Table 3a). ``changed``: in what a variation differs from the method (ratio and alpha
have tables of their own). ``knee``: the largest ratio whose interval reaches −`NOTABLE`, with the
95% range over resamples of the largest ratio that loses no more; 0 if none does. ``seconds``: of a
pass, with ``faster`` (t0 / t1 - 1) and FLOPs against the unpruned model at the same length and
batch. ``cost``: means of one seed; hours of the device for all."""


def tables(trials: Sequence[Trial], conditions: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return every table of a run's compressions by name, with `COLUMNS`; some may have no rows.

    The paper's numbers are those of `headsweep.analysis.published.conditions`.
    """
    found: dict[str, list[pd.DataFrame]] = {name: [] for name in COLUMNS}
    names = [(t.study.data or t.study.test, t.study.solver or t.study.model) for t in trials]
    sizes = defaultdict[str | None, dict[str | None, int]](dict)  # of unpruned solvers, by data
    for trial, (data, subject) in zip(trials, names, strict=True):
        history = trial.first_history(next(iter(trial.settings)))
        sizes[data][subject] = history["parameters"]
    for trial, (data, subject) in zip(trials, names, strict=True):
        # Of two solvers, the larger one stands beside the paper's larger one.
        larger = len(sizes[data]) == 2 and sizes[data][subject] > min(sizes[data].values())
        of = {"compression": trial.name, "subject": subject, "data": data}
        for name, table in _tables(trial, conditions, larger).items():
            if len(table):
                found[name].append(table.assign(**of).reindex(columns=COLUMNS[name]))
    return {
        name: pd.concat(parts or [pd.DataFrame(columns=COLUMNS[name])], ignore_index=True)
        for name, parts in found.items()
    }


def _tables(trial: Trial, conditions: pd.DataFrame, larger: bool) -> dict[str, pd.DataFrame]:
    """Return the rows of each table about a compression."""
    tested = trial.settings
    method = trial.study.method
    papers = conditions[conditions["data"] == trial.papers_data]
    same = papers[np.isclose(papers["ratio"], method.ratio)]
    measured = pd.DataFrame([_measured(trial, arm) for arm in tested]).set_index("arm", drop=False)

    def beside(rows: pd.DataFrame, paper: pd.DataFrame, on: str) -> pd.DataFrame:
        printed = paper.set_index(on).filter(like="published_").reindex(rows[on])
        return rows.join(printed.set_axis(rows.index))

    def of_model(arms: Iterable[str], model: str) -> pd.DataFrame:
        paper = papers[(papers["of"] == "ratio") & (papers["key"] == model)]
        return beside(measured.loc[list(arms)], paper, "ratio")

    def of(kind: str, rows: pd.DataFrame) -> pd.DataFrame:
        return beside(rows.assign(key=rows[kind].astype(str)), same[same["of"] == kind], "key")

    def gap(rows: pd.DataFrame, other: str) -> pd.DataFrame:
        others = ("" if arm == other else other for arm in rows["arm"])  # none to itself
        pairs = zip(rows["arm"], others, strict=True)
        gaps = [compared(trial, trial.right(arm), trial.right(each)) for arm, each in pairs]
        return rows.join(pd.DataFrame(gaps, rows.index, _GAP))

    def mixtures(*, distilled: bool) -> pd.DataFrame:
        found = mixtures_of(trial, distilled=distilled)
        middle = method.importance.alpha
        if len(found) < 2:
            return measured.head(0)
        rows = measured.loc[list(found.values())].assign(alpha=list(found), distilled=distilled)
        printed = of("alpha" if distilled else "arm", rows.assign(against=middle))
        return gap(printed, found.get(middle, ""))

    def strata() -> pd.DataFrame:
        # as in the paper
        found = set(trial.outcomes["stratum"])
        order = ["low", "medium", "high"]
        there = [name for name in (*order, *sorted(found - set(order))) if name in found]
        rows = []
        for name, asked in [*zip(there, there, strict=True), ("all", None)]:
            base = accuracy(trial, BASELINE, stratum=asked)["accuracy"]
            own = accuracy(trial, METHOD, stratum=asked)
            rows.append({"arm": METHOD, "stratum": name, "baseline": base, **own})
        return of("stratum", pd.DataFrame(rows))

    def variations() -> pd.DataFrame:
        others = {*ratios}.union(*(mixtures_of(trial, distilled=d).values() for d in (True, False)))
        changes = {arm: own for arm, own in trial.study.variations.items() if arm not in others}
        rows = measured.loc[[arm for arm in (METHOD, *changes) if changes and arm in tested]]
        return gap(rows.assign(changed=[_told(changes.get(arm, {})) for arm in rows.index]), METHOD)

    both = [arm for arm in (BASELINE, METHOD) if arm in tested]
    ratios = list(ratios_of(trial).values())
    broken = knee(trial)
    keys = ["tokens", "batch"]
    rows = trial.measurements
    unpruned = rows[(rows["arm"] == BASELINE) & ~rows["quantised"]]
    timed = rows.merge(unpruned[[*keys, "seconds", "flops"]], "left", keys, suffixes=("", "_0"))
    faster = timed["seconds_0"] / timed["seconds"] - 1
    twice = [(arm, bits) for arm in trial.study.int8 for bits in (False, True)]
    quantised = [_measured(trial, *each) for each in twice if not trial.tested(*each).empty]
    base = trial.papers_model or "ATHENA-base"
    size = "ATHENA-large" if larger and not trial.papers_model else base
    arms = measured.loc[[arm for arm in ARMS if arm in tested]]
    return {
        "table1": of_model([*both[: BASELINE in tested], *ratios], base),
        "table2": of_model(both, size),
        "table3a": pd.concat([mixtures(distilled=True), mixtures(distilled=False)]),
        "table3b": strata() if len(both) == 2 else measured.head(0),
        "table4": gap(of("arm", arms), METHOD),
        "variations": variations(),
        "knee": measured.loc[ratios if broken else []].assign(**broken),
        "quantisation": pd.DataFrame(quantised),
        "speed": timed.assign(faster=faster, flops_removed=1 - timed["flops"] / timed["flops_0"]),
        "cost": pd.DataFrame([_cost(trial, own) for own in rows_of(measured)]),
    }


def _measured(trial: Trial, arm: str, quantised: bool = False) -> dict[str, Any]:
    """Return an arm's accuracy and savings."""
    told = {"arm": arm, "ratio": trial.settings[arm].ratio, "quantised": quantised}
    return {**told, **accuracy(trial, arm, quantised), **savings(trial, arm, quantised)}


def _told(changes: Mapping[str, Any], path: str = "") -> str:
    """Return changed settings as text: ``importance.alpha: 0.3``."""
    return "; ".join(
        _told(value, f"{path}{key}.") if isinstance(value, Mapping) else f"{path}{key}: {value}"
        for key, value in changes.items()
    )


def knee(trial: Trial) -> dict[str, float]:
    """Return where the method breaks down; empty without a baseline, two ratios and enough examples
    for an interval.
    """
    found = ratios_of(trial)
    if len(found) < 2 or BASELINE not in trial.settings:
        return {}
    ratios = np.array(list(found))
    base = trial.right(BASELINE)
    if base.shape[1] < LEAST:
        return {}
    changes = np.stack([(trial.right(arm) - base).to_numpy() for arm in found.values()], axis=-1)
    resampled = bootstrap(*changes.shape[:2], trial.seed)
    kept = (ratios * (resampled.means(changes) >= -NOTABLE)).max(axis=-1)
    low, high = np.quantile(kept, [0.025, 0.975], method="nearest")
    reached = (ratios * (resampled.interval(changes)[1] >= -NOTABLE)).max()
    return dict(zip(_KNEE, map(float, (reached, low, high)), strict=True))


def _cost(trial: Trial, measured: Any) -> dict[str, Any]:
    runs = trial.histories[measured.arm].values()
    rounds, seconds = [run["rounds"] for run in runs], [run["seconds"] for run in runs]
    return {
        "arm": measured.arm,
        "seeds": len(seconds),
        "rounds": np.mean([len(own) for own in rounds]),
        "epochs": np.mean([sum(len(each["epochs"]) for each in own) for own in rounds]),
        "tokens": np.mean([run["tokens"] for run in runs]),
        "seconds": np.mean(seconds),
        "device_hours": sum(seconds) / 3600,
        "warned": "; ".join(warnings(trial, measured._asdict())),
    }


def warnings(trial: Trial, measured: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a user should look at in an arm: lost accuracy, lost time, unstable training.

    Accuracy and time are spoken of as in the verdict: against the same control, and where the
    interval of a time is narrow.
    """
    column, beside = control(measured)
    change, low, high = (measured[f"{column}{end}"] for end in ("", "_low", "_high"))
    if change < -NOTABLE:
        known = f"95% interval {points(low)} to {points(high)}"
        about = f"{measured['n']} examples" if measured["n"] < LEAST else known
        advice = advised(
            measured["heads_removed"], trial.settings[measured["arm"]].importance.criterion
        )
        yield f"accuracy changed by {points(change)} points against {beside} ({about}); {advice}"
    time, least, most = (measured.get(name, np.nan) for name in TEST_TIME)
    if measured["heads_removed"] and least > 1 and is_narrow(time, most):
        yield (
            f"the whole test takes {time:.2f} of the original's time ({least:.2f} to "
            f"{most:.2f}), though {measured['heads_removed']} of {measured['heads']} heads are "
            f"gone, and {percent(measured['parameters_removed'])} of the encoder's parameters"
        )
    seeds = defaultdict(list)
    for seed, history in trial.histories[measured["arm"]].items():
        for warning in history["warnings"]:
            if not warning.startswith("accuracy fell"):  # of the development part: see above
                seeds[warning].append(seed)
    for warning, own in seeds.items():
        yield f"seed {', '.join(map(str, own))}: {warning}"
