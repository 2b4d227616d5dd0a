"""Structural removal: attention heads are cut out of a model's weights, which get smaller.

A head owns rows of the projections before attention and columns of the output projection; both are
removed. The smaller model's outputs must then equal those of the model with these heads masked.
"""

import copy
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headsweep.errors import ModelError
from headsweep.models.geometry import AttentionLayer, HeadGeometry, find_heads
from headsweep.models.masks import pruned
from headsweep.models.readers import Readers, cannot_cut, find_readers, trial_outputs
from headsweep.variants import Variant


class Cut(NamedTuple):
    """What `remove_heads` does to a layer."""

    old: AttentionLayer
    new: AttentionLayer
    left: Int[Tensor, " query_heads"]  # present numbers of the heads that stay
    rows: Readers


def _counts(layer: AttentionLayer) -> dict[str, int]:
    """Return a layer's counts of heads, by their names in transformers' modules and configs."""
    queries = ("num_heads", "num_attention_heads", "n_heads", "n_head")
    keys = ("num_key_value_heads", "num_kv_heads", "kv_heads")
    return dict.fromkeys(queries, layer.query_heads) | dict.fromkeys(keys, layer.kv_heads)


def _sizes(layer: AttentionLayer) -> dict[str, int]:
    """Return these counts, and the widths that transformers' attention modules have besides."""
    widths = dict.fromkeys(("all_head_size", "split_size", "embed_dim"), layer.width)
    groups = {"num_key_value_groups": layer.query_heads // layer.kv_heads}
    return _counts(layer) | widths | groups | {"kv_dim": layer.kv_heads * layer.head_dim}


_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8}
"""Relative difference allowed for another order of summation; half precision has 0.05."""


@torch.no_grad()
def remove_heads(
    model: PreTrainedModel, geometry: HeadGeometry, heads: Iterable[Variant]
) -> HeadGeometry:
    """Cut heads, by their present numbers, out of a model, in place; return its new geometry.

    A key/value head is removed with the last query head that reads it. The remaining heads'
    original numbers are written to the model's config. Parameters are replaced, so optimizers have
    to be made again; a new parameter's `taken`, an axis and indices, says which part of an
    optimizer's moments is its own.

    Raises:
        ModelError: a head is unknown, a layer would be left without heads, groups of query heads
            would become unequal, or the architecture cannot be cut; the model is then as it was.
    """
    heads = set(heads)
    smaller = without(geometry, heads)
    cuts = find_cuts(model, geometry, smaller)
    with ExitStack() as masks:
        for head in heads:
            masks.enter_context(pruned(model, geometry, head))
        masked = trial_outputs(model)
    with _unchanged_by_errors(model):
        try:
            cut_layers(model, cuts)
            cut = trial_outputs(model)
        except (RuntimeError, ValueError, IndexError) as error:  # shapes do not fit any more
            raise cannot_cut(model, str(error).partition("\n")[0]) from error
        if not _nearly_equal(cut, masked):
            raise cannot_cut(model, "the smaller model computes something else")
    _own_config(model).kept_heads = {
        str(layer.index): list(layer.kept) for layer in smaller.layers if layer.kept
    }
    return smaller


@contextmanager
def _unchanged_by_errors(model: nn.Module) -> Iterator[None]:
    """Give a model's modules their attributes and parameters of before back if a cut fails."""
    before = [
        (module, {**vars(module), "_parameters": {**module._parameters}})
        for module in model.modules()
    ]
    try:
        yield
    except BaseException:
        for module, attributes in before:
            vars(module).clear()
            vars(module).update(attributes)
        raise


def equal_outputs(model: PreTrainedModel, other: PreTrainedModel) -> bool:
    """Return whether two models compute the same, but for the order of summation."""
    with torch.no_grad():
        return _nearly_equal(trial_outputs(model), trial_outputs(other))


def _nearly_equal(output: Tensor, expected: Tensor) -> bool:
    difference = output.float().cpu() - expected.float().cpu()
    tolerance = _TOLERANCE.get(expected.dtype, 0.05)
    return bool(difference.norm() <= tolerance * expected.float().norm().cpu())


def keep_heads(model: PreTrainedModel, kept: Mapping[str, Sequence[int]]) -> None:
    """Cut a model, in place, to the heads that `kept_heads` of a smaller one's config lists.

    Raises:
        ModelError: the model cannot be cut so (see `remove_heads`).
    """
    geometry = find_heads(model)
    if gone := absent_heads(geometry, kept):
        remove_heads(model, geometry, gone)


def absent_heads(geometry: HeadGeometry, kept: Mapping[str, Sequence[int]]) -> list[Variant]:
    """Return the heads that are not among the `kept_heads` of a smaller model's config."""
    return [
        Variant(layer.index, place)
        for layer in geometry.layers
        for place, head in enumerate(layer.original_heads)
        if head not in kept.get(str(layer.index), [head])
    ]


def without(geometry: HeadGeometry, heads: Iterable[Variant]) -> HeadGeometry:
    """Return the geometry after removing heads.

    Raises:
        ModelError: a head is unknown, a layer would be left without heads, or groups of query
            heads that share a key/value head would become unequal.
    """
    removed: dict[int, set[int]] = defaultdict(set)
    for layer, head in _checked(geometry, heads):
        removed[layer.index].add(head)
    return replace(
        geometry, layers=tuple(_without(layer, removed[layer.index]) for layer in geometry.layers)
    )


def _checked(
    geometry: HeadGeometry, heads: Iterable[Variant]
) -> Iterator[tuple[AttentionLayer, int]]:
    """Yield the layer and number of each head; raise a ModelError if the model has no such head."""
    for variant in heads:
        if variant.kind != "head" or variant.layer is None or variant.head is None:
            raise ModelError(f"{variant} names no head to remove; write layer and head: L05H03")
        geometry.check(variant)
        yield geometry.layer(variant.layer), variant.head


def _without(layer: AttentionLayer, removed: set[int]) -> AttentionLayer:
    if not removed:
        return layer
    group = layer.query_heads // layer.kv_heads
    left = [head for head in range(layer.query_heads) if head not in removed]
    sizes = [sum(head // group == kv for head in left) for kv in range(layer.kv_heads)]
    if not left:
        raise ModelError(
            f"layer {layer.index} would lose all of its {layer.query_heads} heads; "
            f"keep at least one, or lower the ratio"
        )
    if len({*sizes} - {0}) > 1:
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
    """Return by layer the positions that a pruned model's heads had in an earlier stage of it."""
    return {
        old.index: [old.original_heads.index(head) for head in new.original_heads]
        for old, new in zip(before.layers, after.layers, strict=True)
    }


def zero_heads(model: nn.Module, geometry: HeadGeometry, heads: Iterable[Variant]) -> None:
    """Zero the output projections' columns that read heads, permanently; shapes stay.

    Raises:
        ModelError: a head is unknown.
    """
    for layer, head in list(_checked(geometry, heads)):
        geometry.weights_that_read(model, layer.index, head).zero_()


def find_cuts(model: PreTrainedModel, before: HeadGeometry, after: HeadGeometry) -> list[Cut]:
    """Return how the layers that lose heads are to be cut.

    Raises:
        ModelError: heads are mixed before attention, so that rows do not belong to single heads.
    """
    rows, places = find_readers(model, before), surviving_heads(before, after)
    return [
        Cut(old, new, torch.tensor(places[old.index]), rows[old.index])
        for old, new in zip(before.layers, after.layers, strict=True)
        if new != old
    ]


def cut_layers(model: PreTrainedModel, cuts: Iterable[Cut]) -> None:
    """Cut heads out of a model, in place; its weights may be on the device ``meta``."""
    for cut in cuts:
        _cut(model, cut)


def _cut(model: PreTrainedModel, cut: Cut) -> None:
    for name, readers in cut.rows.items():
        kept = readers[:, cut.left].any(1).nonzero()[:, 0]
        _keep_outputs(model.get_submodule(name), kept)
    owners = {name.rpartition(".")[0] for name in cut.rows}
    for owner in owners:
        attention = model.get_submodule(owner)
        for attribute, parameter in list(attention.named_parameters(recurse=False)):
            if parameter.shape == (cut.old.query_heads,):  # an attention sink for each head
                _set(attention, attribute, 0, cut.left)
        for attribute, size in _changed(attention, _sizes(cut.old), _sizes(cut.new)).items():
            setattr(attention, attribute, size)
        if (config := getattr(attention, "config", None)) is not None:
            attention.config = LayerConfig(
                config, _changed(config, _counts(cut.old), _counts(cut.new))
            )
    columns = torch.arange(cut.old.width).view(cut.old.query_heads, -1)[cut.left].flatten()
    _keep_inputs(model.get_submodule(cut.old.name), columns)


def _changed(owner: Any, old: Mapping[str, int], new: Mapping[str, int]) -> dict[str, int]:
    """Return new values of the attributes that have the old ones."""
    return {name: new[name] for name in old if getattr(owner, name, None) == old[name]}


def _keep_outputs(module: nn.Module, kept: Tensor) -> None:
    """Keep some output features of a linear layer."""
    is_transposed = isinstance(module, Conv1D)
    _cut_weight(module, kept, axis=1 if is_transposed else 0)
    if module.bias is not None:
        _set(module, "bias", 0, kept)
    setattr(module, "nf" if is_transposed else "out_features", len(kept))


def _keep_inputs(module: nn.Module, kept: Tensor) -> None:
    """Keep some input features of a linear layer."""
    is_transposed = isinstance(module, Conv1D)
    _cut_weight(module, kept, axis=0 if is_transposed else 1)
    setattr(module, "nx" if is_transposed else "in_features", len(kept))


def _cut_weight(module: nn.Module, kept: Tensor, *, axis: int) -> None:
    """Keep some rows (axis 0) or columns (axis 1) of a linear layer's weight."""
    weight = module.get_parameter("weight")
    if not weight.is_floating_point() or weight.ndim != 2:
        raise ValueError(f"{type(module).__name__} holds quantised weights")
    _set(module, "weight", axis, kept)


def _set(module: nn.Module, name: str, axis: int, index: Tensor) -> None:
    """Replace a parameter by a part of it, which notes as `taken` what part it is."""
    old = module.get_parameter(name)
    index = index.to(old.device)
    value = old.detach().index_select(axis, index)
    new = nn.Parameter(value, requires_grad=old.requires_grad)
    new.taken = axis, index  # type: ignore[attr-defined]
    setattr(module, name, new)


class LayerConfig:
    """A view of a model's config for one layer, with its own counts of heads."""

    def __init__(self, config: Any, counts: Mapping[str, int]) -> None:
        nested = isinstance(config, LayerConfig)
        self.shared = config.shared if nested else config
        self.counts = {**config.counts, **counts} if nested else dict(counts)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("shared", "counts"):  # `copy` asks before they are set
            raise AttributeError(name)
        return self.counts[name] if name in self.counts else getattr(self.shared, name)


def _own_config(model: PreTrainedModel) -> Any:
    """Give a model its own copy of a config that others may share; return the copy's text part."""
    shared = model.config
    copied = copy.deepcopy(model.config)
    copies = {id(shared): copied, id(shared.get_text_config()): copied.get_text_config()}
    for module in model.modules():
        config = getattr(module, "config", None)
        if id(config) in copies:
            module.config = copies[id(config)]
        elif isinstance(config, LayerConfig) and id(config.shared) in copies:
            config.shared = copies[id(config.shared)]
    return copied.get_text_config()
