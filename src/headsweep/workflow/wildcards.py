"""What the keys in a job's wildcards stand for: entries of the config, and parts of its plan.

Snakemake's own objects (wildcards) are untyped.
"""

from typing import Any

from headsweep.config import Config, Study
from headsweep.config.compression import Compression
from headsweep.store.batches import Arm, PlannedBatch, all_arms, batches, solvers
from headsweep.store.layout import Store


class WildcardLookup:
    """Looks up batches, arms and studies of a resolved config by the wildcards of a job."""

    def __init__(self, config: Config, store: Store) -> None:
        self.config = config
        self.store = store
        self.batches = batches(config)
        self.arms = all_arms(config)
        self.solvers = solvers(config)
        self._batch_of_keys = {
            tuple(store.keys(**batch.names).values()): batch for batch in self.batches
        }

    def batch(self, wildcards: Any) -> PlannedBatch:
        """Return the batch of the job's model, decoding and questions."""
        return self._batch_of_keys[wildcards.model, wildcards.decoding, wildcards.questions]

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
