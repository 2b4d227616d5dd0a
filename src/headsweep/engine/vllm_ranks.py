"""What each process of a model in vLLM changes in its part of the model.

With tensor parallelism (Shoeybi et al., arXiv 1909.08053, section 3) rank r of n holds the r-th
n-th of an attention layer's query heads, and of the output projection the columns that read them;
the ranks' products are summed. So a head is pruned, or scaled, by the one rank that holds it. A
layer is left out by all ranks: its attention and its MLP then add nothing to the residual stream.

On GPUs weights are changed in place, and put back from a copy. CPU builds of vLLM keep weights in
an order of their own, and quantised ones are no plain numbers: there hooks change what goes into
the projections. Hooks need `enforce_eager`.

Nothing here imports vLLM: its functions are sent to the ranks, which call them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

_ATTENTION = "model.layers.{layer}.self_attn.o_proj"
_MLP = "model.layers.{layer}.mlp.down_proj"
_PLAIN = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class LayerEdit:
    """What a variant changes in one layer."""

    factors: Mapping[int, float]  # what the outputs of query heads are multiplied by, by head
    skipped: bool  # whether the layer's output is its input


@dataclass(frozen=True)
class RankLayers:
    """The layers in which a rank can change something."""

    model: str  # the class, as vLLM names it
    with_heads: frozenset[int]
    skippable: frozenset[int]


class RankModel:
    """A rank's part of a model, whose heads and layers `edit` changes.

    The projections are vLLM's `RowParallelLinear`: they have `tp_rank` and `tp_size`, and take
    their part of the input, [tokens, width / tp_size]. Weights are changed where they are plain
    numbers on a GPU, elsewhere what goes into them.

    Args:
        model: as vLLM has built it.
        query_heads: in each layer, of all ranks together.
        depth: number of layers.
    """

    def __init__(self, model: nn.Module, query_heads: int, depth: int) -> None:
        self._model = type(model).__name__
        self._query_heads = query_heads
        modules: dict[str, Any] = dict(model.named_modules())
        names = {layer: _ATTENTION.format(layer=layer) for layer in range(depth)}
        self._attention = {layer: modules[name] for layer, name in names.items() if name in modules}
        names = {layer: _MLP.format(layer=layer) for layer in range(depth)}
        self._mlps = {layer: modules[name] for layer, name in names.items() if name in modules}
        projections = [*self._attention.values(), *self._mlps.values()]
        self._in_place = all(_is_plain(projection) for projection in projections)
        self._edits: Mapping[int, LayerEdit] = {}
        self._originals: list[tuple[Tensor, Tensor]] = []
        """Parts of weights that are changed, each with a copy of what it was."""
        if not self._in_place:
            self._hang_hooks()

    @property
    def layers(self) -> RankLayers:
        """The layers in which something can be changed here."""
        skippable = self._attention.keys() & self._mlps.keys()
        return RankLayers(self._model, frozenset(self._attention), frozenset(skippable))

    @torch.inference_mode()
    def edit(self, edits: Mapping[int, LayerEdit]) -> int:
        """Change these layers, and no others from now on; return how many heads were changed."""
        for part, original in reversed(self._originals):
            part.copy_(original)
        self._originals.clear()
        self._edits = edits
        changed = 0
        for layer, edit in edits.items():
            factors = self._own_factors(layer, edit)
            changed += len(factors)
            if self._in_place:
                self._edit_weights(layer, edit.skipped, factors)
        return changed

    def _own_factors(self, layer: int, edit: LayerEdit) -> dict[int, float]:
        """Return the factors of the heads that this rank holds, counted from its first one."""
        projection = self._attention[layer]
        count = self._query_heads // projection.tp_size
        first = projection.tp_rank * count
        return {
            head - first: factor
            for head, factor in edit.factors.items()
            if first <= head < first + count
        }

    def _edit_weights(self, layer: int, skipped: bool, factors: Mapping[int, float]) -> None:
        projection = self._attention[layer]
        heads = projection.weight.data.unflatten(1, (self._query_heads // projection.tp_size, -1))
        for head, factor in factors.items():
            self._multiply(heads[:, head], factor)
        if skipped:
            for part in (projection, self._mlps[layer]):
                self._multiply(part.weight.data, 0.0)
                if part.bias is not None:
                    self._multiply(part.bias.data, 0.0)

    def _multiply(self, part: Tensor, factor: float) -> None:
        self._originals.append((part, part.clone()))
        if factor == 0:
            part.zero_()
        else:
            part.mul_(factor)

    def _hang_hooks(self) -> None:
        for layer, projection in self._attention.items():
            projection.register_forward_pre_hook(partial(self._mask, layer))
            projection.register_forward_hook(partial(self._skip, layer))
        for layer, projection in self._mlps.items():
            projection.register_forward_hook(partial(self._skip, layer))

    def _mask(self, layer: int, _: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if layer not in self._edits:
            return None
        factors = self._own_factors(layer, self._edits[layer])
        if not factors:
            return None
        joined, *rest = inputs  # [tokens, heads of this rank * head_dim]
        changed = joined.clone()
        heads = changed.unflatten(1, (self._query_heads // self._attention[layer].tp_size, -1))
        for head, factor in factors.items():
            heads[:, head] *= factor
        return (changed, *rest)

    def _skip(self, layer: int, _: Any, __: Any, output: Any) -> Any:
        """Let a projection put out zeros: the sum over all ranks, or a sum and a bias."""
        if layer not in self._edits or not self._edits[layer].skipped:
            return None
        if isinstance(output, Tensor):
            return torch.zeros_like(output)
        return tuple(torch.zeros_like(part) if part is not None else None for part in output)


def _is_plain(projection: Any) -> bool:
    """Tell whether a projection reads its weight where it lies, as [outputs, inputs]."""
    weight = getattr(projection, "weight", None)
    return (
        isinstance(weight, Tensor)
        and weight.device.type != "cpu"
        and weight.dtype in _PLAIN
        and weight.ndim == 2
        and weight.shape[1] == projection.input_size_per_partition
    )


def prepare(worker: Any, query_heads: int, depth: int) -> RankLayers:
    """Make a rank's model ready to be changed; `worker` is vLLM's, of this rank."""
    worker.headsweep = RankModel(worker.get_model(), query_heads, depth)
    layers: RankLayers = worker.headsweep.layers
    return layers


def edit(worker: Any, edits: Mapping[int, LayerEdit]) -> int:
    """Change a rank's model, as `RankModel.edit`."""
    changed: int = worker.headsweep.edit(edits)
    return changed
