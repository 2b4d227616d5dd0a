"""Head masks: pruning heads without touching a weight.

Pruning head h of a layer zeroes its slice of the attention output before the output projection
(SPRINT, arXiv 2506.03978, section 3): the projection's input, viewed as (batch, tokens,
query_heads, head_dim), is multiplied by a 0/1 mask over the heads. The mask has a row for each
row of the batch, so that one model in memory serves many variants in one batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from headroom.models.geometry import AttentionLayer, HeadGeometry
from headroom.variants import Variant


def variant_masks(
    geometry: HeadGeometry,
    variants: Sequence[Variant],
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> dict[int, Tensor]:
    """Return the masks [batch, query_heads] of the layers that some row prunes, by layer index.

    One keeps a head, zero prunes it.

    Args:
        geometry: the model's heads.
        variants: what each row of the batch prunes; the base model prunes nothing.
        device: where to make the masks.
        dtype: their type, best that of the model.

    Raises:
        ModelError: a variant's layer or head is out of range.
    """
    masks: dict[int, Tensor] = {}
    for row, variant in enumerate(variants):
        geometry.check(variant)
        if variant.layer is None:
            continue
        if variant.layer not in masks:
            shape = len(variants), geometry.layer(variant.layer).query_heads
            masks[variant.layer] = torch.ones(shape, device=device, dtype=dtype)
        masks[variant.layer][row, variant.head] = 0
    return masks


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
        self._masks: dict[int, Tensor] = {}
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def replace(self, masks: Mapping[int, Tensor]) -> None:
        """Put other masks [batch, query_heads], by layer index, in the place of all present ones.

        Raises:
            ModelError: a layer has no attention.
            ValueError: a mask is not of shape (batch, query_heads).
        """
        for index, mask in masks.items():
            query_heads = self._geometry.layer(index).query_heads
            if mask.ndim != 2 or mask.shape[1] != query_heads:
                raise ValueError(
                    f"mask of layer {index} has shape {tuple(mask.shape)}, "
                    f"not (batch, {query_heads})"
                )
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
        if mask.device != joined.device or mask.dtype != joined.dtype:
            # Layers may lie on several devices: each mask moves once, not at every step.
            mask = self._masks[layer.index] = mask.to(joined)
        batch, tokens, _width = joined.shape
        if batch != 1 and mask.shape[0] not in (1, batch):
            raise ValueError(f"mask of layer {layer.index} has {mask.shape[0]} rows, not {batch}")
        heads = joined.reshape(batch, tokens, layer.query_heads, layer.head_dim)
        return ((heads * mask[:, None, :, None]).flatten(2), *rest)


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
    at a time.

    Raises:
        ModelError: the variant's layer or head is out of range.
    """
    geometry.check(variant)
    if variant.layer is None or variant.head is None:
        yield model
        return
    projection = geometry.output_projection(model, variant.layer)
    weight: Tensor = projection.get_parameter("weight").data
    if isinstance(projection, Conv1D):  # stores its weight as (input, output)
        weight = weight.T
    columns = weight[:, geometry.layer(variant.layer).columns(variant.head)]
    kept = columns.clone()
    columns.zero_()
    try:
        yield model
    finally:
        columns.copy_(kept)
