"""The second paper's tables, made of a run's compressions, with the paper's own numbers.

They are Tables 1-4, variations, knee, quantisation, speed and cost. Shares are fractions: 0.25 is
25%. Cells are empty if nothing was measured or published.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from headsweep.config.compression import NOTABLE, advised, is_narrow
from headsweep.config.experiments import ARMS, BASELINE, METHOD
from headsweep.results.compression_arms import (
    ARM_ACCURACY,
    LEAST,
    SAVINGS,
    TEST_TIME,
    StudyResults,
    accuracy,
    bootstrap,
    compared,
    control,
    mixtures_of,
    ratios_of,
    savings,
)
from headsweep.results.facts import rows_of
from headsweep.statistics import TAILS
from headsweep.text import percent, points

_ARM = ["compression", "subject", "data", "arm"]
_SAME = ["published_accuracy", "published_change"]
_CONDITION = [
    "published_model",
    *_SAME,
    "published_parameters",
    "published_parameters_at_most",
    "published_speedup",
    "published_flops",
]
_KNEE = ["knee", "knee_low", "knee_high"]
_GAP = ["gap", "gap_low", "gap_high"]
_SPEED = ["seconds", "faster", "flops_removed", "cache_bytes"]
_OF_ALPHA = [*_SAME, "published_parameters", "published_speedup", "published_flops"]
_OF_ARM = ["published_accuracy", "published_parameters", "published_speedup", "published_memory"]

COLUMNS: dict[str, list[str]] = {
    "table1": [*_ARM, "ratio", *ARM_ACCURACY, *SAVINGS, *_CONDITION],
    "table2": [*_ARM, "ratio", *ARM_ACCURACY, *SAVINGS, *_CONDITION],
    "table3a": [*_ARM, "alpha", "distilled", *ARM_ACCURACY, "against", *_GAP, *SAVINGS, *_OF_ALPHA],
    "table3b": [*_ARM, "stratum", "baseline", *ARM_ACCURACY, "published_baseline", *_SAME],
    "table4": [*_ARM, "ratio", *ARM_ACCURACY, *_GAP, *SAVINGS, *_OF_ARM],
    "variations": [*_ARM, "changed", "ratio", *ARM_ACCURACY, *_GAP, *SAVINGS],
    "knee": [*_ARM, "ratio", *ARM_ACCURACY, "heads_removed", "heads", *_KNEE],
    "quantisation": [*_ARM, "quantised", *ARM_ACCURACY, *SAVINGS],
    "speed": [*_ARM, "quantised", "tokens", "batch", *_SPEED],
    "cost": [*_ARM, "seeds", "rounds", "epochs", "tokens", "seconds", "device_hours", "warned"],
}
"""Columns of each table. ``gap``: accuracy minus that of the method (Table 4), or of the mixture
``against`` (Table 3a). ``changed``: in what a variation differs from the method (ratio and alpha
have tables of their own). ``knee``: the largest ratio that loses no more than `NOTABLE`, with its
95% interval over resamples; 0 if none does. ``seconds``: of a pass, with ``faster`` (t0 / t1 - 1)
and FLOPs against the unpruned model at the same length and batch. ``cost``: means of one seed;
hours of the device for all."""


def tables(studies: Sequence[StudyResults], conditions: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return every table of a run's compressions by name, with `COLUMNS`; some may have no rows.

    The paper's numbers are those of `headsweep.results.published.conditions`.
    """
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in COLUMNS}
    names = [
        (results.study.data or results.study.test, results.study.solver or results.study.model)
        for results in studies
    ]
    sizes = defaultdict[str | None, dict[str | None, int]](dict)  # of unpruned solvers, by data
    for results, (data, subject) in zip(studies, names, strict=True):
        history = results.first_history(next(iter(results.settings)))
        sizes[data][subject] = history["parameters"]
    for results, (data, subject) in zip(studies, names, strict=True):
        # Of two solvers, the larger one stands beside the paper's larger one.
        larger = len(sizes[data]) == 2 and sizes[data][subject] > min(sizes[data].values())
        subject_columns = {"compression": results.name, "subject": subject, "data": data}
        for name, table in _StudyTables(results, conditions, larger=larger).by_name().items():
            if len(table):
                parts[name].append(table.assign(**subject_columns).reindex(columns=COLUMNS[name]))
    return {
        name: pd.concat(tables or [pd.DataFrame(columns=COLUMNS[name])], ignore_index=True)
        for name, tables in parts.items()
    }


class _StudyTables:
    """The rows of each table about one compression.

    `conditions` are the paper's numbers; `larger` says that another solver was trained on the same
    data and is smaller.
    """

    def __init__(self, results: StudyResults, conditions: pd.DataFrame, *, larger: bool) -> None:
        self._results = results
        self._tested = results.settings
        self._ratios = list(ratios_of(results).values())
        self._of_data = conditions[conditions["data"] == results.papers_data]
        same_ratio = np.isclose(self._of_data["ratio"], results.study.method.ratio)
        self._of_ratio = self._of_data[same_ratio]
        self._papers_model = results.papers_model or "ATHENA-base"
        self._papers_size = self._papers_model
        if larger and not results.papers_model:
            self._papers_size = "ATHENA-large"
        measured = pd.DataFrame([_measured(results, arm) for arm in self._tested])
        self._measured = measured.set_index("arm", drop=False)
        self._nothing = self._measured.head(0)

    def by_name(self) -> dict[str, pd.DataFrame]:
        """Return all tables, some without rows."""
        baseline = [arm for arm in (BASELINE,) if arm in self._tested]
        method = [arm for arm in (METHOD,) if arm in self._tested]
        unpruned_and_pruned = baseline + method
        return {
            "table1": self._of_model([*baseline, *self._ratios], self._papers_model),
            "table2": self._of_model(unpruned_and_pruned, self._papers_size),
            "table3a": pd.concat([self._mixtures(distilled=True), self._mixtures(distilled=False)]),
            "table3b": self._strata() if baseline and method else self._nothing,
            "table4": self._arms(),
            "variations": self._variations(),
            "knee": self._knee(),
            "quantisation": self._quantisation(),
            "speed": self._speed(),
            "cost": pd.DataFrame([_cost(self._results, row) for row in rows_of(self._measured)]),
        }

    def _of_model(self, arms: list[str], model: str) -> pd.DataFrame:
        """Return arms beside what the paper prints of a model at the same ratio."""
        paper = self._of_data[(self._of_data["of"] == "ratio") & (self._of_data["key"] == model)]
        return _beside(self._measured.loc[arms], paper, "ratio")

    def _of_kind(self, kind: str, rows: pd.DataFrame) -> pd.DataFrame:
        """Return rows beside what the paper prints of the same arm, stratum or alpha."""
        paper = self._of_ratio[self._of_ratio["of"] == kind]
        return _beside(rows.assign(key=rows[kind].astype(str)), paper, "key")

    def _with_gap(self, rows: pd.DataFrame, other: str) -> pd.DataFrame:
        """Add each arm's accuracy minus that of another arm, which has none to itself."""
        gaps = []
        for arm in rows["arm"]:
            others = self._results.right("" if arm == other else other)
            gaps.append(compared(self._results, self._results.right(arm), others))
        return rows.join(pd.DataFrame(gaps, rows.index, _GAP))

    def _mixtures(self, *, distilled: bool) -> pd.DataFrame:
        """Return the arms of other alphas, each against the method's own."""
        arm_of_alpha = mixtures_of(self._results, distilled=distilled)
        if len(arm_of_alpha) < 2:
            return self._nothing
        middle = self._results.study.method.importance.alpha
        rows = self._measured.loc[list(arm_of_alpha.values())]
        rows = rows.assign(alpha=list(arm_of_alpha), distilled=distilled, against=middle)
        rows = self._of_kind("alpha" if distilled else "arm", rows)
        return self._with_gap(rows, arm_of_alpha.get(middle, ""))

    def _strata(self) -> pd.DataFrame:
        """Return the method's accuracy by stratum, in the paper's order, and over all."""
        present = set(self._results.outcomes["stratum"])
        papers = ["low", "medium", "high"]
        names = [name for name in papers if name in present] + sorted(present - set(papers))
        rows = []
        for name in [*names, "all"]:
            stratum = None if name == "all" else name
            base = accuracy(self._results, BASELINE, stratum=stratum)["accuracy"]
            of_method = accuracy(self._results, METHOD, stratum=stratum)
            rows.append({"arm": METHOD, "stratum": name, "baseline": base, **of_method})
        return self._of_kind("stratum", pd.DataFrame(rows))

    def _arms(self) -> pd.DataFrame:
        """Return the paper's arms against the method."""
        rows = self._measured.loc[[arm for arm in ARMS if arm in self._tested]]
        return self._with_gap(self._of_kind("arm", rows), METHOD)

    def _variations(self) -> pd.DataFrame:
        """Return variations that are neither a ratio nor a mixture, against the method."""
        elsewhere = set(self._ratios)
        for distilled in (True, False):
            elsewhere.update(mixtures_of(self._results, distilled=distilled).values())
        changes = {
            arm: changed
            for arm, changed in self._results.study.variations.items()
            if arm not in elsewhere
        }
        arms = [arm for arm in (METHOD, *changes) if arm in self._tested] if changes else []
        rows = self._measured.loc[arms]
        told = [_settings_text(changes.get(arm, {})) for arm in rows.index]
        return self._with_gap(rows.assign(changed=told), METHOD)

    def _knee(self) -> pd.DataFrame:
        """Return the ratios with the one at which the method breaks down, if that is known."""
        broken = knee(self._results)
        return self._measured.loc[self._ratios if broken else []].assign(**broken)

    def _quantisation(self) -> pd.DataFrame:
        """Return the arms that were also tested with 8-bit weights, both ways."""
        rows = [
            _measured(self._results, arm, quantised)
            for arm in self._results.study.int8
            for quantised in (False, True)
            if not self._results.tested(arm, quantised).empty
        ]
        return pd.DataFrame(rows)

    def _speed(self) -> pd.DataFrame:
        """Return the measured passes, with their time and FLOPs against the unpruned model's."""
        rows = self._results.measurements
        unpruned = rows[(rows["arm"] == BASELINE) & ~rows["quantised"]]
        keys = ["tokens", "batch"]
        timed = rows.merge(unpruned[[*keys, "seconds", "flops"]], "left", keys, suffixes=("", "_0"))
        faster = timed["seconds_0"] / timed["seconds"] - 1
        return timed.assign(faster=faster, flops_removed=1 - timed["flops"] / timed["flops_0"])


def _beside(rows: pd.DataFrame, paper: pd.DataFrame, on: str) -> pd.DataFrame:
    """Return rows beside the paper's printed numbers, matched by a column."""
    printed = paper.set_index(on).filter(like="published_").reindex(rows[on])
    return rows.join(printed.set_axis(rows.index))


def _measured(results: StudyResults, arm: str, quantised: bool = False) -> dict[str, Any]:
    """Return an arm's accuracy and savings."""
    told = {"arm": arm, "ratio": results.settings[arm].ratio, "quantised": quantised}
    return {**told, **accuracy(results, arm, quantised), **savings(results, arm, quantised)}


def _settings_text(changes: Mapping[str, Any], path: str = "") -> str:
    """Return changed settings as text: ``importance.alpha: 0.3``."""
    texts = []
    for key, value in changes.items():
        if isinstance(value, Mapping):
            texts.append(_settings_text(value, f"{path}{key}."))
        else:
            texts.append(f"{path}{key}: {value}")
    return "; ".join(texts)


def knee(results: StudyResults) -> dict[str, float]:
    """Return where the method breaks down; empty without a baseline, two ratios and enough examples
    for an interval.
    """
    arm_of_ratio = ratios_of(results)
    if len(arm_of_ratio) < 2 or BASELINE not in results.settings:
        return {}
    ratios = np.array(list(arm_of_ratio))
    base = results.right(BASELINE)
    if base.shape[1] < LEAST:
        return {}
    changes = np.stack(
        [(results.right(arm) - base).to_numpy() for arm in arm_of_ratio.values()], axis=-1
    )
    seeds, examples, _ = changes.shape
    resampled = bootstrap(seeds, examples, results.seed)
    kept = np.where(resampled.means(changes) >= -NOTABLE, ratios, 0).max(axis=-1)
    low, high = np.quantile(kept, TAILS, method="nearest")
    reached = np.where(changes.mean(axis=(0, 1)) >= -NOTABLE, ratios, 0).max()
    return {"knee": float(reached), "knee_low": float(low), "knee_high": float(high)}


def _cost(results: StudyResults, measured: Any) -> dict[str, Any]:
    runs = results.histories[measured.arm].values()
    rounds, seconds = [run["rounds"] for run in runs], [run["seconds"] for run in runs]
    return {
        "arm": measured.arm,
        "seeds": len(seconds),
        "rounds": np.mean([len(rounds_of_seed) for rounds_of_seed in rounds]),
        "epochs": np.mean(
            [
                sum(len(pruning_round["epochs"]) for pruning_round in rounds_of_seed)
                for rounds_of_seed in rounds
            ]
        ),
        "tokens": np.mean([run["tokens"] for run in runs]),
        "seconds": np.mean(seconds),
        "device_hours": sum(seconds) / 3600,
        "warned": "; ".join(warnings(results, measured._asdict())),
    }


def warnings(results: StudyResults, measured: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a user should look at in an arm: lost accuracy, lost time, unstable training.

    Accuracy and time are spoken of as in the verdict: against the same control, and where the
    interval of a time is narrow.
    """
    column, beside = control(measured)
    change, low, high = (measured[f"{column}{end}"] for end in ("", "_low", "_high"))
    if change < -NOTABLE:
        interval = f"95% interval {points(low)} to {points(high)}"
        about = f"{measured['n']} examples" if measured["n"] < LEAST else interval
        advice = advised(
            measured["heads_removed"], results.settings[measured["arm"]].importance.criterion
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
    for seed, history in results.histories[measured["arm"]].items():
        for warning in history["warnings"]:
            seeds[warning].append(seed)
    for warning, warned_seeds in seeds.items():
        yield f"seed {', '.join(map(str, warned_seeds))}: {warning}"
