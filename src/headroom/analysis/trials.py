"""A run's compressions: each arm's accuracy and savings, and the second paper's tables.

Tables 1-4, knee, quantisation and cost, beside the paper's numbers. Shares are fractions: 0.25 is
25%. Cells are empty where nothing was measured or published.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headroom.analysis.files import read_csv, rows_of
from headroom.analysis.published import ENCODERS, Encoder
from headroom.analysis.text import percent, points
from headroom.config import Config, Study
from headroom.config.compression import Compression
from headroom.config.study import ARMS
from headroom.config.study import arm as arm_of
from headroom.planning.shown import Shown
from headroom.record import read_json
from headroom.statistics.bootstrap import SeedBootstrap
from headroom.tables import STUDY_OUTCOMES, read_table

BASELINE, METHOD = "baseline", "full"
"""The arm without pruning, and the arm of which the others are variations."""

NOTABLE = 0.015
"""Loss of accuracy (0 to 1) above which a user is warned."""

MEASUREMENTS = ["arm", "quantised", "tokens", "batch", "seconds", "parameters", "whole_parameters"]
MEASUREMENTS += ["flops", "weight_bytes", "peak_bytes"]
"""Columns of speed and size, one row per arm, quantised or not, text length and batch size."""

ACCURACY = ["n", "seeds", "accuracy", "sd", "low", "high", "lenient"]
ACCURACY += ["change", "change_low", "change_high"]
"""Columns: examples; seeds; strict accuracy (mean over seeds), its standard deviation over seeds
(empty for one) and its 95% interval; lenient accuracy; difference from the baseline on the same
seeds and examples, with its interval."""

SAVINGS = ["heads_removed", "heads", "parameters_removed", "parameters_at_most", "whole_removed"]
SAVINGS += ["flops_removed", "speedup_at_most", "faster_small", "saved_small", "faster_large"]
SAVINGS += ["saved_large", "weight_removed", "peak_removed"]
SAVINGS += ["test_time", "test_time_low", "test_time_high"]
"""Columns: heads; the share of the encoder's parameters removed, and the removed heads' share by
arithmetic; the share of the whole solver's; the share of FLOPs, and the speed-up if time were
proportional to them; t0 / t1 - 1 and 1 - t1 / t0 of a pass at the smallest and the largest batch;
the shares of bytes of weights and of peak memory; t1 / t0 of the whole test with its interval."""

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
    "variations": [*_ARM, "changed", "ratio", *ACCURACY, *_GAP],
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

History = Mapping[str, Any]
"""The history of one arm under one seed: `headroom.compression.rounds.History` as JSON."""

_RESAMPLES = 2000
_PAPERS_DATA = {"math23k": "Math23k", "asdiv_a": "ASDiv-A"}
_PAPERS_MODELS = dict.fromkeys(("roberta-base", "chinese-roberta-wwm-ext"), "ATHENA-base")
_PAPERS_MODELS |= dict.fromkeys(("roberta-large", "chinese-roberta-wwm-ext-large"), "ATHENA-large")
"""Encoders of the published solvers, by the last part of their name on the hub."""


@dataclass(frozen=True, eq=False)
class Trial:
    """One compression of a run with all its results."""

    name: str
    subject: str
    """Name of the solver or model."""
    data: str
    """Name of the data that it is tested on."""
    study: Study
    outcomes: pd.DataFrame
    """Rows of `headroom.tables.STUDY_OUTCOMES`."""
    histories: Mapping[str, Mapping[int, History]]
    """By arm and seed."""
    measurements: pd.DataFrame
    """Columns `MEASUREMENTS`."""
    seed: int = 0
    """Seed of the resamples."""
    papers_data: str | None = None
    """The data's name in the paper, if the paper uses it."""
    papers_model: str | None = None
    """The solver's name in the paper, if it has the paper's encoder."""
    encoder: Encoder | None = None
    """The encoder's shape, if known."""

    @cached_property
    def settings(self) -> dict[str, Compression]:
        """The settings of each arm that was tested, in the order of the config."""
        tested = set(self.outcomes["arm"])
        return {arm: own for arm, own in self.study.settings.items() if arm in tested}

    def tested(self, arm: str, quantised: bool = False, stratum: str | None = None) -> pd.DataFrame:
        """Return the outcomes of an arm, as trained or with 8-bit weights, of a stratum or all."""
        rows = self.outcomes
        rows = rows[(rows["arm"] == arm) & (rows["quantised"] == quantised)]
        return rows if stratum is None else rows[rows["stratum"] == stratum]

    def right(self, arm: str, quantised: bool = False, stratum: str | None = None) -> pd.DataFrame:
        """Return which answers are right, as 0 or 1: one row per seed, one column per example."""
        rows = self.tested(arm, quantised, stratum)
        return rows.pivot(index="seed", columns="example_id", values="strict").astype(float)

    def first_history(self, arm: str) -> History:
        """Return the arm's history under the first seed, whose sizes and times are measured."""
        own = self.histories[arm]
        return own[min(own, key=self.study.seeds.index)]


def ratios_of(trial: Trial) -> dict[float, str]:
    """Return the arms that differ from the method only in their ratio, in ascending order."""
    method = trial.study.method
    same = {"ratio": method.ratio}
    found = {own.ratio: name for name, own in trial.settings.items() if _alike(method, own, same)}
    return {ratio: found[ratio] for ratio in sorted(found) if ratio > 0}


def mixtures_of(trial: Trial, *, distilled: bool) -> dict[float, str]:
    """Return the arms that differ only in alpha, in ascending order, from the method if `distilled`
    and else from `pruning_only`.
    """
    method = trial.study.method if distilled else arm_of("pruning_only", trial.study.method)
    if method.importance.criterion != "mixed":
        return {}
    middle = {"alpha": method.importance.alpha}
    found = {
        own.importance.alpha: name
        for name, own in trial.settings.items()
        if _alike(method, own, {"importance": own.importance.model_copy(update=middle)})
    }
    return dict(sorted(found.items()))


def _alike(method: Compression, other: Compression, same: Mapping[str, Any]) -> bool:
    return other.model_copy(update=same).decisive() == method.decisive()


def read_trial(config: Config, compression: str) -> Trial:
    """Read a compression of a run.

    Raises:
        TableError: a file is missing or damaged.
    """
    study = config.compressions[compression]
    outcomes, histories, measurements = map(Path, Shown(config).study_files(compression))
    problems = config.problems.get(study.data or "")
    encoder = config.solver_of(study).encoder if study.solver is not None else None
    papers = _PAPERS_MODELS.get(Path(encoder.source).name) if encoder and encoder.source else None
    shape = ENCODERS.get(papers or "")
    if encoder is not None and encoder.source is None:
        shape = Encoder(encoder.layers, encoder.width, encoder.heads, encoder.intermediate)
    return Trial(
        name=compression,
        subject=study.solver or study.model or "",
        data=study.data or study.test or "",
        study=study,
        outcomes=read_table(outcomes, STUDY_OUTCOMES),
        histories={
            arm: {int(seed): own for seed, own in runs.items()}
            for arm, runs in read_json(histories).items()
        },
        measurements=read_csv(measurements, MEASUREMENTS),
        seed=config.seed,
        papers_data=_PAPERS_DATA.get(problems.dataset) if problems else None,
        papers_model=papers if problems else None,
        encoder=shape,
    )


def accuracy(
    trial: Trial, arm: str, quantised: bool = False, stratum: str | None = None
) -> dict[str, Any]:
    """Return the columns `ACCURACY` of an arm, compared with the baseline that is not quantised."""
    own, base = trial.right(arm, quantised, stratum), trial.right(BASELINE, stratum=stratum)
    if arm == BASELINE and not quantised:
        base = base.head(0)
    mean, change = compared(trial, own), compared(trial, own, base)
    lenient = trial.tested(arm, quantised, stratum)["lenient"].mean()
    found = (*own.shape[::-1], mean[0], own.mean(axis=1).std(), *mean[1:], lenient, *change)
    return dict(zip(ACCURACY, found, strict=True))


def compared(
    trial: Trial, own: pd.DataFrame, other: pd.DataFrame | None = None
) -> tuple[float, float, float]:
    """Return the mean of [seeds, examples] outcomes and its 95% interval; NaN of none.

    With `other` they are those of the differences over common cells.
    """
    if other is not None:
        own = own.sub(other).dropna(how="all").dropna(axis=1, how="all")
    if own.empty:
        return np.nan, np.nan, np.nan
    values = own.to_numpy()
    low, high = bootstrap(*values.shape, trial.seed).interval(values)
    return float(values.mean()), float(low), float(high)


@lru_cache(maxsize=8)
def bootstrap(seeds: int, examples: int, seed: int) -> SeedBootstrap:
    """Return the resamples, shared by all tables of a shape."""
    return SeedBootstrap(seeds, examples, _RESAMPLES, seed)


def savings(trial: Trial, arm: str, quantised: bool = False) -> dict[str, Any]:
    """Return the columns `SAVINGS` of an arm, but for those that were not measured.

    If several text lengths were measured, the first one counts.
    """
    history, rows = trial.first_history(arm), trial.measurements
    last = history["rounds"][-1] if history["rounds"] else history
    removed = history["heads"] - last["heads"]
    found = {"heads_removed": removed, "heads": history["heads"]}
    rows = rows[rows["tokens"].isin(rows["tokens"].head(1))].sort_values("batch")
    own, base = (
        rows[(rows["arm"] == name) & (rows["quantised"] == bits)]
        for name, bits in ((arm, quantised), (BASELINE, False))
    )
    if own.empty or base.empty:
        return found
    most, unpruned = own.max(numeric_only=True), base.max(numeric_only=True)
    cut = 1 - most.div(unpruned)
    for size, place in (("small", 0), ("large", -1)):
        ratio = base["seconds"].iloc[place] / own["seconds"].iloc[place]
        found |= {f"faster_{size}": ratio - 1, f"saved_{size}": 1 - 1 / ratio}
    if trial.encoder is not None:
        held = removed * trial.encoder.head_parameters
        found["parameters_at_most"] = held / unpruned["parameters"]
    return {
        **found,
        "parameters_removed": cut["parameters"],
        "whole_removed": cut["whole_parameters"],
        "flops_removed": cut["flops"],
        "speedup_at_most": 1 / (1 - cut["flops"]) - 1,
        "weight_removed": cut["weight_bytes"],
        "peak_removed": cut["peak_bytes"],
        **most.filter(like="test_time"),
    }


def tables(trials: Sequence[Trial], conditions: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return every table of a run's compressions by name, with `COLUMNS`; some may have no rows.

    The paper's numbers are those of `headroom.analysis.published.conditions`.
    """
    found: dict[str, list[pd.DataFrame]] = {name: [] for name in COLUMNS}
    sizes = defaultdict[str, dict[str, int]](dict)  # of unpruned solvers, by data
    for trial in trials:
        history = trial.first_history(next(iter(trial.settings)))
        sizes[trial.data][trial.subject] = history["parameters"]
    for trial in trials:
        # Of two solvers, the larger one stands beside the paper's larger one.
        alike = sizes[trial.data]
        larger = len(alike) == 2 and alike[trial.subject] > min(alike.values())
        of = {"compression": trial.name, "subject": trial.subject, "data": trial.data}
        for name, table in _tables(trial, conditions, larger).items():
            if len(table):
                found[name].append(table.assign(**of).reindex(columns=COLUMNS[name]))
    return {
        name: pd.concat(parts or [pd.DataFrame(columns=COLUMNS[name])], ignore_index=True)
        for name, parts in found.items()
    }


def _tables(trial: Trial, conditions: pd.DataFrame, larger: bool) -> dict[str, pd.DataFrame]:
    """Return the rows of each table about a compression."""
    tested, method = trial.settings, trial.study.method
    papers = conditions[conditions["data"] == trial.papers_data]
    same = papers[np.isclose(papers["ratio"], method.ratio)]
    measured = pd.DataFrame([_measured(trial, arm) for arm in tested]).set_index("arm", drop=False)

    def beside(rows: pd.DataFrame, paper: pd.DataFrame, on: str) -> pd.DataFrame:
        printed = paper.set_index(on).filter(like="published_").reindex(rows[on])
        return rows.join(printed.set_axis(rows.index))

    def of_model(arms: Iterable[str], model: str) -> pd.DataFrame:
        paper = papers[(papers["of"] == "ratio") & (papers["key"] == model)]
        return beside(measured.loc[list(arms)], paper, "ratio")

    def of(kind: str, rows: pd.DataFrame, on: str) -> pd.DataFrame:
        return beside(rows.assign(key=rows[on].astype(str)), same[same["of"] == kind], "key")

    def gap(rows: pd.DataFrame, other: str) -> pd.DataFrame:
        others = ("" if arm == other else other for arm in rows["arm"])  # none to itself
        pairs = zip(rows["arm"], others, strict=True)
        gaps = [compared(trial, trial.right(arm), trial.right(each)) for arm, each in pairs]
        return rows.join(pd.DataFrame(gaps, rows.index, _GAP))

    def mixtures(*, distilled: bool) -> pd.DataFrame:
        found, middle = mixtures_of(trial, distilled=distilled), method.importance.alpha
        if len(found) < 2:
            return measured.head(0)
        rows = measured.loc[list(found.values())].assign(alpha=list(found), distilled=distilled)
        kind, on = ("alpha", "alpha") if distilled else ("arm", "arm")
        return gap(of(kind, rows.assign(against=middle), on), found.get(middle, ""))

    def strata() -> pd.DataFrame:
        found, order = set(trial.outcomes["stratum"]), ["low", "medium", "high"]  # as in the paper
        there = [name for name in (*order, *sorted(found - set(order))) if name in found]
        rows = []
        for name, asked in [*zip(there, there, strict=True), ("all", None)]:
            base = accuracy(trial, BASELINE, stratum=asked)["accuracy"]
            own = accuracy(trial, METHOD, stratum=asked)
            rows.append({"arm": METHOD, "stratum": name, "baseline": base, **own})
        return of("stratum", pd.DataFrame(rows), "stratum")

    def variations() -> pd.DataFrame:
        others = {*ratios}.union(*(mixtures_of(trial, distilled=d).values() for d in (True, False)))
        changes = {arm: own for arm, own in trial.study.variations.items() if arm not in others}
        rows = measured.loc[[arm for arm in (METHOD, *changes) if changes and arm in tested]]
        return gap(rows.assign(changed=[_told(changes.get(arm, {})) for arm in rows.index]), METHOD)

    both = [arm for arm in (BASELINE, METHOD) if arm in tested]
    ratios, broken = list(ratios_of(trial).values()), knee(trial)
    quantised = [
        _measured(trial, arm, bits)
        for arm in trial.study.int8
        for bits in (False, True)
        if not trial.tested(arm, bits).empty
    ]
    base = trial.papers_model or "ATHENA-base"
    size = "ATHENA-large" if larger and not trial.papers_model else base
    arms = measured.loc[[arm for arm in ARMS if arm in tested]]
    return {
        "table1": of_model([*both[: BASELINE in tested], *ratios], base),
        "table2": of_model(both, size),
        "table3a": pd.concat([mixtures(distilled=True), mixtures(distilled=False)]),
        "table3b": strata() if len(both) == 2 else measured.head(0),
        "table4": gap(of("arm", arms, "arm"), METHOD),
        "variations": variations(),
        "knee": measured.loc[ratios if broken else []].assign(**broken),
        "quantisation": pd.DataFrame(quantised),
        "speed": _speed(trial.measurements),
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


def _speed(rows: pd.DataFrame) -> pd.DataFrame:
    """Return every length and batch at which an arm was timed, against the unpruned model."""
    base = rows[(rows["arm"] == BASELINE) & ~rows["quantised"]]
    base = base[["tokens", "batch", "seconds", "flops"]]
    rows = rows.merge(base, on=["tokens", "batch"], how="left", suffixes=("", "_0"))
    faster, flops = rows["seconds_0"] / rows["seconds"] - 1, rows["flops"] / rows["flops_0"]
    return rows.assign(faster=faster, flops_removed=1 - flops)


def knee(trial: Trial) -> dict[str, float]:
    """Return where the method breaks down; empty without a baseline and two ratios."""
    found = ratios_of(trial)
    if len(found) < 2 or BASELINE not in trial.settings:
        return {}
    ratios, base = np.array(list(found)), trial.right(BASELINE)
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
    """Yield what a user should look at in an arm: lost accuracy, no speed-up, unstable training."""
    change, low, high = (measured[name] for name in ACCURACY[-3:])
    if change < -NOTABLE:
        yield (
            f"accuracy changed by {points(change)} points (95% interval {points(low)} to "
            f"{points(high)}); look at alpha, or lower the ratio"
        )
    batches = {"small": min(trial.study.batches), "large": max(trial.study.batches)}
    faster = {batch: measured.get(f"faster_{size}", 1) for size, batch in batches.items()}
    slow = [f"batch {batch} ({points(own)}%)" for batch, own in faster.items() if own <= 0]
    if slow and measured["heads_removed"]:
        yield (
            f"no speed-up is measured at {' and '.join(slow)}, though {measured['heads_removed']} "
            f"of {measured['heads']} heads are gone, and {percent(measured['parameters_removed'])} "
            "of the encoder's parameters: are heads really removed?"
        )
    seeds = defaultdict(list)
    for seed, history in trial.histories[measured["arm"]].items():
        for warning in history["warnings"]:
            if not warning.startswith("accuracy fell"):  # of the development part: see above
                seeds[warning].append(seed)
    for warning, own in seeds.items():
        yield f"seed {', '.join(map(str, own))}: {warning}"
