"""How important a head is, by what its absence does: causal criteria, and Taylor's estimate."""

import itertools
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from headroom.compression.choice import Scores
from headroom.errors import ModelError
from headroom.models.geometry import AttentionLayer, HeadGeometry
from headroom.models.masks import pruned
from headroom.variants import BASE, Variant

if TYPE_CHECKING:
    import pandas as pd

_Batch = TypeVar("_Batch")


def accuracy_drops(z: "pd.DataFrame", geometry: HeadGeometry) -> Scores:
    """Return how much accuracy the base model loses without each head.

    Args:
        z: accuracy matrix of training questions (`headroom.tables.ACCURACY`): one row a question,
            columns of 0 and 1 for `base` and for each head.
        geometry: the model's heads, if some are gone those that are left; layers of which the
            matrix has no head get no score.

    Raises:
        ModelError: the matrix lacks the base model, or some heads of a layer.
    """
    names = {
        layer.index: [str(Variant(layer.index, head)) for head in layer.original_heads]
        for layer in geometry.layers
    }
    swept = {layer: heads for layer, heads in names.items() if set(heads) & set(z.columns)}
    needed = [str(BASE), *itertools.chain.from_iterable(swept.values())]
    missing = [name for name in needed if name not in z.columns]
    if missing or not swept:
        raise ModelError(
            f"the accuracy matrix lacks {missing[0] if missing else 'all heads of the model'}; "
            f"sweep whole layers, or use another criterion"
        )
    base = z[str(BASE)].mean()
    return {
        layer: torch.tensor(base - z[heads].mean().to_numpy(), dtype=torch.float32)
        for layer, heads in swept.items()
    }


def loss_rises(model: nn.Module, geometry: HeadGeometry, loss: Callable[[], float]) -> Scores:
    """Return how much a loss rises when each head is masked.

    Args:
        model: a model, or the encoder within a solver.
        geometry: its heads.
        loss: computes the loss of whatever the model serves on a fixed set, in evaluation mode.
    """
    base = loss()
    scores = {}
    for layer in geometry.layers:
        rises = []
        for head in range(layer.query_heads):
            with pruned(model, geometry, Variant(layer.index, head)):
                rises.append(loss() - base)
        scores[layer.index] = torch.tensor(rises)
    return scores


def taylor(
    model: nn.Module,
    geometry: HeadGeometry,
    batches: Iterable[_Batch],
    loss: Callable[[_Batch], Tensor],
) -> Scores:
    """Return the mean over rows of |gradient x mask|, the loss that a head's removal would cost
    were the loss linear in its mask (Michel et al., arXiv 1905.10650, eq. 2).

    Args:
        model: a model, or the encoder within a solver.
        geometry: its heads.
        batches: what the loss is computed on.
        loss: the sum over a batch's rows of their losses. Gradients of parameters are not touched.
    """
    totals = {layer.index: torch.zeros(layer.query_heads) for layer in geometry.layers}
    rows = 0
    masks: dict[int, Tensor] = {}

    def mask(layer: AttentionLayer, _: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
        joined, *rest = inputs
        ones = joined.new_ones(len(joined), 1, layer.query_heads, 1, requires_grad=True)
        masks[layer.index] = ones
        return ((joined.unflatten(-1, (layer.query_heads, -1)) * ones).flatten(-2), *rest)

    with ExitStack() as hooks, torch.enable_grad():
        for layer in geometry.layers:
            projection = geometry.output_projection(model, layer.index)
            hooks.callback(projection.register_forward_pre_hook(partial(mask, layer)).remove)
        for batch in batches:
            gradients = torch.autograd.grad(loss(batch), list(masks.values()))
            for index, gradient in zip(masks, gradients, strict=True):
                totals[index] += gradient.abs().sum((0, 1, 3)).float().cpu()
            rows += len(gradients[0])
            masks.clear()
    if not rows:
        raise ModelError("there is no text to compute gradients on; give some")
    return {layer: total / rows for layer, total in totals.items()}


def random_scores(geometry: HeadGeometry, seed: int) -> Scores:
    """Return uniform draws."""
    draw = torch.Generator().manual_seed(seed)
    return {layer.index: torch.rand(layer.query_heads, generator=draw) for layer in geometry.layers}
