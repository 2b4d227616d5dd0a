"""Head masks: pruning heads without touching a weight.

Pruning head h of a layer zeroes its slice of the attention output before the output projection
(SPRINT, arXiv 2506.03978, section 3): the projection's input, viewed as (batch, tokens,
query_heads, head_dim), is multiplied by a 0/1 mask over the heads. The mask has a row for each
row of the batch, so that one model in memory serves many variants in one batch.

A noise placebo goes the same way: at the same place a fixed random direction of unit length is
added, at each token as long as the slice of the head that it stands for. So it moves the input of
the output projection as far as pruning that head does, but nowhere in particular.
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
    """What is added to the rows of a batch at the input of one layer's output projection."""

    directions: Float[Tensor, "batch width"]
    """Of unit length; zero for a row without noise. The width is query_heads * head_dim."""
    heads: Int[Tensor, " batch"]
    """Whose norm scales each row's direction; any head for a row without noise."""

    def added_to(self, joined: Float[Tensor, "#batch tokens width"], head_dim: int) -> Tensor:
        """Return `joined` with noise, one row for each direction; others keep their bits."""
        norms = joined.unflatten(2, (-1, head_dim)).norm(dim=3, dtype=torch.float32)
        rows = max(len(norms), len(self.heads))
        chosen = self.heads[:, None, None].expand(rows, norms.shape[1], 1)
        scale = norms.expand(rows, -1, -1).gather(2, chosen).to(joined.dtype)
        return joined + scale * self.directions[:, None]


@dataclass(frozen=True)
class RowMasks:
    """What the rows of a batch change in one layer."""

    kept: Float[Tensor, "batch query_heads"]
    """One keeps a head, zero prunes it."""
    noise: Noise | None = None
    """None where no row has noise, which costs nothing then."""

    def on(self, like: Tensor) -> "RowMasks":
        """Return the same on the device and of the type of a tensor."""
        if self.kept.device == like.device and self.kept.dtype == like.dtype:
            return self
        noise = self.noise
        if noise is not None:
            noise = Noise(noise.directions.to(like), noise.heads.to(like.device))
        return RowMasks(self.kept.to(like), noise)

    def of(self, rows: Int[Tensor, " tokens"]) -> "RowMasks":
        """Return what each of some tokens changes, by the row that it belongs to."""
        noise = self.noise and Noise(self.noise.directions[rows], self.noise.heads[rows])
        return RowMasks(self.kept[rows], noise)

    def applied_to(self, joined: Float[Tensor, "#batch tokens width"]) -> Tensor:
        """Return the joined outputs of all heads, changed; one row becomes as many as these."""
        heads = joined.unflatten(2, (self.kept.shape[1], -1))
        changed = (heads * self.kept[:, None, :, None]).flatten(2)
        return changed if self.noise is None else self.noise.added_to(changed, heads.shape[3])


def variant_masks(
    geometry: HeadGeometry,
    variants: Sequence[Variant],
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> dict[int, RowMasks]:
    """Return what some row changes, by layer index; layers that none changes are left out.

    Args:
        geometry: the model's heads.
        variants: what each row of the batch prunes; the base model prunes nothing.
        device: where to make the masks.
        dtype: their type, best that of the model.

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
    """Return the direction of a noise placebo: random, of unit length, fixed by layer and head.

    Args:
        variant: a noise placebo.
        width: query_heads * head_dim of its layer.
    """
    draw = np.random.default_rng([variant.layer or 0, variant.head or 0])
    direction = torch.from_numpy(draw.standard_normal(width))
    return (direction / direction.norm()).float()


class HeadMasks:
    """Row masks on a model, in force inside a ``with`` block, that can be replaced at any step.

    Layers without a mask run as they are. A mask of one row holds for the whole batch; a batch of
    one row becomes as many as its mask has, which lets variants share the layers below. Multiplying
    by one is exact: a row without a pruned head is computed as if no mask were there.

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
        """Put other masks, by layer index, in the place of all present ones."""
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
        # Layers may lie on several devices: each mask moves once, not at every step.
        mask = self._masks[layer.index] = mask.on(joined)
        batch, rows = len(joined), len(mask.kept)
        if batch != 1 and rows not in (1, batch):
            raise ValueError(f"mask of layer {layer.index} has {rows} rows, not {batch}")
        return (mask.applied_to(joined), *rest)


@contextmanager
def pruned(
    model: nn.Module, geometry: HeadGeometry, variants: Variant | Sequence[Variant]
) -> Iterator[HeadMasks]:
    """Prune a model inside a ``with`` block: every row alike, or each row as its own variant.

    Args:
        model: the model; its weights are not touched.
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
    """Prune a head by zeroing the weights that read it, and put them back afterwards.

    The published way, and the reference that head masks are held against. It serves one variant
    at a time. A placebo prunes nothing.

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
