"""Which rows of the projections before attention each head reads.

That is found by watching data flow: the outputs of all linear layers before attention are replaced
by noise, and the gradient of one head's output shows which entries it depends on. This works
whether queries, keys and values are separate or fused, in blocks or interleaved by head, gated, or
shared by groups.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from transformers import PreTrainedModel

from headsweep.errors import ModelError
from headsweep.models.geometry import AttentionLayer, HeadGeometry, evaluating, is_linear

Readers = dict[str, Bool[Tensor, "rows query_heads"]]
"""By name of a linear layer before attention: which heads read each row of its weight, that is,
each entry of its output."""


def find_readers(model: PreTrainedModel, geometry: HeadGeometry) -> dict[int, Readers]:
    """Find out which rows of which projections each head reads, by layer; nothing is changed.

    Raises:
        ModelError: heads are mixed before attention, so that rows do not belong to single heads.
    """
    outputs = {layer.name: layer for layer in geometry.layers}
    noise = torch.Generator().manual_seed(0)
    leaves: list[tuple[str, Tensor]] = []
    readers: dict[int, Readers] = {}

    def put_out_noise(name: str, _: nn.Module, __: Any, output: Any) -> Any:
        if not isinstance(output, Tensor):  # of a router, which chooses experts, too
            return output
        # Unit scale, so that no softmax saturates: its gradients would vanish.
        leaf = torch.randn(output.shape, generator=noise).to(output).requires_grad_()
        leaves.append((name, leaf))
        return leaf.clone()  # some models change a projection's output in place

    def watch(layer: AttentionLayer, _: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
        readers[layer.index] = _readers(layer, inputs[0], leaves, noise)
        leaves.clear()
        return (inputs[0].detach(), *inputs[1:])

    with ExitStack() as hooks, torch.enable_grad():
        for name, module in model.named_modules():
            if name in outputs:
                handle = module.register_forward_pre_hook(partial(watch, outputs[name]))
            elif is_linear(module):
                handle = module.register_forward_hook(partial(put_out_noise, name))
            else:
                continue
            hooks.callback(handle.remove)
        trial_outputs(model)
    for layer in geometry.layers:
        _check_owners(model, layer, readers[layer.index])
    return readers


def _check_owners(model: PreTrainedModel, layer: AttentionLayer, readers: Readers) -> None:
    """Raise a `ModelError` unless each row of projections is read by one head, or by one group."""
    single = torch.eye(layer.query_heads, dtype=torch.bool)
    group = single.view(layer.kv_heads, -1, layer.query_heads).any(1)
    owners = torch.cat([single, group])
    for name, read_by in readers.items():
        # Entry [r, o] tells whether the heads that read row r are exactly those of owner o.
        is_owned_by = (read_by[:, None] == owners).all(-1)
        if not is_owned_by.any(1).all():
            raise cannot_cut(model, f"{name} mixes heads before attention")


def _readers(
    layer: AttentionLayer,
    joined: Tensor,
    leaves: Sequence[tuple[str, Tensor]],
    noise: torch.Generator,
) -> Readers:
    """Return which heads' outputs depend on which entries of the leaves."""
    readers: Readers = {}
    for head in range(layer.query_heads):
        output = joined[..., layer.columns(head)]
        weights = torch.randn(output.shape, generator=noise).to(output)
        options = {"retain_graph": True, "allow_unused": True}
        gradients = torch.autograd.grad(output, [leaf for _, leaf in leaves], weights, **options)
        for (name, leaf), gradient in zip(leaves, gradients, strict=True):
            if gradient is None:
                continue
            rows = torch.zeros(leaf.shape[-1], layer.query_heads, dtype=torch.bool)
            readers.setdefault(name, rows)[:, head] |= (gradient != 0).flatten(0, -2).any(0).cpu()
    return readers


def trial_outputs(model: PreTrainedModel) -> Tensor:
    """Run a model in evaluation mode on two rows of six tokens."""
    tokens = torch.arange(12, device=model.device).view(2, 6)
    tokens %= model.get_input_embeddings().num_embeddings
    with evaluating(model):
        return model(input_ids=tokens, attention_mask=torch.ones_like(tokens))[0]


def cannot_cut(model: PreTrainedModel, reason: str) -> ModelError:
    """Return the error of a model that cannot be cut, with the reason."""
    return ModelError(
        f"{type(model).__name__} cannot lose heads from its weights ({reason}); "
        f"zero heads by name instead"
    )
