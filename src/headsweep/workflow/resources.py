"""What jobs ask for, of a cluster and of this machine, and how long they are expected to take.

Snakemake's own objects (wildcards, jobs) are untyped.
"""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from headsweep.config import Model, Study
from headsweep.files import paths
from headsweep.machine.host import host_memory
from headsweep.machine.processors import CORE, GPU, Card, card_of, is_on_gpu
from headsweep.models.footprint import (
    cpu_megabytes,
    embedding_model,
    gpus_of,
    host_megabytes,
    parameters,
    trains_on_gpu,
)
from headsweep.store.map_scores import find_map, map_layers, mapped_model
from headsweep.variants import Variant
from headsweep.workflow import cost
from headsweep.workflow.memory import LENGTHS, scoring_memory, training_memory
from headsweep.workflow.wildcards import WildcardLookup

PROFILE = paths.SHIPPED / "workflow/profiles/slurm/config.yaml"
UNNAMED = "CHANGE-ME"
"""What the profile has for a cluster's partition and account until somebody names them."""

_START_MINUTES = 5  # of an allocation: its start, and loading a model

Functions = dict[str, Callable[..., int]]
"""A rule's resources: functions of a job's wildcards, and of its attempt number."""


class Allocation(NamedTuple):
    """Resources that one job requests from a cluster at its first attempt."""

    gpus: int
    megabytes: int
    """Main memory: weights are loaded through it, and a model on a CPU stays in it."""
    minutes: int
    """Twice the estimated time, plus the start."""


SMALL_JOB = Allocation(gpus=0, megabytes=8000, minutes=60)
"""What the profile gives a job that requests nothing."""


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
        self._left = dict[tuple[str, ...], int]()  # jobs of a group
        self.generation = _scaled(self._generation)
        self.scoring = _scaled(self._scoring)
        self.embedding = _scaled(self._embedding)
        self.drawing = _scaled(self._drawing)
        self.training = _scaled(self._training)
        self.quantisation = _scaled(self._quantised) | {"runtime": self._quantised_minutes}

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
            case "score":
                name, section = find_map(config, wildcards.texts)
                card = card_of(config.models[section.model].device, local=local)
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
        """Return the threads of a job that draws a question set, by embeddings or without."""
        name = self._lookup.store.name("questions", wildcards.questions)
        embedder = self._config.questions[name].embedder
        return self._threads(embedding_model(self._config, embedder) if embedder else None)

    def embedding_threads(self, wildcards: Any) -> int:
        """Return the threads of a job that embeds a question set."""
        embedder = self._lookup.store.name("embedder", wildcards.embedder)
        return self._threads(embedding_model(self._config, embedder))

    def scoring_threads(self, wildcards: Any) -> int:
        """Return the threads of a job that scores texts of a map."""
        name, _ = find_map(self._config, wildcards.texts)
        return self._threads(mapped_model(self._config, name))

    def _threads(self, model: Model | None) -> int:
        """Return the threads of a job here that loads a model: its share of the cores.

        As many jobs run at once as this machine's memory holds their models, for together they have
        no more threads than there are cores. One on a GPU, on a cluster, and for an embedder of the
        hub, which is taken to be small: it is no model.
        """
        if model is None or not self._local or is_on_gpu(model.device):
            return 1
        fitting = host_memory() // max(1, 10**6 * cpu_megabytes(model))
        return self._cores // min(self._cores, max(1, fitting))

    def _generation(self, wildcards: Any) -> Allocation:
        """Return what a job asks for; the jobs of its group that are left share a start.

        Their files are looked at once for a group, not for each job and resource.
        """
        batch = self._lookup.batch(wildcards)
        model = self._config.models[batch.model]
        seconds = cost.generation_seconds(batch, card_of(model.device, local=False))
        seconds /= len(batch.variants)
        if not hasattr(wildcards, "variant"):
            return _of_model(model, seconds)
        group = batch.groups[Variant.parse(wildcards.variant)]
        named = (*batch.keys, group)
        if named not in self._left:
            files = zip(batch.variants, batch.answers, strict=True)
            of_group = [file for variant, file in files if batch.groups[variant] == group]
            self._left[named] = len([file for file in of_group if not Path(file).exists()])
        return _of_model(model, seconds, together=max(1, self._left[named]))

    def _scoring(self, wildcards: Any) -> Allocation:
        """Return what a job asks for to score a map's texts without the heads of any layer."""
        config = self._config
        name, _ = find_map(config, wildcards.texts)
        model = mapped_model(config, name)
        card = card_of(model.device, local=False)
        layers = map_layers(config, name)
        seconds = max(cost.scoring_seconds(config, name, layer, card) for layer in layers)
        return _of_model(model, seconds)

    def _drawing(self, wildcards: Any) -> Allocation:
        """Return what a job asks for to draw a question set: from clusters of the whole split."""
        questions = self._lookup.store.name("questions", wildcards.questions)
        section = self._config.questions[questions]
        if section.embedder is None:
            return SMALL_JOB
        return self._to_embed(section.embedder, questions, cost.split_count(section))

    def _embedding(self, wildcards: Any) -> Allocation:
        store = self._lookup.store
        questions = store.name("questions", wildcards.questions)
        count = cost.question_count(self._config.questions[questions])
        return self._to_embed(store.name("embedder", wildcards.embedder), questions, count)

    def _to_embed(self, embedder: str, questions: str, texts: int) -> Allocation:
        """Return what a job asks for to embed so many texts; little for an embedder of the hub."""
        model = embedding_model(self._config, embedder)
        if model is None:
            return SMALL_JOB
        tokens, _ = LENGTHS[self._config.questions[questions].benchmark]
        seconds = texts * tokens * cost.token_seconds(model, card_of(model.device, local=False))
        asked = _of_model(model, seconds)
        return asked._replace(minutes=max(SMALL_JOB.minutes, asked.minutes))

    def _training(self, wildcards: Any) -> Allocation:
        """Return what a job of a compression asks for: of an arm, a solver, or after the arms."""
        config = self._config
        study, settings = self._lookup.trained(wildcards)
        on_gpu = trains_on_gpu(config, study)
        seconds = cost.training_seconds(config, study, settings, GPU if on_gpu else CORE)
        megabytes = self._megabytes(study)
        if not on_gpu and settings is not None:
            megabytes += 1000 * scoring_memory(config, study, settings)
            megabytes = max(megabytes, 8000 + 1000 * sum(training_memory(config, study, settings)))
        return Allocation(int(on_gpu), int(megabytes), math.ceil(10 + 2 * seconds / 60))

    def _quantised(self, wildcards: Any, threads: int = 1) -> Allocation:
        """Return what a job asks for to test an arm with 8-bit weights, on a CPU."""
        study, _ = self._lookup.trained(wildcards)
        seconds = cost.arm_test_seconds(self._config, study, CORE) / threads
        return Allocation(0, int(self._megabytes(study)), math.ceil(10 + 2 * seconds / 60))

    def _quantised_minutes(self, wildcards: Any, attempt: int, threads: int = 1) -> int:
        return attempt * self._quantised(wildcards, threads).minutes

    def _megabytes(self, study: Study) -> float:
        """Return the MB of weights, gradients, moments, a teacher; and of a text's activations."""
        return 8000 + 30 * parameters(self._config, study) / 1e6


def _of_model(model: Model, seconds: float, together: int = 1) -> Allocation:
    """Return what a job asks for that loads a model, and computes for so long.

    So many jobs share an allocation, which loads the model once.
    """
    minutes = math.ceil(_START_MINUTES / together + 2 * seconds / 60)
    return Allocation(gpus_of(model), host_megabytes(model), minutes)


def _scaled(request: Callable[[Any], Allocation]) -> Functions:
    """Return a rule's resources, given what its job asks for: more at each attempt."""
    return {
        "gpu": lambda wildcards: request(wildcards).gpus,
        "mem_mb": lambda wildcards, attempt: attempt * request(wildcards).megabytes,
        "runtime": lambda wildcards, attempt: attempt * request(wildcards).minutes,
    }
