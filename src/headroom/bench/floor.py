"""A lower bound of a sweep's time: the arithmetic that distinct tokens need.

For tokens that it shares with the base answer, including the prompt, a pruned model can reuse
everything below its pruned layer. It needs logits only where a token is chosen, and at prompt
positions only keys and values of the last layer. Everything else depends on the head.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

import torch
from torch import nn

from headroom.bench.gpu import seconds_of
from headroom.bench.rivals import Key, Work
from headroom.generation.weights import fast_linear
from headroom.models.load import LoadedModel
from headroom.variants import BASE

_SIZE = 1536
_ROUNDS = 4


@dataclass(frozen=True)
class Costs:
    """Arithmetic of one token, in floating-point operations; all layers alike."""

    layers: int
    projections: int
    """Queries, keys and values of a layer."""
    rest: int
    """Output projection and feed-forward network of a layer."""
    attention: int
    """Attention of a layer to one position."""
    logits: int

    @classmethod
    def of(cls, loaded: LoadedModel) -> "Costs":
        """Return the costs of a dense decoder, from its first layer."""
        layer = loaded.geometry.layers[0]
        weights = {
            f"{layer.block}.{name}": 2 * module.weight.numel()
            for name, module in loaded.model.get_submodule(layer.block).named_modules()
            if isinstance(module, nn.Linear)
        }
        attention = layer.name.rpartition(".")[0] + "."
        inside = [cost for name, cost in weights.items() if name.startswith(attention)]
        projections = sum(inside) - weights[layer.name]
        embeddings = loaded.model.get_output_embeddings()
        return cls(
            layers=len(loaded.geometry.layers),
            projections=projections,
            rest=sum(weights.values()) - projections,
            attention=4 * layer.width,
            logits=2 * embeddings.weight.numel(),
        )


def floor(work: Work, choices: Mapping[Key, Sequence[int]], costs: Costs) -> float:
    """Return the floating-point operations of a sweep.

    `choices` are the tokens chosen for each question and variant, the end of sequence included.
    """
    total = 0.0
    for question, prompt in work.prompts.items():
        base = choices[question, str(BASE)]
        for variant in work.variants:
            own = choices[question, str(variant)]
            fed = len(prompt) + len(own) - 1
            if variant.layer is None:
                shared, above = 0, costs.layers
            else:
                shared = min(fed, len(prompt) + _common(base, own))
                above = costs.layers - 1 - variant.layer
                total += shared * costs.rest
            layer = costs.projections + costs.rest
            seen, before = fed * (fed + 1) / 2, shared * (shared + 1) / 2
            total += above * (shared * layer + before * costs.attention)
            total += costs.layers * ((fed - shared) * layer + (seen - before) * costs.attention)
            unused = len(prompt) - 1
            total -= unused * costs.rest
            if above or variant.is_base:
                total -= unused * (unused + 1) / 2 * costs.attention
            total += len(own) * costs.logits
    return total


@torch.inference_mode()
def peak(loaded: LoadedModel) -> float:
    """Return the floating-point operations a second that large products reach where a model is.

    This is the best of several runs with both libraries, because other work slows them down.
    """
    states = torch.ones(_SIZE, _SIZE, device=loaded.device, dtype=loaded.dtype)
    layer = nn.Linear(_SIZE, _SIZE, bias=False, device=loaded.device, dtype=loaded.dtype)
    work = partial(layer, states), loaded.device
    seconds = [seconds_of(*work) for _ in range(_ROUNDS)]
    with fast_linear(layer):
        seconds += [seconds_of(*work) for _ in range(_ROUNDS)]
    return 2 * _SIZE**3 / min(seconds)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common prefix."""
    return len([*takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))])
