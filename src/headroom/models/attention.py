"""Attention weights, which models return only with the eager attention implementation."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from headroom.errors import ModelError


@contextmanager
def eager_attention(model: PreTrainedModel) -> Iterator[None]:
    """Switch a model to eager attention, which returns its weights, and back at the end.

    Raises:
        ModelError: the model has no eager attention, or must be loaded with it.
    """
    before = model.config._attn_implementation
    try:
        model.set_attn_implementation("eager")
    except (ValueError, ImportError) as error:
        raise no_weights(model) from error
    if model.config._attn_implementation != "eager":  # Falcon warns, and stays as it was
        raise no_weights(model)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def attention_maps(model: PreTrainedModel, maps: Any) -> list[Tensor]:
    """Return the attention weights in a model's output, layer by layer.

    Raises:
        ModelError: the model returned none.
    """
    found = [attention for attention in maps or () if attention is not None]
    if not found:
        raise no_weights(model)
    return found


def no_weights(model: PreTrainedModel) -> ModelError:
    """Return the error for a model whose attention weights cannot be read."""
    return ModelError(
        f"{type(model).__name__} has no eager attention whose weights can be read; use another "
        f"model, or a criterion without attention weights, such as norm"
    )
