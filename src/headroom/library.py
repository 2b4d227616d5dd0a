"""`headroom.pruned`: heads taken out of models in memory, whatever calls these models."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

from headroom.models import masks
from headroom.models.geometry import find_heads
from headroom.variants import Variant

_Model = TypeVar("_Model", bound=nn.Module)


@contextmanager
def pruned(model: _Model, layer: int, head: int) -> Iterator[_Model]:
    """Prune one attention head of a model inside a ``with`` block, and restore it afterwards.

        with headroom.pruned(model, layer=5, head=3):
            model.generate(...)

    It works for any decoder or encoder of transformers with attention heads, whatever calls the
    model: `generate`, pipelines, a training loop. Nested blocks prune several heads. The result
    equals zeroing the weights that read the head; the weights are not changed.

    A model under `torch.compile` runs uncompiled inside the block and compiled again after it,
    because compiled code ignores masks that were added later.

    Args:
        model: a model of transformers, compiled or not.
        layer: counted from 0.
        head: a query head, counted from 0 among those that the layer has.

    Raises:
        ModelError: the model has no such head, or its heads cannot be identified.
    """
    plain = getattr(model, "_orig_mod", model)
    variant = Variant(layer, head)
    with (
        torch.compiler.set_stance("force_eager"),
        masks.pruned(plain, find_heads(plain), variant),
    ):
        yield model
