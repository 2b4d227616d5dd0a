"""First-order estimates of what each head's loss does to a text: one backward pass for all heads.

With ξ_h a factor on head h's output before the output projection, 1 in the model as it is, losing
the head changes the log-probability by about −∂ log p / ∂ξ_h at ξ_h = 1 (Michel et al. 2019,
arXiv 1905.10650, rank heads by its absolute value; here the sign stays).
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headsweep.experiments.maps.scoring import Text
from headsweep.models.loaded import LoadedModel
from headsweep.variants import Variant


class FirstOrder(NamedTuple):
    """What losing a head is estimated to do to a text."""

    text: Text
    variant: Variant
    change: float
    """Of the log-probability of all tokens together, in nats."""


def estimate(loaded: LoadedModel, texts: Sequence[Text]) -> Iterator[FirstOrder]:
    """Yield an estimate for each text and each head of the model."""
    geometry = loaded.geometry
    factors = {
        layer.index: torch.ones(layer.query_heads, requires_grad=True) for layer in geometry.layers
    }
    loaded.model.requires_grad_(False)
    with ExitStack() as hooks:
        for layer in geometry.layers:
            projection = geometry.output_projection(loaded.model, layer.index)
            hook = partial(_scale, factors[layer.index])
            hooks.callback(projection.register_forward_pre_hook(hook).remove)
        for text in texts:
            gradients = torch.autograd.grad(log_probability(loaded, text), [*factors.values()])
            for index, gradient in zip(factors, gradients, strict=True):
                for head, value in enumerate(gradient.tolist()):
                    yield FirstOrder(text, Variant(index, head), -value)


def _scale(factors: Tensor, _: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    joined, *rest = inputs
    heads = joined.unflatten(-1, (len(factors), -1))
    return ((heads * factors.to(joined)[:, None]).flatten(-2), *rest)


def log_probability(loaded: LoadedModel, text: Text) -> Tensor:
    """Return the log-probability of a text's tokens, by the model's own modules."""
    ids = torch.tensor([[*text.prompt, *text.tokens]], device=loaded.device)
    output = loaded.model(input_ids=ids, use_cache=False)
    logits = output.logits[0, len(text.prompt) - 1 : -1].float()
    targets = ids[0, len(text.prompt) :, None]
    return logits.log_softmax(dim=-1).gather(1, targets).sum()
