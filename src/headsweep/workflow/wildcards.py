"""The wildcards of a config's jobs: their values, and what these stand for.

Snakemake's own objects (wildcards) are untyped.
"""

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any, get_args

from headsweep.config import EXPERIMENTS, Preset, Study
from headsweep.config.compression import Compression
from headsweep.files.paths import BatchKeys
from headsweep.store.batches import Arm, Batch, all_arms, batches, encoders, solvers
from headsweep.store.layout import Store
from headsweep.store.looks import heads_key
from headsweep.store.map_scores import layer_name, map_layers, texts_key
from headsweep.variants import pattern


class WildcardLookup:
    """Looks up batches, arms and studies of a resolved config by the wildcards of a job."""

    def __init__(self, store: Store) -> None:
        self.config = store.config
        self.store = store
        self.batches = batches(store)
        self.arms = all_arms(store.config)
        self.solvers = solvers(store.config)
        self.problem_keys = sorted(store.key("data", name) for name in store.config.problems)

    @cached_property
    def values(self) -> dict[str, list[str]]:
        """The values of each wildcard that stands for a name or a key."""
        config = self.config
        experiments = {
            section.removesuffix("s"): [*getattr(config, section)] for section in EXPERIMENTS
        }
        sections: dict[str, Iterable[str]] = {
            "model": config.models,
            "questions": config.questions,
            "decoding": config.decodings,
            "embedder": config.embedders,
            "source": config.questions,
        }
        keys: dict[str, list[str]] = {}
        for wildcard, names in sections.items():
            every = (self.store.key(wildcard, name) for name in names)
            keys[wildcard] = list(dict.fromkeys(every))  # several sets may be drawn from a source
        arms = self.arms.values()
        compressed = {
            "data": sorted({arm.data for arm in arms}.union(self.problem_keys)),
            "subject": sorted({arm.subject for arm in arms}),
            "arm": sorted({arm.key for arm in arms}),
            "solver": sorted({solver for solver, _ in self.solvers}),
            "encoder": [*encoders(config)],
        }
        keys["heads"] = sorted({heads_key(config, name) for name in config.sweeps})
        mapped_layers = {layer for name in config.maps for layer in map_layers(config, name)}
        mapped = {
            "texts": list(dict.fromkeys(texts_key(config, name) for name in config.maps)),
            "layer": [layer_name(layer) for layer in sorted(mapped_layers)],
        }
        return {**experiments, **keys, "grading": [*get_args(Preset)], **compressed, **mapped}

    @cached_property
    def constraints(self) -> dict[str, str]:
        """The allowed values of each wildcard, as a regular expression."""
        either = {
            wildcard: "|".join(map(re.escape, values)) or "none"
            for wildcard, values in self.values.items()
        }
        return {"variant": pattern(), "seed": r"\d+", **either}

    def batch(self, wildcards: Any) -> Batch:
        """Return the batch of the job's model, decoding and questions."""
        keys = BatchKeys(wildcards.model, wildcards.decoding, wildcards.questions)
        return self.batches[keys]

    def arm(self, wildcards: Any) -> Arm:
        """Return the arm of the job's subject, data and arm."""
        return self.arms[wildcards.subject, wildcards.data, wildcards.arm]

    def study_of_solver(self, solver: str) -> Study:
        """Return a compression that starts from a solver, given the solver's key."""
        return next(study for (key, _), study in self.solvers.items() if key == solver)

    def trained(self, wildcards: Any) -> tuple[Study, Compression | None]:
        """Return a job's compression, and the settings of its arm if it has one."""
        if hasattr(wildcards, "compression"):
            return self.config.compressions[wildcards.compression], None
        if hasattr(wildcards, "arm"):
            arm = self.arm(wildcards)
            return arm.study, arm.settings
        return self.solvers[wildcards.solver, wildcards.data], None
