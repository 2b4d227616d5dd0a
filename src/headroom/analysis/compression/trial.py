"""What a run measured of a compression: outcomes of all arms and seeds, histories, measurements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from headroom import paths
from headroom.analysis.audit import ENCODERS, Encoder
from headroom.analysis.sheet import read_csv
from headroom.analysis.text import short
from headroom.config import Config, Study
from headroom.config.compression import Compression
from headroom.config.study import arm
from headroom.record import read_json
from headroom.tables import STUDY_OUTCOMES, read_table

BASELINE, METHOD = "baseline", "full"
"""The arm that loses no head, and the arm that the others change."""

MEASUREMENTS = ["arm", "quantised", "tokens", "batch", "seconds", "seconds_low", "seconds_high"]
MEASUREMENTS += ["heads", "parameters", "layer_parameters", "whole_parameters", "flops"]
MEASUREMENTS += ["flops_counted", "weight_bytes", "peak_bytes", "end_to_end_seconds"]
"""Columns of speed and size, a row for each arm, number of bits, length and batch size."""

History = Mapping[str, Any]
"""How one arm went under one seed, as `headroom.compression.rounds.History` notes it."""

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
    """One compression of a run, and all that was measured of it."""

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
    """Decides resamples."""
    papers_data: str | None = None
    """The data's name in the paper, where it has them."""
    papers_model: str | None = None
    """The solver's name in the paper, where its encoder is the paper's."""
    encoder: Encoder | None = None
    """The encoder's shape, where it is known."""

    @cached_property
    def settings(self) -> dict[str, Compression]:
        """The settings of each arm that was tested, in the order of the config."""
        tested = set(self.outcomes["arm"])
        return {arm: own for arm, own in self.study.settings.items() if arm in tested}

    @property
    def title(self) -> str:
        """What was compressed, and where it was tested."""
        return f"{short(self.subject, 30)} on {short(self.data, 30)}"

    def right(
        self,
        arm: str,
        *,
        quantised: bool = False,
        stratum: str | None = None,
        lenient: bool = False,
    ) -> pd.DataFrame:
        """Return which answers are right: a row a seed, a column an example; 0 or 1.

        Args:
            arm: its name.
            quantised: whether its weights have eight bits.
            stratum: of the examples; None for all of them.
            lenient: whether answers are compared to fewer digits.
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
        """Return how many heads the arm removed under its first seed, and of how many."""
        history = self.first_history(arm)
        return history["heads"] - self._left(arm)["heads"], history["heads"]

    @property
    def size(self) -> int:
        """Parameters of the whole solver before anything is removed."""
        return int(self.first_history(next(iter(self.settings)))["parameters"])

    def _left(self, arm: str) -> Mapping[str, Any]:
        """Return what was noted last of heads and parameters under the first seed."""
        history = self.first_history(arm)
        return history["rounds"][-1] if history["rounds"] else history

    def first_history(self, arm: str) -> History:
        """Return how the arm went under the first seed, the one that is measured."""
        own = self.histories[arm]
        return own[min(own, key=self.study.seeds.index)]


def label(arm: str) -> str:
    """Return an arm's name as it is shown."""
    return arm.replace("_", " ")


def ratios_of(trial: Trial) -> dict[float, str]:
    """Return the arms that differ from the method in their ratio only, by rising ratio."""
    method = trial.study.method
    return dict(
        sorted(
            (own.ratio, arm)
            for arm, own in trial.settings.items()
            if own.ratio > 0 and _alike(own.model_copy(update={"ratio": method.ratio}), method)
        )
    )


def mixtures_of(trial: Trial, *, distilled: bool) -> dict[float, str]:
    """Return the arms that differ in alpha only, by rising alpha.

    They differ so from the method, or, without distillation, from pruning alone.
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
    """Return the files that are read: outcomes, histories, measurements."""
    keys = {"run": config.run, "compression": compression}
    templates = (paths.STUDY_OUTCOMES, paths.HISTORIES, paths.MEASUREMENTS)
    return [Path(template.format(**keys)) for template in templates]
