"""What is to be compressed: the arms of each compression, and where their files lie."""

from dataclasses import dataclass, replace
from typing import Any

from headroom import paths
from headroom.config import Config, Study
from headroom.config.compression import Compression, Encoder, Solver
from headroom.errors import ConfigError
from headroom.planning.batches import every_head
from headroom.planning.keys import arm_key, encoder_key, study_keys
from headroom.planning.store import Store
from headroom.variants import BASE, Variant


@dataclass(frozen=True)
class Arm:
    """One arm of a compression, and where its files lie."""

    study: Study
    name: str
    settings: Compression
    subject: str
    data: str
    """Keys of what is compressed and of its data."""

    @property
    def key(self) -> str:
        """The arm's own key."""
        return arm_key(self.study, self.name, self.settings)

    @property
    def wildcards(self) -> dict[str, str]:
        """What fills the templates of the arm's files, the seed excepted."""
        return {"subject": self.subject, "data": self.data, "arm": self.key}

    def file(self, template: str, seed: int) -> str:
        """Return a file of the arm, or of the solver that it starts from."""
        return template.format(seed=seed, solver=self.subject, **self.wildcards)

    def layout(self) -> "Arm | None":
        """Return the arm whose heads an arm from scratch takes over; None for all others."""
        if not self.settings.scratch:
            return None
        wanted = self.study.pruned(self.settings)
        alike = (
            name
            for name, settings in self.study.settings.items()
            if settings.decisive() == wanted.decisive()
        )
        return replace(self, name=next(alike, "full"), settings=wanted)

    def every_head(self, config: Config) -> list[Variant]:
        """Return the variants whose answers rank the heads, where the criterion asks for them."""
        if self.study.model is None or not self.settings.causal:
            return []
        return every_head(config.models[self.study.model])


def arms(config: Config, compression: str) -> list[Arm]:
    """Return the arms of a compression, in the order of the config."""
    study = config.compressions[compression]
    keys = study_keys(config, study)
    return [Arm(study, name, settings, **keys) for name, settings in study.settings.items()]


def histories(config: Config, compression: str) -> list[str]:
    """Return the files that say that the arms of a compression are done: one an arm and seed."""
    seeds = config.compressions[compression].seeds
    return [arm.file(paths.HISTORY, seed) for arm in arms(config, compression) for seed in seeds]


def teachers(config: Config, study: Study) -> list[dict[str, Any]]:
    """Return the keys of the solvers that a study starts from, one a seed; none of a model."""
    keys = study_keys(config, study)
    seeds = study.seeds if study.solver else ()
    return [{"solver": keys["subject"], "data": keys["data"], "seed": seed} for seed in seeds]


def solvers(config: Config) -> dict[tuple[str, str], Study]:
    """Return the studies that start from a solver, by the keys of solver and data."""
    found = {}
    for study in config.compressions.values():
        if study.solver is not None:
            keys = study_keys(config, study)
            found[keys["subject"], keys["data"]] = study
    return found


def find_solver(config: Config, solver: str, data: str) -> tuple[Solver, str]:
    """Return the settings of the solver with a key on the data with a key, and the data's name.

    Raises:
        ConfigError: the config has no such solver.
    """
    study = solvers(config).get((solver, data))
    if study is None:
        raise ConfigError(f"no compression of this config has solver {solver!r} on {data!r}")
    return config.solver_of(study), str(study.data)


def find_encoder(config: Config, encoder: str) -> Encoder:
    """Return the pretrained encoder with a key.

    Raises:
        ConfigError: the config has no such encoder.
    """
    for solver in config.solvers.values():
        if solver.encoder.source is not None and encoder_key(solver.encoder) == encoder:
            return solver.encoder
    raise ConfigError(f"no encoder of this config has key {encoder!r}")


def all_arms(config: Config) -> dict[tuple[str, str, str], Arm]:
    """Return every arm to be run, by its keys: those of all compressions, each once.

    Among them are those whose heads another takes over.
    """
    found = [arm for name in config.compressions for arm in arms(config, name)]
    found += [layout for arm in found if (layout := arm.layout()) is not None]
    return {(arm.subject, arm.data, arm.key): arm for arm in reversed(found)}


def find_arm(config: Config, subject: str, data: str, arm: str) -> Arm:
    """Return the arm with the given keys.

    Raises:
        ConfigError: the config has no such arm.
    """
    found = all_arms(config).get((subject, data, arm))
    if found is None:
        raise ConfigError(f"no compression of this config has arm {arm!r} of {subject} on {data}")
    return found


def own_answers(config: Config, study: Study, variants: list[Variant]) -> dict[str, str]:
    """Return the files with a model's answers to what it is to learn: its own, and variants'."""
    assert study.model is not None and study.train is not None
    names = {"model": study.model, "decoding": study.decoding, "questions": study.train}
    template = Store(config).fill(paths.ANSWERS, **names)
    return {str(each): template.format(variant=each) for each in [BASE, *variants]}
