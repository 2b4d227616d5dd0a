"""A run's results of one compression: each arm's accuracy against the baseline, and its savings.

Shares are fractions: 0.25 is 25%.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headroom import paths
from headroom.analysis.audit import ENCODERS, Encoder
from headroom.analysis.files import read_csv
from headroom.config import Config, Study
from headroom.config.compression import Compression
from headroom.config.study import arm
from headroom.record import read_json
from headroom.statistics.bootstrap import SeedBootstrap, spread
from headroom.tables import STUDY_OUTCOMES, read_table

BASELINE, METHOD = "baseline", "full"
"""The arm without pruning, and the arm of which the others are variations."""

MEASUREMENTS = ["arm", "quantised", "tokens", "batch", "seconds", "seconds_low", "seconds_high"]
MEASUREMENTS += ["heads", "parameters", "layer_parameters", "whole_parameters", "flops"]
MEASUREMENTS += ["flops_counted", "weight_bytes", "peak_bytes", "end_to_end_seconds"]
"""Columns of speed and size, one row per arm, quantised or not, text length and batch size."""

History = Mapping[str, Any]
"""The history of one arm under one seed: `headroom.compression.rounds.History` as JSON."""

_PAPERS_DATA = {"math23k": "Math23k", "asdiv_a": "ASDiv-A"}
_PAPERS_MODELS = {
    "roberta-base": "ATHENA-base",
    "chinese-roberta-wwm-ext": "ATHENA-base",
    "roberta-large": "ATHENA-large",
    "chinese-roberta-wwm-ext-large": "ATHENA-large",
}
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

    def right(
        self, arm: str, *, quantised: bool = False, stratum: str | None = None
    ) -> pd.DataFrame:
        """Return which answers are right, as 0 or 1: one row per seed, one column per example.

        Args:
            arm: name of the arm.
            quantised: whether to take its test with 8-bit weights.
            stratum: stratum of the examples; None for all of them.
        """
        rows = self.tested(arm, quantised, stratum)
        return rows.pivot(index="seed", columns="example_id", values="strict").astype(float)

    def tested(self, arm: str, quantised: bool, stratum: str | None) -> pd.DataFrame:
        """Return the outcomes of an arm; see `right`."""
        rows = self._of_arm.get((arm, quantised), self.outcomes.head(0))
        return rows if stratum is None else rows[rows["stratum"] == stratum]

    @cached_property
    def _of_arm(self) -> dict[Any, pd.DataFrame]:
        return dict(tuple(self.outcomes.groupby(["arm", "quantised"])))

    def heads(self, arm: str) -> tuple[int, int]:
        """Return how many heads the arm removed under its first seed, and how many there were."""
        history = self.first_history(arm)
        left = history["rounds"][-1] if history["rounds"] else history
        return history["heads"] - left["heads"], history["heads"]

    @property
    def size(self) -> int:
        """Parameters of the whole unpruned solver."""
        return int(self.first_history(next(iter(self.settings)))["parameters"])

    def first_history(self, arm: str) -> History:
        """Return the arm's history under the first seed, whose sizes and times are measured."""
        own = self.histories[arm]
        return own[min(own, key=self.study.seeds.index)]


def label(arm: str) -> str:
    """Return an arm's name for display."""
    return arm.replace("_", " ")


def ratios_of(trial: Trial) -> dict[float, str]:
    """Return the arms that differ from the method only in their ratio, in ascending order."""
    method = trial.study.method
    found = {
        own.ratio: arm
        for arm, own in trial.settings.items()
        if own.ratio > 0 and _alike(method, own, ratio=method.ratio)
    }
    return dict(sorted(found.items()))


def mixtures_of(trial: Trial, *, distilled: bool) -> dict[float, str]:
    """Return the arms that differ only in alpha, in ascending order, from the method if `distilled`
    and else from `pruning_only`.
    """
    method = trial.study.method if distilled else arm("pruning_only", trial.study.method)
    if method.importance.criterion != "mixed":
        return {}
    middle = {"alpha": method.importance.alpha}
    found = {
        own.importance.alpha: name
        for name, own in trial.settings.items()
        if _alike(method, own, importance=own.importance.model_copy(update=middle))
    }
    return dict(sorted(found.items()))


def _alike(method: Compression, other: Compression, **update: Any) -> bool:
    return other.model_copy(update=update).decisive() == method.decisive()


def read_trial(config: Config, compression: str) -> Trial:
    """Read a compression of a run.

    Raises:
        TableError: a file is missing or damaged.
    """
    study = config.compressions[compression]
    outcomes, histories, measurements = sources(config, compression)
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


def sources(config: Config, compression: str) -> list[Path]:
    """Return the files of a compression: outcomes, histories, measurements."""
    keys = {"run": config.run, "compression": compression}
    templates = (paths.STUDY_OUTCOMES, paths.HISTORIES, paths.MEASUREMENTS)
    return [Path(template.format(**keys)) for template in templates]


ACCURACY = ["n", "seeds", "accuracy", "sd", "low", "high", "lenient"]
ACCURACY += ["change", "change_low", "change_high"]
"""Columns: examples; seeds; strict accuracy (mean over seeds), its standard deviation over seeds
(empty for one) and its 95% interval; lenient accuracy; difference from the baseline on the same
seeds and examples, with its interval."""

SAVINGS = ["heads_removed", "heads", "parameters", "parameters_removed", "parameters_at_most"]
SAVINGS += ["whole", "whole_removed", "flops_removed", "speedup_at_most"]
SAVINGS += ["small_batch", "seconds_small", "faster_small", "saved_small"]
SAVINGS += ["large_batch", "seconds_large", "faster_large", "saved_large", "weight_bytes"]
SAVINGS += ["weight_removed", "peak_bytes", "peak_removed", "end_to_end", "end_to_end_faster"]
SAVINGS += ["test_time", "test_time_low", "test_time_high"]
"""Columns: heads; the encoder's parameters, the share removed and the removed heads' share by
arithmetic; the whole solver's parameters and the share removed; the share of FLOPs removed, and the
speed-up if time were proportional to FLOPs; at the smallest and the largest batch the seconds of a
pass, t0 / t1 - 1 and 1 - t1 / t0; bytes of weights; peak memory of a fresh process; seconds of the
whole test, its t0 / t1 - 1, and t1 / t0 with an interval, timed in turns."""

RESAMPLES = 2000


@lru_cache(maxsize=1024)
def accuracy(
    trial: Trial, arm: str, *, quantised: bool = False, stratum: str | None = None
) -> Mapping[str, Any]:
    """Return the columns `ACCURACY` of an arm, compared with the baseline that is not quantised."""
    own = trial.right(arm, quantised=quantised, stratum=stratum)
    base = trial.right(BASELINE, stratum=stratum)
    change: tuple[float, ...] = (np.nan, np.nan, np.nan)
    if not base.empty and (arm != BASELINE or quantised):
        change = compared(paired(own, base), trial.seed)
    values = own.to_numpy()
    mean, low, high = compared(values, trial.seed)
    lenient = trial.tested(arm, quantised, stratum)["lenient"].mean()
    found = (*values.shape[::-1], mean, spread(values), low, high, lenient, *change)
    return dict(zip(ACCURACY, found, strict=True))


def difference(trial: Trial, arm: str, other: str) -> tuple[float, float, float]:
    """Return the accuracy of an arm minus that of another, and its 95% interval."""
    return compared(paired(trial.right(arm), trial.right(other)), trial.seed)


def compared(values: np.ndarray, seed: int) -> tuple[float, float, float]:
    """Return the mean of [seeds, examples] differences, and its 95% interval."""
    low, high = bootstrap(*values.shape, seed).interval(values)
    return float(values.mean()), float(low), float(high)


def paired(own: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    """Return the differences of two [seeds, examples] tables over their common cells."""
    first, second = own.align(other, join="inner")
    return np.asarray(first - second)


@lru_cache(maxsize=8)
def bootstrap(seeds: int, examples: int, seed: int) -> SeedBootstrap:
    """Return the resamples, shared by all tables of a shape."""
    return SeedBootstrap(seeds, examples, RESAMPLES, seed)


def savings(trial: Trial, arm: str, *, quantised: bool = False) -> dict[str, Any]:
    """Return the columns `SAVINGS` of an arm, NaN where not measured.

    If several text lengths were measured, the first one counts.
    """
    removed, heads = trial.heads(arm)
    found: dict[str, Any] = dict.fromkeys(SAVINGS, np.nan)
    found |= {"heads_removed": removed, "heads": heads}
    own, base = (_measured(trial, *of) for of in ((arm, quantised), (BASELINE, False)))
    if own.empty or base.empty:
        return found
    most, unpruned = own.max(numeric_only=True), base.max(numeric_only=True)
    for column, name, cut in (
        ("parameters", "parameters", "parameters_removed"),
        ("whole_parameters", "whole", "whole_removed"),
        ("weight_bytes", "weight_bytes", "weight_removed"),
        ("peak_bytes", "peak_bytes", "peak_removed"),
    ):
        found |= {name: most[column], cut: 1 - most[column] / unpruned[column]}
    for size, row in (("small", 0), ("large", -1)):
        before, after = base.iloc[row], own.iloc[row]
        ratio = before["seconds"] / after["seconds"]
        found |= {f"{size}_batch": int(after["batch"]), f"seconds_{size}": after["seconds"]}
        found |= {f"faster_{size}": ratio - 1, f"saved_{size}": 1 - 1 / ratio}
    if trial.encoder is not None:
        held = removed * trial.encoder.head_parameters
        found["parameters_at_most"] = held / unpruned["parameters"]
    left = own["flops"].iloc[0] / base["flops"].iloc[0]
    return found | {
        "flops_removed": 1 - left,
        "speedup_at_most": 1 / left - 1,
        "end_to_end": most["end_to_end_seconds"],
        "end_to_end_faster": unpruned["end_to_end_seconds"] / most["end_to_end_seconds"] - 1,
        **most.reindex(["test_time", "test_time_low", "test_time_high"]),
    }


def _measured(trial: Trial, arm: str, quantised: bool) -> pd.DataFrame:
    """Return an arm's measurements at the first length, by ascending batch size."""
    rows = trial.measurements
    own = rows[(rows["arm"] == arm) & (rows["quantised"] == quantised)]
    return own[own["tokens"] == rows["tokens"].iloc[0]].sort_values("batch") if len(own) else own
