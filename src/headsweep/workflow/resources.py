"""What jobs ask a cluster for, and how long they are expected to take.

Snakemake's own objects (wildcards, jobs) are untyped.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from headsweep.config import Study
from headsweep.planning import allocations, cost
from headsweep.planning.cards import ANY_CORE, Card, card_of, this_core
from headsweep.planning.footprint import is_gpu
from headsweep.planning.maps import find_map
from headsweep.variants import Variant
from headsweep.workflow.wildcards import WildcardLookup

Functions = dict[str, Callable[..., int]]
"""A rule's resources: functions of a job's wildcards, and of its attempt number."""


class Resources:
    """Resources and expected times of the jobs of a config's workflow.

    Args:
        lookup: of the wildcards of its jobs.
        cores: those that Snakemake may use, 1 if unknown.
    """

    def __init__(self, lookup: WildcardLookup, cores: int) -> None:
        self._lookup = lookup
        self._config = lookup.config
        self._cores = cores
        # Of generation, by group of jobs.
        self._allocations = dict[tuple[str, ...], allocations.Allocation]()
        self.generation = _scaled(self._generation_request)
        self.scoring = _scaled(self._scoring_request)
        self.embedding = _scaled(self._embedding_request)
        self.drawing = _scaled(self._drawing_request)
        self.training = _scaled(self._training_request)
        self.quantisation = _scaled(self._quantised_request) | {"runtime": self._quantised_minutes}

    def planned(
        self, job: Any, after: Iterable[Any], *, local: bool = True
    ) -> tuple[str, str, float, list[int]]:
        """Return what `snakemake_logger_plugin_headsweep.pace` estimates the time left from.

        `after` are the jobs that the job waits for; if not `local`, jobs run on a cluster.
        """
        name = job.rule.name
        unit = str(job.jobid)
        if name == "generate":
            batch = self._lookup.batch(job.wildcards)
            unit = str(self._lookup.store.keys(**batch.names))
        return name, unit, self._seconds(job, local=local), [other.jobid for other in after]

    def _seconds(self, job: Any, *, local: bool) -> float:
        """Return the core seconds that a job is expected to take; of one that has all cores alone,
        the seconds of all. On a cluster, where cores are unknown, they count as one.

        Jobs that share a batch of answers have all of its seconds; jobs without an estimate, none.
        """
        config = self._config
        wildcards = job.wildcards
        cores = self._cores if local else 1
        match job.rule.name:
            case "generate":
                batch = self._lookup.batch(wildcards)
                card = card_of(config.models[batch.model].device, local=local)
                return cores * cost.generation_seconds(config, batch, card)
            case "score" | "gradients":
                name, section = find_map(config, wildcards.texts)
                card = card_of(config.models[section.model].device, local=local)
                if job.rule.name == "gradients":
                    return cores * cost.gradient_seconds(config, name, card)
                layer = int(wildcards.layer.removeprefix("L"))
                return cores * cost.scoring_seconds(config, name, layer, card)
            case "teacher" | "compress":
                study, settings = self._lookup.trained(wildcards)
                card = self._card_of_training(study, local=local)
                seconds = cost.training_seconds(config, study, settings, card)
                return seconds * (cores if is_gpu(card) else 1)  # one at a time holds the GPU
            case "quantise":
                study, _ = self._lookup.trained(wildcards)
                return cost.arm_test_seconds(config, study, this_core() if local else ANY_CORE)
            case "measure_compression":
                study, _ = self._lookup.trained(wildcards)
                card = card_of("auto", local=local)
                return cores * cost.measuring_seconds(config, study, card)
        return 0.0

    def _card_of_training(self, study: Study, *, local: bool) -> Card:
        """Return the card of a training job: a GPU, or one core, for it has one thread."""
        device = "auto" if allocations.trains_on_gpu(self._config, study) else "cpu"
        card = card_of(device, local=local)
        return this_core() if local and not is_gpu(card) else card

    def _generation_request(self, wildcards: Any) -> allocations.Allocation:
        """Return what a job asks for; the jobs of its group that are left share a start.

        Their files are looked at once for a group, not for each job and resource.
        """
        batch = self._lookup.batch(wildcards)
        if not hasattr(wildcards, "variant"):
            return allocations.generation_request(self._config, batch)
        group = batch.groups[Variant.parse(wildcards.variant)]
        named = (*batch.names.values(), group)
        if named not in self._allocations:
            files = self._lookup.store.answers(batch)
            left = 0
            for variant, file in zip(batch.variants, files, strict=True):
                if batch.groups[variant] == group and not Path(file).exists():
                    left += 1
            self._allocations[named] = allocations.generation_request(
                self._config, batch, max(1, left)
            )
        return self._allocations[named]

    def _scoring_request(self, wildcards: Any) -> allocations.Allocation:
        name, _ = find_map(self._config, wildcards.texts)
        return allocations.scoring_request(self._config, name)

    def _embedding_request(self, wildcards: Any) -> allocations.Allocation:
        store = self._lookup.store
        embedder = store.name("embedder", wildcards.embedder)
        questions = store.name("questions", wildcards.questions)
        return allocations.embedding_request(self._config, embedder, questions)

    def _drawing_request(self, wildcards: Any) -> allocations.Allocation:
        name = self._lookup.store.name("questions", wildcards.questions)
        return allocations.drawing_request(self._config, name)

    def _training_request(self, wildcards: Any) -> allocations.Allocation:
        study, settings = self._lookup.trained(wildcards)
        return allocations.training_request(self._config, study, settings)

    def _quantised_request(self, wildcards: Any) -> allocations.Allocation:
        study, _ = self._lookup.trained(wildcards)
        return allocations.quantised_request(self._config, study)

    def _quantised_minutes(self, wildcards: Any, attempt: int, threads: int = 1) -> int:
        study, _ = self._lookup.trained(wildcards)
        return attempt * allocations.quantised_request(self._config, study, threads).minutes


def _scaled(request: Callable[[Any], allocations.Allocation]) -> Functions:
    """Return a rule's resources, given what its job asks for: more at each attempt."""
    return {
        "gpu": lambda wildcards: request(wildcards).gpus,
        "mem_mb": lambda wildcards, attempt: attempt * request(wildcards).megabytes,
        "runtime": lambda wildcards, attempt: attempt * request(wildcards).minutes,
    }
