"""What jobs ask for, of a cluster and of this machine, and how long they are expected to take.

Snakemake's own objects (wildcards, jobs) are untyped.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from headsweep.config import Study
from headsweep.machine.processors import CORE, GPU, Card, card_of
from headsweep.models.footprint import trains_on_gpu
from headsweep.store.map_scores import find_map
from headsweep.variants import Variant
from headsweep.workflow import allocations, cost
from headsweep.workflow.wildcards import WildcardLookup

Functions = dict[str, Callable[..., int]]
"""A rule's resources: functions of a job's wildcards, and of its attempt number."""


class Resources:
    """Resources and expected times of the jobs of a config's workflow.

    Args:
        lookup: of the wildcards of its jobs.
        cores: those that Snakemake may use, 1 if unknown.
        local: jobs run on this machine, and not on a cluster.
    """

    def __init__(self, lookup: WildcardLookup, cores: int, *, local: bool) -> None:
        self._lookup = lookup
        self._config = lookup.config
        self._cores = cores
        self._local = local
        # Of generation, by group of jobs.
        self._allocations = dict[tuple[str, ...], allocations.Allocation]()
        self.generation = _scaled(self._generation_request)
        self.scoring = _scaled(self._scoring_request)
        self.embedding = _scaled(self._embedding_request)
        self.drawing = _scaled(self._drawing_request)
        self.training = _scaled(self._training_request)
        self.quantisation = _scaled(self._quantised_request) | {"runtime": self._quantised_minutes}

    def planned(self, job: Any, after: Iterable[Any]) -> tuple[str, str, float, list[int]]:
        """Return what `snakemake_logger_plugin_headsweep.pace` estimates the time left from.

        `after` are the jobs that the job waits for.
        """
        name = job.rule.name
        unit = str(job.jobid)
        if name == "generate":
            batch = self._lookup.batch(job.wildcards)
            unit = "/".join(batch.keys)
        return name, unit, self._seconds(job), [other.jobid for other in after]

    def _seconds(self, job: Any) -> float:
        """Return the core seconds that a job is expected to take; of one that has all cores alone,
        the seconds of all. On a cluster, where cores are unknown, they count as one.

        Jobs that share a batch of answers have all of its seconds; jobs without an estimate, none.
        """
        config = self._config
        wildcards = job.wildcards
        local = self._local
        cores = self._cores if local else 1
        match job.rule.name:
            case "generate":
                batch = self._lookup.batch(wildcards)
                card = card_of(config.models[batch.model].device, local=local)
                return cores * cost.generation_seconds(batch, card)
            case "score" | "gradients":
                name, section = find_map(config, wildcards.texts)
                card = card_of(config.models[section.model].device, local=local)
                if job.rule.name == "gradients":
                    return cores * cost.gradient_seconds(config, name, card)
                layer = int(wildcards.layer.removeprefix("L"))
                return cores * cost.scoring_seconds(config, name, layer, card)
            case "teacher" | "compress":
                study, settings = self._lookup.trained(wildcards)
                card = self._card_of_training(study)
                seconds = cost.training_seconds(config, study, settings, card)
                return seconds * (cores if card == GPU else 1)  # one at a time holds the GPU
            case "quantise":
                study, _ = self._lookup.trained(wildcards)
                return cost.arm_test_seconds(config, study, CORE)
            case "measure_compression":
                study, _ = self._lookup.trained(wildcards)
                card = card_of("auto", local=local)
                return cores * cost.measuring_seconds(config, study, card)
        return 0.0

    def _card_of_training(self, study: Study) -> Card:
        """Return the card of a training job: a GPU, or one core, for it has one thread."""
        uses_gpu = trains_on_gpu(self._config, study)
        return GPU if uses_gpu and card_of("auto", local=self._local) == GPU else CORE

    def drawing_threads(self, wildcards: Any) -> int:
        """Return the threads of a job that draws a question set; see `embedding_threads`."""
        name = self._lookup.store.name("questions", wildcards.questions)
        return self._threads_to_embed(self._config.questions[name].embedder)

    def embedding_threads(self, wildcards: Any) -> int:
        """Return the threads of a job that embeds a question set.

        Jobs that run at once have no more threads than there are cores, so the memory holds them.
        """
        return self._threads_to_embed(self._lookup.store.name("embedder", wildcards.embedder))

    def _threads_to_embed(self, embedder: str | None) -> int:
        if embedder is None or not self._local:
            return 1
        return allocations.embedding_threads(self._config, embedder, self._cores)

    def scoring_threads(self, wildcards: Any) -> int:
        """Return the threads of a job that scores texts of a map; see `embedding_threads`."""
        name, _ = find_map(self._config, wildcards.texts)
        return allocations.scoring_threads(self._config, name, self._cores) if self._local else 1

    def _generation_request(self, wildcards: Any) -> allocations.Allocation:
        """Return what a job asks for; the jobs of its group that are left share a start.

        Their files are looked at once for a group, not for each job and resource.
        """
        batch = self._lookup.batch(wildcards)
        if not hasattr(wildcards, "variant"):
            return allocations.generation_request(batch)
        group = batch.groups[Variant.parse(wildcards.variant)]
        named = (*batch.keys, group)
        if named not in self._allocations:
            left = 0
            for variant, file in zip(batch.variants, batch.answers, strict=True):
                if batch.groups[variant] == group and not Path(file).exists():
                    left += 1
            self._allocations[named] = allocations.generation_request(batch, max(1, left))
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
