"""A run's results of one compression: each arm's accuracy against the baseline, and its savings.

Shares are fractions: 0.25 is 25%.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from headroom import paths
from headroom.analysis.audit import ENCODERS, Encoder
from headroom.analysis.sheet import read_csv
from headroom.analysis.text import short
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

    @property
    def title(self) -> str:
        """What was compressed, and on what it was tested."""
        return f"{short(self.subject, 30)} on {short(self.data, 30)}"

    def right(
        self,
        arm: str,
        *,
        quantised: bool = False,
        stratum: str | None = None,
        lenient: bool = False,
    ) -> pd.DataFrame:
        """Return which answers are right, as 0 or 1: one row per seed, one column per example.

        Args:
            arm: name of the arm.
            quantised: whether to take its test with 8-bit weights.
            stratum: stratum of the examples; None for all of them.
            lenient: whether to take the lenient verdicts.
        """
        wide = self._right.get((arm, quantised, "lenient" if lenient else "strict"))
        if wide is None:
            return pd.DataFrame()
        return wide if stratum is None else wide.loc[:, (self._strata == stratum)[wide.columns]]

    @cached_property
    def _right(self) -> dict[tuple[str, bool, str], pd.DataFrame]:
        return {
            (str(arm), bool(quantised), verdict): rows.pivot(
                index="seed", columns="example_id", values=verdict
            ).astype(float)
            for (arm, quantised), rows in self.outcomes.groupby(["arm", "quantised"])
            for verdict in ("strict", "lenient")
        }

    @cached_property
    def _strata(self) -> pd.Series:
        return self.outcomes.drop_duplicates("example_id").set_index("example_id")["stratum"]

    def heads(self, arm: str) -> tuple[int, int]:
        """Return how many heads the arm removed under its first seed, and how many there were."""
        history = self.first_history(arm)
        return history["heads"] - self._left(arm)["heads"], history["heads"]

    @property
    def size(self) -> int:
        """Parameters of the whole unpruned solver."""
        return int(self.first_history(next(iter(self.settings)))["parameters"])

    def _left(self, arm: str) -> Mapping[str, Any]:
        """Return the last record of heads and parameters under the first seed."""
        history = self.first_history(arm)
        return history["rounds"][-1] if history["rounds"] else history

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
    return dict(
        sorted(
            (own.ratio, arm)
            for arm, own in trial.settings.items()
            if own.ratio > 0 and _alike(own.model_copy(update={"ratio": method.ratio}), method)
        )
    )


def mixtures_of(trial: Trial, *, distilled: bool) -> dict[float, str]:
    """Return the arms that differ only in alpha, in ascending order, from the method if `distilled`
    and else from `pruning_only`.
    """
    method = trial.study.method if distilled else arm("pruning_only", trial.study.method)
    middle = method.importance.alpha
    found = {}
    for name, own in trial.settings.items() if method.importance.criterion == "mixed" else ():
        importance = own.importance.model_copy(update={"alpha": middle})
        if _alike(own.model_copy(update={"importance": importance}), method):
            found[own.importance.alpha] = name
    return dict(sorted(found.items()))


def _alike(first: Compression, second: Compression) -> bool:
    return first.decisive() == second.decisive()


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


def read_trials(config: Config) -> list[Trial]:
    """Read all compressions of a run, in the order of the config."""
    return [read_trial(config, name) for name in config.compressions]


def sources(config: Config, compression: str) -> Sequence[Path]:
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
SAVINGS += ["apart_small", "apart_large"]
SAVINGS += ["weight_removed", "peak_bytes", "peak_removed", "end_to_end", "end_to_end_faster"]
SAVINGS += ["test_time", "test_time_low", "test_time_high"]
"""Columns: heads; the encoder's parameters, the share removed and the removed heads' share by
arithmetic; the whole solver's parameters and the share removed; the share of FLOPs removed, and the
speed-up if time were proportional to FLOPs; at the smallest and the largest batch the seconds of a
pass, t0 / t1 - 1, 1 - t1 / t0, and whether the interquartile ranges of the timings are disjoint;
bytes of weights; peak memory of a fresh process; seconds of the whole test, its t0 / t1 - 1,
and t1 / t0 with an interval, timed in turns."""

RESAMPLES = 2000


class Difference(NamedTuple):
    """A difference of two accuracies on the same seeds and examples, and its 95% interval."""

    value: float
    low: float
    high: float
    seeds: int
    n: int


@lru_cache(maxsize=1024)
def accuracy(
    trial: Trial, arm: str, *, quantised: bool = False, stratum: str | None = None
) -> Mapping[str, Any]:
    """Return the columns `ACCURACY` of an arm, compared with the baseline that is not quantised."""
    own = trial.right(arm, quantised=quantised, stratum=stratum)
    values = own.to_numpy()
    low, high = bootstrap(*values.shape, trial.seed).interval(values)
    lenient = trial.right(arm, quantised=quantised, stratum=stratum, lenient=True)
    base = trial.right(BASELINE, stratum=stratum)
    change: tuple[float, ...] = (np.nan, np.nan, np.nan)
    if not base.empty and (arm != BASELINE or quantised):
        change = compared(own, base, trial.seed)[:3]
    mean, lenient_mean = values.mean(), lenient.to_numpy().mean()
    found = (*values.shape[::-1], mean, spread(values), float(low), float(high), lenient_mean)
    return dict(zip(ACCURACY, (*found, *change), strict=True))


def difference(trial: Trial, arm: str, other: str) -> Difference:
    """Return the accuracy of an arm minus that of another."""
    return compared(trial.right(arm), trial.right(other), trial.seed)


def difference_of_changes(first: Trial, second: Trial, arm: str) -> Difference:
    """Return an arm's change against the baseline in the second trial minus that in the first.

    Both are tested on the same data. Seeds are paired by number; trainings of different solvers
    are independent, so the pairing is arbitrary.
    """
    own, other = (
        trial.right(arm).sub(trial.right(BASELINE)).dropna(how="all").dropna(axis=1)
        for trial in (second, first)
    )
    return compared(own, other, first.seed)


def compared(own: pd.DataFrame, other: pd.DataFrame, seed: int) -> Difference:
    """Return the mean difference of two [seeds, examples] tables over their common cells."""
    values = paired(own, other)
    low, high = bootstrap(*values.shape, seed).interval(values)
    return Difference(float(values.mean()), float(low), float(high), *values.shape)


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
    most = pd.concat([own.max(numeric_only=True), base.max(numeric_only=True)], axis=1)
    left = (most[0] / most[1]).to_dict()
    for column, name in (
        ("parameters", "parameters"),
        ("whole_parameters", "whole"),
        ("weight_bytes", "weight"),
        ("peak_bytes", "peak"),
    ):
        found[f"{name}_removed"] = 1 - left[column]
        found[name if name in found else f"{name}_bytes"] = most[0][column]
    for size, row in (("small", 0), ("large", -1)):
        before, after = base.iloc[row], own.iloc[row]
        ratio = before["seconds"] / after["seconds"]
        found[f"{size}_batch"] = int(after["batch"])
        found[f"seconds_{size}"] = after["seconds"]
        found[f"faster_{size}"], found[f"saved_{size}"] = ratio - 1, 1 - 1 / ratio
        found[f"apart_{size}"] = bool(  # disjoint interquartile ranges
            after["seconds_high"] < before["seconds_low"]
            or after["seconds_low"] > before["seconds_high"]
        )
    if trial.encoder is not None:
        held = removed * trial.encoder.head_parameters
        found["parameters_at_most"] = held / most[1]["parameters"]
    return found | {
        "flops_removed": 1 - own["flops"].iloc[0] / base["flops"].iloc[0],
        "speedup_at_most": base["flops"].iloc[0] / own["flops"].iloc[0] - 1,
        "end_to_end": most[0]["end_to_end_seconds"],
        "end_to_end_faster": 1 / left["end_to_end_seconds"] - 1,
        **most[0].reindex(["test_time", "test_time_low", "test_time_high"]),
    }


def _measured(trial: Trial, arm: str, quantised: bool) -> pd.DataFrame:
    """Return an arm's measurements at the first length, by ascending batch size."""
    rows = trial.measurements
    own = rows[(rows["arm"] == arm) & (rows["quantised"] == quantised)]
    return own[own["tokens"] == rows["tokens"].iloc[0]].sort_values("batch") if len(own) else own
