"""What jobs request: GPUs, main memory and minutes, from their estimated cost.

Functions that take `local` are for this machine with it, else for a cluster with any.
"""

import math
from pathlib import Path
from typing import NamedTuple

from headsweep.config import Config, Model, Questions, Study
from headsweep.config.compression import Compression
from headsweep.planning import cost
from headsweep.planning.assumptions import LENGTHS
from headsweep.planning.batches import PlannedBatch
from headsweep.planning.cards import ANY_CARD, ANY_CORE, Card, card_of
from headsweep.planning.footprint import gpus_of, host_megabytes
from headsweep.planning.maps import map_layers, mapped_model
from headsweep.planning.memory import parameters, scoring_memory, training_memory

PROFILE = Path("workflow/profiles/slurm/config.yaml")
UNNAMED = "CHANGE-ME"
"""What the profile has for a cluster's partition and account until somebody names them."""

_START_MINUTES = 5  # of an allocation: its start, and loading a model
_SMALL = 5e6  # parameters below which a GPU is not faster


_BESIDE_MODEL, _BESIDE = 4000, 8000
"""MB that a job is given beside what its model, or anything else, is expected to hold."""


class Allocation(NamedTuple):
    """Resources that one job requests at its first attempt."""

    gpus: int
    held: int
    """MB of main memory that its model or its training is expected to hold."""
    minutes: int
    """Twice the estimated time, plus the start."""
    beside: int = _BESIDE

    @property
    def megabytes(self) -> int:
        """The main memory to request from a cluster, which kills a job that takes more."""
        return self.held + self.beside


SMALL_JOB = Allocation(gpus=0, held=0, minutes=60)
"""What the profile gives a job that requests nothing."""


def generation_request(
    config: Config, batch: PlannedBatch, together: int = 1, *, local: bool = False
) -> Allocation:
    """Return the resources that one job of a batch requests.

    So many jobs share an allocation, which loads the model once; their minutes are added.
    """
    model = config.models[batch.model]
    card = card_of(model.device, local=local)
    seconds = cost.generation_seconds(config, batch, card) / len(batch.variants)
    minutes = math.ceil(_START_MINUTES / together + 2 * seconds / 60)
    return _of_model(model, card, minutes)


def scoring_request(config: Config, name: str, *, local: bool = False) -> Allocation:
    """Return the resources that one job requests to score a map's texts without a layer's heads."""
    model = mapped_model(config, name)
    card = card_of(model.device, local=local)
    layers = map_layers(config, name)
    seconds = max(cost.scoring_seconds(config, name, layer, card) for layer in layers)
    minutes = math.ceil(_START_MINUTES + 2 * seconds / 60)
    return _of_model(model, card, minutes)


def _of_model(model: Model, card: Card, minutes: int) -> Allocation:
    """Return the resources of a job of so many minutes that loads a model."""
    return Allocation(gpus_of(model), host_megabytes(model, card), minutes, _BESIDE_MODEL)


def drawing_request(config: Config, name: str, *, local: bool = False) -> Allocation:
    """Return the resources that one job requests to draw a question set.

    From clusters it is drawn by the embeddings of the whole split.
    """
    questions = config.questions[name]
    if questions.embedder is None:
        return SMALL_JOB
    texts = cost.split_count(questions)
    return _embedding_request(config, questions.embedder, questions, texts, local=local)


def embedding_request(
    config: Config, embedder: str, questions: str, *, local: bool = False
) -> Allocation:
    """Return the resources that one job requests to embed a question set."""
    section = config.questions[questions]
    texts = cost.question_count(section)
    return _embedding_request(config, embedder, section, texts, local=local)


def _embedding_request(
    config: Config, embedder: str, questions: Questions, texts: int, *, local: bool
) -> Allocation:
    """Return the resources to embed so many texts; an embedder of the hub is taken to be small."""
    name = config.embedders[embedder].model
    if name is None:
        return SMALL_JOB
    wide = config.models[name].model_copy(update={"dtype": "float32"})
    tokens, _ = LENGTHS[questions.benchmark]
    card = card_of(wide.device, local=local)
    seconds = texts * tokens * cost.token_seconds(wide, card)
    minutes = max(SMALL_JOB.minutes, math.ceil(_START_MINUTES + 2 * seconds / 60))
    return _of_model(wide, card, minutes)


def training_request(
    config: Config, study: Study, settings: Compression | None = None
) -> Allocation:
    """Return the resources that one job of a compression requests.

    Without `settings`: the solver's training, and jobs after the arms.
    """
    size = parameters(config, study)
    on_gpu = trains_on_gpu(config, study)
    seconds = cost.training_seconds(config, study, settings, ANY_CARD if on_gpu else ANY_CORE)
    held = 30 * size / 1e6  # weights, gradients, moments, teacher; a text's activations
    if not on_gpu and settings is not None:
        held += 1000 * scoring_memory(config, study, settings)
        held = max(held, 1000 * sum(training_memory(config, study, settings)))
    return Allocation(int(on_gpu), int(held), math.ceil(10 + 2 * seconds / 60))


def trains_on_gpu(config: Config, study: Study) -> bool:
    """Return whether the jobs of a compression use a GPU, where there is one."""
    is_large = parameters(config, study) > _SMALL
    return is_large and (study.model is None or config.models[study.model].device != "cpu")


def quantised_request(config: Config, study: Study, threads: int = 1) -> Allocation:
    """Return the resources that one job requests to test an arm with 8-bit weights, on a CPU."""
    seconds = cost.arm_test_seconds(config, study, ANY_CORE) / threads
    held = 30 * parameters(config, study) / 1e6
    return Allocation(0, int(held), math.ceil(10 + 2 * seconds / 60))
