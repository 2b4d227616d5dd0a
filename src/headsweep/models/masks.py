"""Head masks: pruning heads, and other changes, without changing weights.

Pruning head h of a layer zeroes its slice of the attention output before the output projection
(SPRINT, arXiv 2506.03978, section 3): the projection's input, viewed as (batch, tokens,
query_heads, head_dim), is multiplied by a mask over the heads, 0 for a pruned head, 1.5 for one
that is scaled to 150%. The mask has a row for each row of the batch, so that one model in memory
serves many variants in one batch. A row that leaves a layer out gets the layer's input as output.

A noise placebo for a head adds a fixed random direction at the same place, scaled at each token so
that it changes the output of the projection by as much as pruning that head does
(`headsweep.models.noise`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headsweep.models.geometry import HeadGeometry, find_heads
from headsweep.models.noise import LayerNoise, layer_noise
from headsweep.variants import FAMILIES, Variant

_Model = TypeVar("_Model", bound=nn.Module)


@dataclass(frozen=True)
class RowMasks:
    """The changes that rows make in one layer."""

    factors: Float[Tensor, "rows query_heads"]  # 1 keeps a head, 0 prunes it
    sources: Float[Tensor, "rows query_heads"] | None = None
    """1 for the head whose noise a row has: d ‖W_h a_h‖ / ‖W d‖; None if no row has noise."""
    skipped: Float[Tensor, " rows"] | None = None
    """1 for a row that leaves the layer out; None if no row does."""
    noise: LayerNoise | None = None
    """What noise needs of the layer's weights; None if no row has noise."""

    def each(self, change: Callable[[Tensor], Tensor]) -> "RowMasks":
        """Return the same masks with every tensor of rows changed, as by an index of rows."""
        parts = {"factors": self.factors, "sources": self.sources, "skipped": self.skipped}
        changed = {name: change(part) for name, part in parts.items() if part is not None}
        return RowMasks(**changed, noise=self.noise)

    def to(self, device: torch.device | str, dtype: torch.dtype) -> "RowMasks":
        """Return the same masks for a model on a device, in a dtype."""
        noise = self.noise.to(device) if self.noise else None
        return replace(self.each(lambda part: part.to(device, dtype)), noise=noise)

    def applied_to(self, joined: Float[Tensor, "rows *tokens width"]) -> Tensor:
        """Return the changed outputs of all heads; a single row of masks holds for all."""
        heads = joined.unflatten(-1, (self.factors.shape[1], -1))
        token_axes = joined.ndim - 2
        factors = _for_tokens(self.factors, token_axes)
        changed = (heads * factors[..., None]).flatten(-2)
        if self.sources is None or self.noise is None:
            return changed
        lengths = self.noise.lengths(heads) * _for_tokens(self.sources, token_axes)
        return (changed + lengths @ self.noise.directions).to(joined.dtype)


def _for_tokens(of_rows: Tensor, token_axes: int) -> Tensor:
    """Insert axes of size 1 after the first, the rows: what a row has holds for all its tokens."""
    ones = [1] * token_axes
    return of_rows.view(len(of_rows), *ones, *of_rows.shape[1:])


def variant_masks(
    model: nn.Module,
    geometry: HeadGeometry,
    variants: Sequence[Variant],
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> dict[int, RowMasks]:
    """Return row masks, a row a variant, by index of the layers that some variant changes.

    Raises:
        ModelError: a variant's layer or head is out of range.
    """
    for variant in set(variants):
        geometry.check(variant)
    layers = sorted({index for variant in variants for index in variant.layers})
    if not layers:
        return {}
    heads = [geometry.layer(index).query_heads for index in layers]
    # Masks of all layers: [layers, unlike variants, heads]; for layers left out, without heads.
    unlike = {variant: number for number, variant in enumerate(dict.fromkeys(variants))}
    shape = (len(layers), len(unlike), max(heads))
    factors = np.ones(shape, np.float32)
    sources = np.zeros(shape, np.float32)
    skipped = np.zeros(shape[:2], np.float32)
    for variant, number in unlike.items():
        family = FAMILIES[variant.kind]
        for index in variant.layers:
            place = layers.index(index)
            edit = family.edit(variant)
            for head, factor in edit.factors.items():
                factors[place, number, head] = factor
            if edit.noise is not None:
                sources[place, number, edit.noise] = 1
            skipped[place, number] = family.skips
    number_of_row = np.fromiter(map(unlike.__getitem__, variants), np.intp, len(variants))

    def copied(values: np.ndarray) -> Tensor:
        """Copy a mask of all layers and rows at once: on a GPU each copy makes the host wait."""
        return torch.from_numpy(values[:, number_of_row]).to(device, dtype)

    all_factors = copied(factors)
    all_sources = copied(sources) if sources.any() else None
    all_skipped = copied(skipped) if skipped.any() else None
    masks = {}
    for place, index in enumerate(layers):
        row_masks = RowMasks(all_factors[place, :, : heads[place]])
        if all_sources is not None and sources[place].any():
            row_masks = replace(
                row_masks,
                sources=all_sources[place, :, : heads[place]],
                noise=layer_noise(model, geometry, index),  # on the device of the weights
            )
        if all_skipped is not None and skipped[place].any():
            row_masks = replace(row_masks, skipped=all_skipped[place])
        masks[index] = row_masks
    return masks


class HeadMasks(ExitStack):
    """Row masks on a model inside a ``with`` block, which `prune` can replace at any step.

    Layers without a mask are not changed. Multiplying by one is exact: rows without a pruned head
    are computed as without a mask.
    """

    def __init__(self, model: nn.Module, geometry: HeadGeometry) -> None:
        super().__init__()
        self._model = model
        self._geometry = geometry
        self._variants: Sequence[Variant] = ()
        self._masks: dict[int, RowMasks] = {}
        """By layer index."""

    def prune(self, variants: Sequence[Variant]) -> None:
        """Let each row of the next passes be of its variant; a single one holds for all rows."""
        unlike = variants if len(set(variants)) > 1 else variants[:1]
        if unlike != self._variants:
            self._masks = variant_masks(self._model, self._geometry, unlike)
            self._variants = unlike

    def __enter__(self) -> Self:
        for layer in self._geometry.layers:
            projection = self._geometry.output_projection(self._model, layer.index)
            mask = projection.register_forward_pre_hook(partial(self._mask, layer.index))
            block = self._model.get_submodule(layer.block)
            skip = block.register_forward_hook(partial(self._skip, layer.index), with_kwargs=True)
            self.callback(mask.remove)
            self.callback(skip.remove)
        return super().__enter__()

    def _mask(self, layer: int, _: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Any, ...] | None:
        mask = self._masks.get(layer)
        if mask is None:
            return None
        joined, *rest = inputs
        if (mask.factors.device, mask.factors.dtype) != (joined.device, joined.dtype):
            # Layers may be on several devices: each mask moves once, not at every step.
            mask = self._masks[layer] = mask.to(joined.device, joined.dtype)
        return (mask.applied_to(joined), *rest)

    def _skip(
        self, layer: int, _: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any
    ) -> Any:
        mask = self._masks.get(layer)
        if mask is None or mask.skipped is None:
            return None
        before = inputs[0] if inputs else named["hidden_states"]
        alone = isinstance(output, Tensor)
        after = output if alone else output[0]
        skipped = _for_tokens(mask.skipped, after.ndim - 1) > 0
        # Layers may be on several devices: the input still is where the layer before was.
        passed = torch.where(skipped, before.to(after.device), after)
        return passed if alone else (passed, *output[1:])


@contextmanager
def pruned(
    model: nn.Module, geometry: HeadGeometry, variants: Variant | Sequence[Variant]
) -> Iterator[HeadMasks]:
    """Prune a model inside a ``with`` block: all rows by one variant, or each row by its own."""
    with HeadMasks(model, geometry) as masks:
        masks.prune([variants] if isinstance(variants, Variant) else variants)
        yield masks


@contextmanager
def edited_weights(
    model: nn.Module, geometry: HeadGeometry, variant: Variant
) -> Iterator[nn.Module]:
    """Change weights as a variant changes activations, and restore them bit for bit at the end.

    A pruned head's weights in the output projection are zeroed (the published method), a scaled
    one's multiplied; a layer that is left out returns its input; noise is added to all weights
    (RandOpt, arXiv 2603.12228). One variant at a time: the reference for `HeadMasks`, and the way
    that noise on weights is answered. A placebo changes nothing.

    Raises:
        ModelError: the variant's layer or head is out of range.
    """
    geometry.check(variant)
    family = FAMILIES[variant.kind]
    if not (family.edit(variant).factors or family.skips or family.on_weights):
        yield model
        return
    masks = variant_masks(model, geometry, [variant])
    with ExitStack() as restored:
        for index, mask in masks.items():
            for head in torch.nonzero(mask.factors[0] != 1).flatten().tolist():
                columns = geometry.weights_that_read(model, index, head)
                restored.callback(columns.copy_, columns.clone())
                columns *= mask.factors[0, head].item()
        if any(mask.skipped is not None for mask in masks.values()):
            restored.enter_context(pruned(model, geometry, variant))
        if family.on_weights:
            for name, parameter in model.named_parameters():
                # The weights themselves stay as they are: workers share their memory.
                restored.callback(setattr, parameter, "data", parameter.data)
                draw = np.random.default_rng([variant.seed, *name.encode()])
                noise = torch.from_numpy(draw.standard_normal(parameter.shape, dtype=np.float32))
                noisy = noise.to(parameter.device).mul_(variant.scale * 1e-4).add_(parameter.data)
                parameter.data = noisy.to(parameter.dtype)
        yield model


@contextmanager
def without_head(model: _Model, layer: int, head: int) -> Iterator[_Model]:
    """Prune one attention head of a model inside a ``with`` block: `headsweep.pruned`.

        with headsweep.pruned(model, layer=5, head=3):
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
    eager = torch.compiler.set_stance("force_eager")
    with eager, pruned(plain, find_heads(plain), Variant(layer, head)):
        yield model
