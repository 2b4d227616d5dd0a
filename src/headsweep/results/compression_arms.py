"""A run's compressions: each arm's accuracy and savings. Shares are fractions: 0.25 is 25%."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd

from headsweep.config import Study
from headsweep.config.compression import Compression
from headsweep.config.experiments import BASELINE
from headsweep.config.experiments import arm as arm_of
from headsweep.files import paths
from headsweep.files.record import read_json
from headsweep.files.tables import STUDY_OUTCOMES
from headsweep.results.facts import read_csv
from headsweep.results.published import DATA, ENCODERS, EncoderShape, published_solver
from headsweep.statistics.intervals import SeedBootstrap, paired_interval, wilson
from headsweep.store.layout import Store

TRAINED_ON = "trained_on"
"""The arm that makes as many steps as the method with all heads: what pruning is held against."""

MEASUREMENT_COLUMNS = [
    "arm",
    "quantised",
    "tokens",
    "batch",
    "seconds",
    "parameters",
    "whole_parameters",
    "flops",
    "weight_bytes",
    "peak_bytes",
]
"""Columns of speed and size, one row per arm, quantised or not, text length and batch size."""

LEAST = 20
"""Examples below which no interval is given: resamples of a few are too narrow, of one alike."""

CHANGE = ["change", "change_low", "change_high"]
AGAINST_TRAINED = ["change_trained", "change_trained_low", "change_trained_high"]
ARM_ACCURACY = [
    "n",  # examples
    "seeds",
    "accuracy",  # strict, mean over seeds
    "sd",  # of strict accuracy over seeds; empty for one
    "low",
    "high",
    "lenient",
    *CHANGE,  # from the baseline on the same seeds and examples
    *AGAINST_TRAINED,  # from `TRAINED_ON`: training longer is not taken for an effect of pruning
]
"""Columns. Below `LEAST` examples there are no intervals."""

TEST_TIME = ["test_time", "test_time_low", "test_time_high"]
SAVINGS = [
    "heads_removed",
    "heads",
    "parameters_removed",  # share of the encoder's
    "parameters_at_most",  # the removed heads' share, by arithmetic
    "whole_removed",  # share of the whole solver's parameters
    "flops_removed",
    "faster_small",  # t0 / t1 - 1 of a pass at the smallest batch
    "saved_small",  # 1 - t1 / t0
    "faster_large",  # likewise at the largest batch
    "saved_large",
    "weight_removed",  # share of the bytes of weights
    "peak_removed",  # share of peak memory
    *TEST_TIME,  # t1 / t0 of the whole test
]

_RESAMPLES = 2000


def control(row: Mapping[str, Any] | pd.Series) -> tuple[str, str]:
    """Return the column of an arm's change of accuracy that counts, and what it is held against.

    That is as many steps with all heads: what pruning costs, training longer aside. Where that was
    not run, it is the original: unpruned, and not trained further. A row has the columns
    `ARM_ACCURACY`.
    """
    if pd.isna(row["change_trained"]):
        return "change", "the original"
    return "change_trained", "training as long"


@dataclass(frozen=True, eq=False)
class StudyResults:
    """One compression of a run with all its results."""

    name: str
    study: Study
    outcomes: pd.DataFrame
    """Rows of `headsweep.files.tables.STUDY_OUTCOMES`."""
    histories: Mapping[str, Mapping[int, Mapping[str, Any]]]
    """By arm and seed: `headsweep.experiments.compression.rounds.History` as JSON."""
    measurements: pd.DataFrame
    """Columns `MEASUREMENT_COLUMNS`."""
    seed: int = 0
    """Seed of the resamples."""
    papers_data: str | None = None
    """The data's name in the paper, if the paper uses it."""
    papers_model: str | None = None
    """The solver's name in the paper, if it has the paper's encoder."""
    encoder: EncoderShape | None = None
    """The encoder's shape, if known."""

    @cached_property
    def settings(self) -> dict[str, Compression]:
        """The settings of each arm that was tested, in the order of the config."""
        tested = set(self.outcomes["arm"])
        return {arm: settings for arm, settings in self.study.settings.items() if arm in tested}

    def tested(self, arm: str, quantised: bool = False, stratum: str | None = None) -> pd.DataFrame:
        """Return the outcomes of an arm, as trained or with 8-bit weights, of a stratum or all."""
        rows = self.outcomes
        rows = rows[(rows["arm"] == arm) & (rows["quantised"] == quantised)]
        return rows if stratum is None else rows[rows["stratum"] == stratum]

    def right(self, arm: str, quantised: bool = False, stratum: str | None = None) -> pd.DataFrame:
        """Return which answers are right, as 0 or 1, [seeds, examples]."""
        rows = self.tested(arm, quantised, stratum)
        return rows.pivot(index="seed", columns="example_id", values="strict").astype(float)

    def first_history(self, arm: str) -> Mapping[str, Any]:
        """Return the arm's history under the first seed, whose sizes and times are measured."""
        history_of_seed = self.histories[arm]
        return history_of_seed[min(history_of_seed, key=self.study.seeds.index)]


def ratios_of(results: StudyResults) -> dict[float, str]:
    """Return the arms that differ from the method only in their ratio, in ascending order."""
    method = results.study.method
    arm_of_ratio = {
        settings.ratio: name
        for name, settings in results.settings.items()
        if settings.model_copy(update={"ratio": method.ratio}).decisive() == method.decisive()
    }
    return {ratio: arm_of_ratio[ratio] for ratio in sorted(arm_of_ratio) if ratio > 0}


def mixtures_of(results: StudyResults, *, distilled: bool) -> dict[float, str]:
    """Return the arms that differ only in alpha, in ascending order, from the method if `distilled`
    and else from `pruning_only`.
    """
    method = results.study.method if distilled else arm_of("pruning_only", results.study.method)
    if method.importance.criterion != "mixed":
        return {}
    arm_of_alpha = {}
    for name, settings in results.settings.items():
        middle = settings.importance.model_copy(update={"alpha": method.importance.alpha})
        if settings.model_copy(update={"importance": middle}).decisive() == method.decisive():
            arm_of_alpha[settings.importance.alpha] = name
    return dict(sorted(arm_of_alpha.items()))


def causal_arm(study: Study) -> str | None:
    """Return the arm that differs from the method only in that its scores are causal, if any."""
    method = study.method
    scores = method.importance.model_copy(update={"criterion": "causal"})
    wanted = method.model_copy(update={"importance": scores}).decisive()
    if wanted == method.decisive():
        return None
    alike = (name for name, settings in study.settings.items() if settings.decisive() == wanted)
    return next(alike, None)


def read_results(store: Store, compression: str) -> StudyResults:
    """Read a compression of a run.

    Raises:
        TableError: a file is missing or damaged.
    """
    config = store.config
    study = config.compressions[compression]
    file = partial(store.path, compression=compression)
    problems = config.problems.get(study.data or "")
    encoder = config.solver_of(study).encoder if study.solver is not None else None
    papers = published_solver(encoder.source) if encoder else None
    shape = ENCODERS.get(papers or "")
    if encoder is not None and encoder.source is None:
        shape = EncoderShape(encoder.layers, encoder.width, encoder.heads, encoder.intermediate)
    return StudyResults(
        name=compression,
        study=study,
        outcomes=store.read(STUDY_OUTCOMES, compression=compression),
        histories={
            arm: {int(seed): history for seed, history in runs.items()}
            for arm, runs in read_json(file(paths.HISTORIES)).items()
        },
        measurements=read_csv(file(paths.MEASUREMENTS), MEASUREMENT_COLUMNS),
        seed=config.seed,
        papers_data=DATA.get(problems.dataset) if problems else None,
        papers_model=papers if problems else None,
        encoder=shape,
    )


def accuracy(
    results: StudyResults, arm: str, quantised: bool = False, stratum: str | None = None
) -> dict[str, Any]:
    """Return the columns `ARM_ACCURACY` of an arm, compared with the unquantised baseline."""
    right = results.right(arm, quantised, stratum)
    seeds, examples = right.shape
    mean, low, high = compared(results, right)

    def against(other: str) -> tuple[float, float, float]:
        if arm == other and not quantised:
            return np.nan, np.nan, np.nan
        return compared(results, right, results.right(other, stratum=stratum))

    return {
        "n": examples,
        "seeds": seeds,
        "accuracy": mean,
        "sd": right.mean(axis=1).std(),
        "low": low,
        "high": high,
        "lenient": results.tested(arm, quantised, stratum)["lenient"].mean(),
        **dict(zip(CHANGE, against(BASELINE), strict=True)),
        **dict(zip(AGAINST_TRAINED, against(TRAINED_ON), strict=True)),
    }


def compared(
    results: StudyResults, right: pd.DataFrame, other: pd.DataFrame | float = 0.0
) -> tuple[float, float, float]:
    """Return the mean of [seeds, examples] outcomes, or of their differences to others over common
    cells, and its 95% interval; NaN of none, and for the interval of fewer than `LEAST` examples.
    """
    values = right.sub(other).dropna(how="all").dropna(axis=1, how="all").to_numpy()
    if not values.size:
        return np.nan, np.nan, np.nan
    if values.shape[1] < LEAST:
        return float(values.mean()), np.nan, np.nan
    mean = float(values.mean())
    if values.min() < values.max():
        low, high = bootstrap(*values.shape, results.seed).interval(values)
        return mean, float(low), float(high)
    # Resamples of equal outcomes do not vary, but other examples might have another outcome.
    if isinstance(other, pd.DataFrame):
        (low,), (high,) = paired_interval(values.mean(axis=0)[:, None])
    else:
        examples = np.array(values.shape[1])
        low, high = wilson(mean * examples, examples)
    return mean, float(low), float(high)


@lru_cache(maxsize=8)
def bootstrap(seeds: int, examples: int, seed: int) -> SeedBootstrap:
    """Return the resamples, shared by all tables of a shape."""
    return SeedBootstrap(seeds, examples, _RESAMPLES, seed)


_SIZES = {
    "parameters_removed": "parameters",
    "whole_removed": "whole_parameters",
    "flops_removed": "flops",
    "weight_removed": "weight_bytes",
}
"""Savings that follow from how many heads are gone, with the sizes that are measured."""


def savings(results: StudyResults, arm: str, quantised: bool = False) -> dict[str, Any]:
    """Return the columns `SAVINGS` of an arm, but for those that were not measured.

    Layers are alike, so sizes fall by as much with each head: those of an arm that was not measured
    follow from an arm that was. If several text lengths were measured, the first one counts.
    """
    removed = _removed(results, arm)
    columns = {"heads_removed": removed, "heads": results.first_history(arm)["heads"]}
    rows = results.measurements
    if rows.empty:
        return columns
    first_length = rows["tokens"].iloc[0]
    rows = rows[rows["tokens"] == first_length].sort_values("batch")
    of_arm, of_baseline = (
        rows[(rows["arm"] == name) & (rows["quantised"] == bits)]
        for name, bits in ((arm, quantised), (BASELINE, False))
    )
    if of_baseline.empty:
        return columns
    unpruned = of_baseline.max(numeric_only=True)
    if results.encoder is not None:
        removed_parameters = removed * results.encoder.head_parameters
        columns["parameters_at_most"] = removed_parameters / unpruned["parameters"]
    if of_arm.empty:
        return columns if quantised else columns | _by_heads(results, rows, unpruned, arm)
    most = of_arm.max(numeric_only=True)
    cut = 1 - most.div(unpruned)
    for size, place in (("small", 0), ("large", -1)):
        ratio = of_baseline["seconds"].iloc[place] / of_arm["seconds"].iloc[place]
        columns |= {f"faster_{size}": ratio - 1, f"saved_{size}": 1 - 1 / ratio}
    return {
        **columns,
        **{saving: cut[measured] for saving, measured in _SIZES.items()},
        "peak_removed": cut["peak_bytes"],
        **most.filter(like="test_time"),
    }


def _removed(results: StudyResults, arm: str) -> int:
    """Return how many heads an arm removed under the first seed."""
    history = results.first_history(arm)
    left = history["rounds"][-1]["heads"] if history["rounds"] else history["heads"]
    return int(history["heads"] - left)


def _by_heads(
    results: StudyResults, rows: pd.DataFrame, unpruned: pd.Series, arm: str
) -> dict[str, float]:
    """Return the sizes that an arm saves, from a measured arm that prunes alike; none without."""
    removed = _removed(results, arm)
    if not removed:
        return dict.fromkeys(_SIZES, 0.0)
    unit = results.settings[arm].importance.unit
    for other, settings in results.settings.items():
        heads = _removed(results, other)
        measured = rows[(rows["arm"] == other) & ~rows["quantised"]]
        if heads and len(measured) and settings.importance.unit == unit:
            cut = 1 - measured.max(numeric_only=True).div(unpruned)
            return {saving: cut[size] * removed / heads for saving, size in _SIZES.items()}
    return {}
