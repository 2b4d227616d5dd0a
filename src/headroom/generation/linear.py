"""Matrix products of linear layers: on a CPU by oneDNN where it is faster than MKL.

PyTorch takes MKL in float32, which leaves half of the vector unit unused where that is AVX-512's
and the processor not Intel's. oneDNN does activation, gate and residual sum as it writes a product,
and keeps a copy of the weights in the order in which it reads them: with few rows that is twice as
fast as rearranging them at each product. Its operators are those that `torch.compile` puts in the
place of a linear layer. Without AVX-512, and for small products, MKL is faster.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, silu
from torch.nn.functional import linear as plain_linear

_SMALL = 1 << 20
"""Below so many multiplications a product takes MKL: its overhead is smaller."""

_ROWS = 64
"""For about so many rows a copy of weights is arranged; it serves any number."""

ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], str, str]] = {
    "silu": (silu, "swish", ""),
    "gelu": (gelu, "gelu", "none"),
    "gelu_pytorch_tanh": (lambda x: gelu(x, approximate="tanh"), "gelu", "tanh"),
}
"""What may follow a product: the function, and the two words by which oneDNN knows it."""


class Linear:
    """A linear layer, with what may follow its product.

    Args:
        weight: [outputs, inputs].
        bias: [outputs], if there is one.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.size = weight.numel()
        self._weight, self._bias = weight.detach(), None if bias is None else bias.detach()
        self._packed: Tensor | None = None
        if _prefers_onednn(weight.dtype, weight.device.type):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self._weight, _ROWS)

    def __call__(self, states: Tensor, activation: str | None = None) -> Tensor:
        """Return the product, through an activation of `ACTIVATIONS` if one is named."""
        if self._is_small(states):
            found = plain_linear(states, self._weight, self._bias)
            return ACTIVATIONS[activation][0](found) if activation else found
        _, name, kind = ACTIVATIONS[activation] if activation else (None, "none", "")
        return torch.ops.mkldnn._linear_pointwise(states, self._packed, self._bias, name, [], kind)

    def times(self, states: Tensor, factor: Tensor) -> Tensor:
        """Return the product, multiplied by a factor element by element."""
        return self._with(states, factor, "mul")

    def plus(self, states: Tensor, summand: Tensor) -> Tensor:
        """Return the product and a summand."""
        return self._with(states, summand, "add")

    def _with(self, states: Tensor, other: Tensor, name: str) -> Tensor:
        if self._is_small(states):
            found = plain_linear(states, self._weight, self._bias)
            return found.mul_(other) if name == "mul" else found.add_(other)
        return torch.ops.mkldnn._linear_pointwise.binary(
            states, other, self._packed, self._bias, name
        )

    def _is_small(self, states: Tensor) -> bool:
        return self._packed is None or states.numel() * len(self._weight) < _SMALL


@contextmanager
def fast_linear(model: nn.Module) -> Iterator[None]:
    """Let linear layers of a model on the CPU take the faster library inside the block."""
    with ExitStack() as patches:
        for module in model.modules():
            if type(module) is nn.Linear and _prefers_onednn(
                module.weight.dtype, module.weight.device.type
            ):
                patches.enter_context(
                    patch.object(module, "forward", _Unpacked(module.weight, module.bias))
                )
        yield


class _Unpacked(Linear):
    """A linear layer of a foreign model: its weights may be changed, so no copy is kept."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias, self._packed = weight, bias, weight


@cache
def _prefers_onednn(dtype: torch.dtype, device: str) -> bool:
    """Look at the processor, and try the operators: they are no part of a stable interface."""
    capable = {
        torch.float32: torch.backends.cpu.get_cpu_capability().startswith("AVX512"),
        torch.bfloat16: torch.backends.mkldnn.is_available()
        and torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    }
    if device != "cpu" or not torch.backends.mkldnn.is_available() or not capable.get(dtype):
        return False
    states, weight = torch.eye(4, 3, dtype=dtype), torch.arange(6, dtype=dtype).view(2, 3)
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
        found = torch.ops.mkldnn._linear_pointwise(states, packed, None, "none", [], "")
    except (AttributeError, RuntimeError):
        return False
    return torch.equal(found, plain_linear(states, weight))
