"""Estimate the memory that scoring and training take, by counting bytes of tensors."""

import math
from typing import NamedTuple

from headsweep.config import Config, Study
from headsweep.config.compression import SCORED_AT_ONCE, Compression
from headsweep.config.solvers import Training
from headsweep.models.footprint import BASE_ENCODER, parameters

HEAD_DIM = 128
"""Assumed width of a model's head."""

LENGTHS = {
    "math500": (120, 550),
    "math_train": (120, 550),
    "gsm8k": (120, 300),
    "generated_math": (25, 45),
    "generated_gsm8k": (25, 45),
    "custom": (120, 200),
}
"""Assumed mean lengths of a prompt and an answer; the decoding's limit caps the latter."""

_MAPS = 3  # of one layer's attention: logits, logits with the mask, weights
_STATES = 6  # of all tokens beside them: the residual stream, queries, keys and values
_LONG_PROBLEM = 150  # tokens of a solver's longest texts
_VOCABULARY = 152_000  # at most, and a quarter of the weights
_SAVED_WIDE, _SAVED_INNER = 10.5, 4  # states of a layer that a backward pass needs, of both widths
_SAVED_LOGITS = 3  # of each loss, and the teacher's
_HALF = 0.68  # of these bytes in mixed precision, where norms and sums stay in float32
_TRAINED_BYTES = 16  # of a weight: itself, gradient, two moments


class TrainingMemory(NamedTuple):
    """The GB that a training holds at its peak."""

    weights: float  # with gradients and moments; in mixed precision also copies in 16 bits
    teacher: float
    maps: float  # attention weights of all layers, for the feature loss
    states: float  # other states of all layers, and logits


def scoring_memory(config: Config, study: Study, settings: Compression) -> float:
    """Return the GB that scoring a model's heads takes with a batch of the longest texts.

    They are the float32 weights and the attention of one layer, of which the weights, the logits
    and the logits with the mask are there at once, and the layer's activations. 0 for a solver,
    whose texts are short, and where no attention is read.
    """
    if study.model is None or settings.importance.criterion not in ("mixed", "attention"):
        return 0.0
    model = config.models[study.model]
    tokens = longest_text(config, study)
    rows = settings.importance.batch_size or SCORED_AT_ONCE
    maps = _MAPS * rows * model.heads * tokens**2
    states = _STATES * rows * tokens * model.heads * HEAD_DIM
    return 4e-9 * (1e9 * model.billions + maps + states)


def longest_text(config: Config, study: Study) -> int:
    """Return the tokens of a model's longest training text: a prompt and an answer."""
    prompt, _ = LENGTHS[config.questions[str(study.train)].benchmark]
    return prompt + config.decodings[study.decoding].max_new_tokens


class Shape(NamedTuple):
    """The shape of a network as far as its memory hangs on it."""

    layers: int
    heads: int
    width: int
    inner: float
    vocabulary: float = 0.0  # of a language head


def shape_of(config: Config, study: Study) -> Shape:
    """Return what is known or assumed of the shape; a model's widths follow from its weights."""
    size = parameters(config, study)
    if study.model is None:
        encoder = config.solver_of(study).encoder
        if encoder.source is None:
            return Shape(encoder.layers, encoder.heads, encoder.width, encoder.intermediate)
        return Shape(24, 16, 1024, 4096) if size > BASE_ENCODER else Shape(12, 12, 768, 3072)
    model = config.models[study.model]
    width = model.heads * HEAD_DIM
    vocabulary = min(_VOCABULARY, size / (4 * width))
    attention = 2 * width * (width + model.kv_heads * HEAD_DIM)
    inner = ((size - vocabulary * width) / model.layers - attention) / (3 * width)
    return Shape(model.layers, model.heads, width, max(width, inner), vocabulary)


def recipe_of(config: Config, study: Study, settings: Compression) -> Training:
    """Return how an arm is trained: from scratch by its solver's recipe, for the epochs of both."""
    if not settings.scratch:
        return settings.training
    recipe = config.solver_of(study).training
    epochs = settings.scratch_times * (recipe.epochs + settings.training.epochs)
    return recipe.model_copy(update={"epochs": epochs})


def training_memory(config: Config, study: Study, settings: Compression) -> TrainingMemory:
    """Return what training an arm holds, in GB, with a micro-batch of the longest texts.

    Counted is what the backward pass needs of each layer, as measured on Llama's: of a token 10.5
    states of the model's width and 4 of its inner width; with a feature loss 8 bytes of an
    attention weight (10 in mixed precision): itself, and its difference from the teacher's.
    """
    recipe = recipe_of(config, study, settings)
    distillation = settings.distillation
    size = parameters(config, study)
    shape = shape_of(config, study)
    rows = math.ceil(recipe.batch_size / recipe.micro_batches)
    tokens = _LONG_PROBLEM
    new_tokens = 0
    if study.model is not None:
        tokens = longest_text(config, study)
        new_tokens = config.decodings[study.decoding].max_new_tokens
    a_weight = _TRAINED_BYTES
    a_map = 8
    share = 1.0
    if recipe.precision != "no":
        a_weight = _TRAINED_BYTES + 2
        a_map = 10
        share = _HALF
    teacher = 4e-9 * size
    maps = 1e-9 * a_map * rows * tokens**2 * shape.heads * shape.layers
    if distillation.teacher == "none":
        teacher = maps = 0.0
    elif distillation.feature == "none":
        maps = 0.0
    a_token = shape.layers * (_SAVED_WIDE * shape.width + _SAVED_INNER * shape.inner)
    states = share * tokens * a_token + _SAVED_LOGITS * new_tokens * shape.vocabulary
    return TrainingMemory(1e-9 * a_weight * size, teacher, maps, 4e-9 * rows * states)
