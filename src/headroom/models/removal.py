"""Structural removal: attention heads are cut out of a model's weights, which get smaller.

A head owns rows of the projections before attention, which `headroom.models.readers` finds, and
columns of the output projection; both are removed. The smaller model's outputs must then equal
those of the model with these heads masked; otherwise the removal is undone.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headroom.errors import ModelError
from headroom.models.geometry import AttentionLayer, HeadGeometry
from headroom.models.masks import pruned
from headroom.models.readers import Readers, cannot_cut, find_readers, run_on_tokens
from headroom.variants import Variant

_Sizes = Mapping[str, Callable[[AttentionLayer], int]]
_COUNTS: _Sizes = {
    **dict.fromkeys(
        ("num_heads", "num_attention_heads", "n_heads", "n_head"),
        lambda layer: layer.query_heads,
    ),
    **dict.fromkeys(
        ("num_key_value_heads", "num_kv_heads", "kv_heads"), lambda layer: layer.kv_heads
    ),
}
_WIDTHS: _Sizes = {
    "num_key_value_groups": lambda layer: layer.query_heads // layer.kv_heads,
    **dict.fromkeys(("all_head_size", "split_size", "embed_dim"), lambda layer: layer.width),
    "kv_dim": lambda layer: layer.kv_heads * layer.head_dim,
}
"""Attributes of transformers' attention modules that shrink with the heads; the counts are also in
the config."""

_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8}
"""Relative difference allowed for another order of summation; half precision has 0.05."""


def remove_heads(
    model: PreTrainedModel, geometry: HeadGeometry, heads: Iterable[Variant]
) -> HeadGeometry:
    """Cut heads out of a model, in place, and return its new geometry.

    A key/value head is removed with the last query head that reads it. The remaining heads'
    original numbers are written to the model's config. Parameters are replaced, so optimizers have
    to be made again.

    Args:
        model: an encoder or decoder with loaded weights.
        geometry: its heads.
        heads: the heads to remove, by their present numbers.

    Raises:
        ModelError: a head is unknown, a layer would be left without heads, groups of query heads
            would become unequal, or the architecture cannot be cut. The model is then unchanged.
    """
    heads = set(heads)
    smaller = without(geometry, heads)
    rows = find_readers(model, geometry)
    with ExitStack() as masks:
        for head in heads:
            masks.enter_context(pruned(model, geometry, head))
        masked = _outputs(model)
    edits = _Edits()
    try:
        for old, new in zip(geometry.layers, smaller.layers, strict=True):
            if new != old:
                _cut(edits, model, old, new, rows[old.index])
        cut = _outputs(model)
    except (RuntimeError, ValueError, IndexError) as error:  # shapes do not fit any more
        edits.undo()
        reason = str(error).partition("\n")[0]
        raise cannot_cut(model, reason) from error
    if not _close(cut, masked):
        edits.undo()
        raise cannot_cut(model, "the smaller model computes something else")
    _own_config(model).kept_heads = {
        str(layer.index): list(layer.kept) for layer in smaller.layers if layer.kept
    }
    return smaller


def without(geometry: HeadGeometry, heads: Iterable[Variant]) -> HeadGeometry:
    """Return the geometry after removing heads.

    Raises:
        ModelError: a head is unknown, a layer would be left without heads, or groups of query
            heads that share a key/value head would become unequal.
    """
    removed: dict[int, set[int]] = defaultdict(set)
    for layer, head in _checked(geometry, heads):
        removed[layer.index].add(head)
    layers = (
        _without(layer, removed[layer.index]) if layer.index in removed else layer
        for layer in geometry.layers
    )
    return replace(geometry, layers=tuple(layers))


def _checked(
    geometry: HeadGeometry, heads: Iterable[Variant]
) -> Iterator[tuple[AttentionLayer, int]]:
    """Yield the layer and number of each head.

    Raises:
        ModelError: the model has no such head.
    """
    for variant in heads:
        if variant.kind != "head" or variant.layer is None or variant.head is None:
            raise ModelError(f"{variant} names no head to remove; write layer and head: L05H03")
        geometry.check(variant)
        yield geometry.layer(variant.layer), variant.head


def _without(layer: AttentionLayer, removed: set[int]) -> AttentionLayer:
    group = layer.query_heads // layer.kv_heads
    left = [head for head in range(layer.query_heads) if head not in removed]
    sizes = [sum(head // group == kv for head in left) for kv in range(layer.kv_heads)]
    remaining = {size for size in sizes if size}
    if not remaining:
        raise ModelError(
            f"layer {layer.index} would lose all of its {layer.query_heads} heads; "
            f"keep at least one, or lower the ratio"
        )
    if len(remaining) > 1:
        raise ModelError(
            f"layer {layer.index} would keep {', '.join(map(str, sizes))} query heads in its "
            f"{layer.kv_heads} groups; remove whole groups of {group}, or equally many in each"
        )
    return replace(
        layer,
        query_heads=len(left),
        kv_heads=sum(map(bool, sizes)),
        kept=tuple(layer.original_heads[head] for head in left),
    )


def surviving_heads(before: HeadGeometry, after: HeadGeometry) -> dict[int, list[int]]:
    """Return the positions that a pruned model's heads had in an earlier stage of it, by layer.

    `attention[:, surviving_heads(teacher, student)[layer]]` of a teacher's attention selects the
    student's heads in the student's order.
    """
    return {
        old.index: _positions(old, new)
        for old, new in zip(before.layers, after.layers, strict=True)
    }


def _positions(old: AttentionLayer, new: AttentionLayer) -> list[int]:
    return [old.original_heads.index(head) for head in new.original_heads]


def zero_heads(model: nn.Module, geometry: HeadGeometry, heads: Iterable[Variant]) -> None:
    """Zero the output projections' columns that read heads, permanently; shapes stay.

    Raises:
        ModelError: a head is unknown.
    """
    for layer, head in list(_checked(geometry, heads)):
        geometry.weights_that_read(model, layer.index, head).zero_()


def _cut(
    edits: "_Edits",
    model: PreTrainedModel,
    old: AttentionLayer,
    new: AttentionLayer,
    readers: Readers,
) -> None:
    """Take the removed heads out of one layer."""
    left = torch.tensor(_positions(old, new))
    for name, rows in readers.items():
        module = model.get_submodule(name)
        _take(edits, module, rows[:, left].any(1).nonzero()[:, 0], inputs=False)
    for name in {name.rpartition(".")[0] for name in readers}:
        attention = model.get_submodule(name)
        _recount(edits, attention, old, new)
        for own, parameter in attention.named_parameters(recurse=False):
            if parameter.shape == (old.query_heads,):  # an attention sink for each head
                edits.parameter(attention, own, parameter[left.to(parameter.device)])
    columns = torch.arange(old.width).view(old.query_heads, -1)[left].flatten()
    _take(edits, model.get_submodule(old.name), columns, inputs=True)


def _take(edits: "_Edits", module: nn.Module, index: Tensor, *, inputs: bool) -> None:
    """Keep some input or output features of a linear layer."""
    weight: Tensor = module.get_parameter("weight")
    transposed = isinstance(module, Conv1D)
    names = ("nf", "nx") if transposed else ("out_features", "in_features")
    if not weight.is_floating_point() or weight.ndim != 2:
        raise ValueError(f"{type(module).__name__} holds quantised weights")
    index = index.to(weight.device)
    edits.parameter(module, "weight", weight.index_select(int(inputs != transposed), index))
    if not inputs and module.bias is not None:
        edits.parameter(module, "bias", module.get_parameter("bias")[index])
    edits.set(module, names[inputs], len(index))


def _recount(
    edits: "_Edits", attention: nn.Module, old: AttentionLayer, new: AttentionLayer
) -> None:
    """Set an attention module's counts of heads, and those of its config, to what is left."""

    def changed(owner: Any, sizes: _Sizes) -> dict[str, int]:
        return {
            name: size(new)
            for name, size in sizes.items()
            if getattr(owner, name, None) == size(old)
        }

    for name, count in changed(attention, {**_COUNTS, **_WIDTHS}).items():
        edits.set(attention, name, count)
    config = getattr(attention, "config", None)
    if config is not None:
        edits.set(attention, "config", LayerConfig(config, changed(config, _COUNTS)))


class LayerConfig:
    """A view of a model's config for one layer, with its own counts of heads."""

    def __init__(self, config: Any, own: Mapping[str, int]) -> None:
        nested = isinstance(config, LayerConfig)
        self.shared = config.shared if nested else config
        self.own = {**config.own, **own} if nested else dict(own)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("shared", "own"):  # `copy` asks before they are set
            raise AttributeError(name)
        return self.own[name] if name in self.own else getattr(self.shared, name)


def _own_config(model: PreTrainedModel) -> Any:
    """Give a model its own copy of a config that others may share; return the copy's text part."""
    shared, own = model.config, copy.deepcopy(model.config)
    copies = {id(shared): own, id(shared.get_text_config()): own.get_text_config()}
    for module in model.modules():
        config = getattr(module, "config", None)
        if id(config) in copies:
            module.config = copies[id(config)]
        elif isinstance(config, LayerConfig) and id(config.shared) in copies:
            config.shared = copies[id(config.shared)]
    return own.get_text_config()


@dataclass
class _Edits:
    """Changes of attributes that can be undone."""

    before: list[tuple[nn.Module, str, Any]] = field(default_factory=list)

    def set(self, module: nn.Module, name: str, value: Any) -> None:
        self.before.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    def parameter(self, module: nn.Module, name: str, value: Tensor) -> None:
        trained = module.get_parameter(name).requires_grad
        self.set(module, name, nn.Parameter(value.detach(), requires_grad=trained))

    def undo(self) -> None:
        for module, name, value in reversed(self.before):
            setattr(module, name, value)


def _outputs(model: PreTrainedModel) -> Tensor:
    with torch.no_grad():
        return run_on_tokens(model)[0]


def _close(found: Tensor, expected: Tensor) -> bool:
    tolerance = _TOLERANCE.get(expected.dtype, 0.05)
    difference = (found.float() - expected.float()).norm()
    return bool(difference <= tolerance * expected.float().norm())
