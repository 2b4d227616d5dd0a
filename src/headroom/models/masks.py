"""Head masks: pruning heads without changing weights.

Pruning head h of a layer zeroes its slice of the attention output before the output projection
(SPRINT, arXiv 2506.03978, section 3): the projection's input, viewed as (batch, tokens,
query_heads, head_dim), is multiplied by a 0/1 mask over the heads. The mask has a row for each
row of the batch, so that one model in memory serves many variants in one batch.

A noise placebo for a head adds a fixed random direction at the same place, scaled at each token to
the norm of the head's slice. It changes the input of the output projection by as much as pruning
that head does, but in a random direction.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headroom.models.geometry import AttentionLayer, HeadGeometry
from headroom.variants import Variant


@dataclass(frozen=True)
class Noise:
    """Noise added to the rows of a batch at the input of one layer's output projection."""

    directions: Float[Tensor, "batch width"]
    """Unit vectors; zero for a row without noise. The width is query_heads * head_dim."""
    heads: Int[Tensor, " batch"]
    """The head whose norm scales each row's direction; any head for a row without noise."""

    def added_to(self, joined: Float[Tensor, "#batch tokens width"], head_dim: int) -> Tensor:
        """Return `joined` with noise; rows without noise are exactly as before."""
        norms = joined.unflatten(2, (-1, head_dim)).norm(dim=3, dtype=torch.float32)
        rows = max(len(norms), len(self.heads))
        chosen = self.heads[:, None, None].expand(rows, norms.shape[1], 1)
        scale = norms.expand(rows, -1, -1).gather(2, chosen).to(joined.dtype)
        return joined + scale * self.directions[:, None]


@dataclass(frozen=True)
class RowMasks:
    """The changes that the rows of a batch make in one layer."""

    kept: Float[Tensor, "batch query_heads"]
    """1 keeps a head, 0 prunes it."""
    noise: Noise | None = None
    """None if no row has noise."""

    def on(self, like: Tensor) -> "RowMasks":
        """Return the same masks with the device and dtype of a tensor."""
        if self.kept.device == like.device and self.kept.dtype == like.dtype:
            return self
        noise = self.noise
        if noise is not None:
            noise = Noise(noise.directions.to(like), noise.heads.to(like.device))
        return RowMasks(self.kept.to(like), noise)

    def of(self, rows: Int[Tensor, " tokens"]) -> "RowMasks":
        """Return one mask for each token, that of the row to which the token belongs."""
        noise = self.noise and Noise(self.noise.directions[rows], self.noise.heads[rows])
        return RowMasks(self.kept[rows], noise)

    def applied_to(self, joined: Float[Tensor, "#batch tokens width"]) -> Tensor:
        """Return the changed outputs of all heads; a single input row is broadcast to all rows."""
        heads = joined.unflatten(2, (self.kept.shape[1], -1))
        changed = (heads * self.kept[:, None, :, None]).flatten(2)
        return changed if self.noise is None else self.noise.added_to(changed, heads.shape[3])


def variant_masks(
    geometry: HeadGeometry,
    variants: Sequence[Variant],
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> dict[int, RowMasks]:
    """Return row masks by layer index, for the layers that some variant changes.

    Args:
        geometry: the model's heads.
        variants: the variant of each row of the batch; the base model prunes nothing.
        device: device of the masks.
        dtype: their dtype, best that of the model.

    Raises:
        ModelError: a variant's layer or head is out of range.
    """
    for variant in set(variants):
        geometry.check(variant)
    like = torch.empty(0, device=device, dtype=dtype)
    changed = {variant.layer for variant in variants if variant.layer is not None}
    return {
        index: _row_masks(geometry.layer(index), variants).on(like) for index in sorted(changed)
    }


def _row_masks(layer: AttentionLayer, variants: Sequence[Variant]) -> RowMasks:
    kept = torch.ones(len(variants), layer.query_heads)
    changed = [(row, each) for row, each in enumerate(variants) if each.layer == layer.index]
    pruned = [(row, each.head) for row, each in changed if each.kind == "head"]
    if pruned:
        kept[tuple(zip(*pruned, strict=True))] = 0
    if not any(each.noise for _, each in changed):
        return RowMasks(kept)
    directions = torch.zeros(len(variants), layer.width)
    heads = torch.zeros(len(variants), dtype=torch.long)
    for row, each in changed:
        if each.noise and each.head is not None:
            directions[row] = noise_direction(each, layer.width)
            heads[row] = each.head
    return RowMasks(kept, Noise(directions, heads))


@lru_cache(maxsize=4096)
def noise_direction(variant: Variant, width: int) -> Float[Tensor, " width"]:
    """Return the direction of a noise placebo: a random unit vector, fixed by layer and head.

    Args:
        variant: a noise placebo.
        width: query_heads * head_dim of its layer.
    """
    draw = np.random.default_rng([variant.layer or 0, variant.head or 0])
    direction = torch.from_numpy(draw.standard_normal(width))
    return (direction / direction.norm()).float()


class HeadMasks:
    """Row masks on a model inside a ``with`` block; they can be replaced at any step.

    Layers without a mask are not changed. A mask of one row holds for the whole batch. A batch of
    one row is broadcast to the rows of its mask, so that variants share the layers below.
    Multiplying by one is exact: rows without a pruned head are computed as without a mask.

        with HeadMasks(model, geometry) as masks:
            masks.replace(variant_masks(geometry, variants, model.device, model.dtype))
            model(...)  # any number of forward passes of len(variants) rows
    """

    def __init__(self, model: nn.Module, geometry: HeadGeometry) -> None:
        self._model = model
        self._geometry = geometry
        self._masks: dict[int, RowMasks] = {}
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def replace(self, masks: Mapping[int, RowMasks]) -> None:
        """Replace all masks by others, given by layer index."""
        self._masks = dict(masks)

    def __enter__(self) -> "HeadMasks":
        for layer in self._geometry.layers:
            projection = self._geometry.output_projection(self._model, layer.index)
            hook = projection.register_forward_pre_hook(partial(self._mask, layer))
            self._handles.append(hook)
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _mask(
        self, layer: AttentionLayer, _: nn.Module, inputs: tuple[Tensor, ...]
    ) -> tuple[Any, ...] | None:
        mask = self._masks.get(layer.index)
        if mask is None:
            return None
        joined, *rest = inputs
        # Layers may be on several devices: each mask moves once, not at every step.
        mask = self._masks[layer.index] = mask.on(joined)
        batch, rows = len(joined), len(mask.kept)
        if batch != 1 and rows not in (1, batch):
            raise ValueError(f"mask of layer {layer.index} has {rows} rows, not {batch}")
        return (mask.applied_to(joined), *rest)


@contextmanager
def pruned(
    model: nn.Module, geometry: HeadGeometry, variants: Variant | Sequence[Variant]
) -> Iterator[HeadMasks]:
    """Prune a model inside a ``with`` block: all rows alike, or each row as its own variant.

    Args:
        model: the model; its weights are not changed.
        geometry: its heads.
        variants: one variant for all rows of any batch, or one for each row.

    Raises:
        ModelError: a variant's layer or head is out of range.
    """
    rows = [variants] if isinstance(variants, Variant) else variants
    with HeadMasks(model, geometry) as masks:
        masks.replace(variant_masks(geometry, rows))
        yield masks


@contextmanager
def zero_head_weights(
    model: nn.Module, geometry: HeadGeometry, variant: Variant
) -> Iterator[nn.Module]:
    """Prune a head by zeroing the weights that read its output, and restore them at the end.

    This is the published method, one variant at a time, and the reference for testing head masks.
    A placebo prunes nothing.

    Raises:
        ModelError: the variant's layer or head is out of range.
    """
    geometry.check(variant)
    if variant.layer is None or variant.head is None or variant.kind != "head":
        yield model
        return
    columns = geometry.weights_that_read(model, variant.layer, variant.head)
    kept = columns.clone()
    columns.zero_()
    try:
        yield model
    finally:
        columns.copy_(kept)
