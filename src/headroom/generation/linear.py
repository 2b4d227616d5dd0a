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
        packed: whether a copy of the weight is arranged; a weight that may change needs none.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, packed: bool = True) -> None:
        self.size = weight.numel()
        self._weight, self._bias = weight, bias
        self._read: Tensor | None = None
        """What oneDNN reads; None: MKL takes every product."""
        if _prefers_onednn(weight.dtype, weight.device.type):
            arrange = torch.ops.mkldnn._reorder_linear_weight
            self._read = arrange(self._weight, _ROWS) if packed else self._weight

    @classmethod
    def of(cls, module: nn.Linear, *, packed: bool = True) -> "Linear":
        """Return a layer with a module's parameters."""
        return cls(module.weight, module.bias, packed=packed)

    def __call__(self, states: Tensor, activation: str | None = None) -> Tensor:
        """Return the product, through an activation of `ACTIVATIONS` if one is named."""
        if self._is_small(states):
            found = plain_linear(states, self._weight, self._bias)
            return ACTIVATIONS[activation][0](found) if activation else found
        _, name, kind = ACTIVATIONS[activation] if activation else (None, "none", "")
        return torch.ops.mkldnn._linear_pointwise(states, self._read, self._bias, name, [], kind)

    def times(self, states: Tensor, factor: Tensor) -> Tensor:
        """Return the product, multiplied by a factor element by element."""
        if self._is_small(states):
            return plain_linear(states, self._weight, self._bias).mul_(factor)
        fused = torch.ops.mkldnn._linear_pointwise.binary
        return fused(states, factor, self._read, self._bias, "mul")

    def plus(self, states: Tensor, summand: Tensor) -> Tensor:
        """Return the product and a summand."""
        if self._is_small(states):
            return plain_linear(states, self._weight, self._bias).add_(summand)
        fused = torch.ops.mkldnn._linear_pointwise.binary
        return fused(states, summand, self._read, self._bias, "add")

    def _is_small(self, states: Tensor) -> bool:
        return self._read is None or states.numel() * len(self._weight) < _SMALL


@contextmanager
def fast_linear(model: nn.Module) -> Iterator[None]:
    """Let linear layers of a model on the CPU take the faster library inside the block."""
    with ExitStack() as patches:
        for module in model.modules():
            if type(module) is nn.Linear:
                fast = Linear.of(module, packed=False)
                patches.enter_context(patch.object(module, "forward", fast))
        yield


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
