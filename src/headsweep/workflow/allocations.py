"""What jobs request of a cluster: GPUs, main memory and minutes, from their estimated cost."""

import math
from typing import NamedTuple

from headsweep.config import Config, Model, Questions, Study
from headsweep.config.compression import Compression
from headsweep.files import paths
from headsweep.machine.host import host_memory
from headsweep.machine.processors import CORE, GPU, card_of, is_on_gpu
from headsweep.models.footprint import (
    cpu_megabytes,
    embedding_model,
    gpus_of,
    host_megabytes,
    parameters,
    trains_on_gpu,
)
from headsweep.store.batches import Batch
from headsweep.store.map_scores import map_layers, mapped_model
from headsweep.workflow import cost
from headsweep.workflow.assumptions import LENGTHS
from headsweep.workflow.memory import scoring_memory, training_memory

PROFILE = paths.SHIPPED / "workflow/profiles/slurm/config.yaml"
UNNAMED = "CHANGE-ME"
"""What the profile has for a cluster's partition and account until somebody names them."""

_START_MINUTES = 5  # of an allocation: its start, and loading a model


class Allocation(NamedTuple):
    """Resources that one job requests from a cluster at its first attempt."""

    gpus: int
    megabytes: int
    """Main memory: weights are loaded through it, and a model on a CPU stays in it."""
    minutes: int
    """Twice the estimated time, plus the start."""


SMALL_JOB = Allocation(gpus=0, megabytes=8000, minutes=60)
"""What the profile gives a job that requests nothing."""


def generation_request(batch: Batch, together: int = 1) -> Allocation:
    """Return the resources that one job of a batch requests from a cluster.

    So many jobs share an allocation, which loads the model once; their minutes are added.
    """
    model = batch.store.config.models[batch.model]
    seconds = cost.generation_seconds(batch, card_of(model.device, local=False))
    seconds /= len(batch.variants)
    minutes = math.ceil(_START_MINUTES / together + 2 * seconds / 60)
    return Allocation(gpus_of(model), host_megabytes(model), minutes)


def scoring_request(config: Config, name: str) -> Allocation:
    """Return the resources that one job requests to score a map's texts without a layer's heads."""
    model = mapped_model(config, name)
    card = card_of(model.device, local=False)
    layers = map_layers(config, name)
    seconds = max(cost.scoring_seconds(config, name, layer, card) for layer in layers)
    minutes = math.ceil(_START_MINUTES + 2 * seconds / 60)
    return Allocation(gpus_of(model), host_megabytes(model), minutes)


def scoring_threads(config: Config, name: str, cores: int) -> int:
    """Return the threads of a job here that scores a map's texts (see `_shared_threads`)."""
    return _shared_threads(mapped_model(config, name), cores)


def embedding_threads(config: Config, embedder: str, cores: int) -> int:
    """Return the threads of a job here that embeds questions (see `_shared_threads`).

    An embedder of the hub is taken to be small: one.
    """
    model = embedding_model(config, embedder)
    return 1 if model is None else _shared_threads(model, cores)


def _shared_threads(model: Model, cores: int) -> int:
    """Return the threads of a job here that loads a model: its share of so many cores.

    As many jobs run at once as this machine's memory holds their models. On a GPU each has one.
    """
    if is_on_gpu(model.device):
        return 1
    fitting = host_memory() // max(1, 10**6 * cpu_megabytes(model))
    return cores // min(cores, max(1, fitting))


def drawing_request(config: Config, name: str) -> Allocation:
    """Return the resources that one job requests to draw a question set.

    From clusters it is drawn by the embeddings of the whole split.
    """
    questions = config.questions[name]
    if questions.embedder is None:
        return SMALL_JOB
    return _embedding_request(config, questions.embedder, questions, cost.split_count(questions))


def embedding_request(config: Config, embedder: str, questions: str) -> Allocation:
    """Return the resources that one job requests to embed a question set."""
    section = config.questions[questions]
    return _embedding_request(config, embedder, section, cost.question_count(section))


def _embedding_request(
    config: Config, embedder: str, questions: Questions, texts: int
) -> Allocation:
    """Return the resources to embed so many texts; an embedder of the hub is taken to be small."""
    model = embedding_model(config, embedder)
    if model is None:
        return SMALL_JOB
    tokens, _ = LENGTHS[questions.benchmark]
    seconds = texts * tokens * cost.token_seconds(model, card_of(model.device, local=False))
    minutes = max(SMALL_JOB.minutes, math.ceil(_START_MINUTES + 2 * seconds / 60))
    return Allocation(gpus_of(model), host_megabytes(model), minutes)


def training_request(
    config: Config, study: Study, settings: Compression | None = None
) -> Allocation:
    """Return the resources that one job of a compression requests from a cluster.

    Without `settings`: the solver's training, and jobs after the arms.
    """
    size = parameters(config, study)
    on_gpu = trains_on_gpu(config, study)
    seconds = cost.training_seconds(config, study, settings, GPU if on_gpu else CORE)
    megabytes = 8000 + 30 * size / 1e6  # weights, gradients, moments, teacher; a text's activations
    if not on_gpu and settings is not None:
        megabytes += 1000 * scoring_memory(config, study, settings)
        megabytes = max(megabytes, 8000 + 1000 * sum(training_memory(config, study, settings)))
    return Allocation(int(on_gpu), int(megabytes), math.ceil(10 + 2 * seconds / 60))


def quantised_request(config: Config, study: Study, threads: int = 1) -> Allocation:
    """Return the resources that one job requests to test an arm with 8-bit weights, on a CPU."""
    seconds = cost.arm_test_seconds(config, study, CORE) / threads
    megabytes = 8000 + 30 * parameters(config, study) / 1e6
    return Allocation(0, int(megabytes), math.ceil(10 + 2 * seconds / 60))
