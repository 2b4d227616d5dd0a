"""Attention weights, which models give only when their attention is computed step by step."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from headroom.errors import ModelError


@contextmanager
def eager_attention(model: PreTrainedModel) -> Iterator[None]:
    """Let a model compute its attention step by step, so that its weights can be read.

    Raises:
        ModelError: it cannot.
    """
    before = model.config._attn_implementation
    try:
        model.set_attn_implementation("eager")
    except (ValueError, ImportError) as error:
        raise _no_weights(model) from error
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def attention_maps(model: PreTrainedModel, maps: Any) -> list[Tensor]:
    """Return the attention weights that a model put out, layer by layer.

    Raises:
        ModelError: there are none.
    """
    found = [attention for attention in maps or () if attention is not None]
    if not found:
        raise _no_weights(model)
    return found


def _no_weights(model: PreTrainedModel) -> ModelError:
    return ModelError(
        f"{type(model).__name__} has no eager attention whose weights can be read; use another "
        f"model, or a criterion without attention weights, such as norm"
    )
