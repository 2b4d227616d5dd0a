"""Matrix products of linear layers by oneDNN, where PyTorch would take MKL, on a CPU in float32.

On processors other than Intel's, MKL leaves half of the vector unit unused. The operator is the
one that `torch.compile` puts in the place of a linear layer, called without compilation.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.functional import linear as mkl_linear
from torch.nn.functional import silu

_FEWEST_ROWS = 4
"""Below this MKL's smaller overhead wins."""


@contextmanager
def onednn_linear(model: nn.Module) -> Iterator[None]:
    """Let a model's float32 linear layers on the CPU run by oneDNN inside a ``with`` block."""
    with ExitStack() as patches:
        if has_onednn():
            for module in model.modules():
                if type(module) is nn.Linear and _fits(module.weight):
                    patches.enter_context(patch.object(module, "forward", _forward(module)))
        yield


def _forward(module: nn.Linear) -> Callable[[Tensor], Tensor]:
    weight, bias = module.weight, module.bias
    return lambda states: linear(states, weight, bias)


def linear(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return a linear layer's output."""
    if _few(states):
        return mkl_linear(states, weight, bias)
    return torch.ops.mkldnn._linear_pointwise(states, weight, bias, "none", [], "")


def linear_silu(states: Tensor, weight: Tensor) -> Tensor:
    """Return the SiLU of a linear layer's output."""
    if _few(states):
        return silu(mkl_linear(states, weight))
    return torch.ops.mkldnn._linear_pointwise(states, weight, None, "swish", [], "")


def linear_mul(states: Tensor, weight: Tensor, factor: Tensor) -> Tensor:
    """Return the product of a linear layer's output and a factor."""
    if _few(states):
        return mkl_linear(states, weight) * factor
    return torch.ops.mkldnn._linear_pointwise.binary(states, factor, weight, None, "mul")


def linear_add(states: Tensor, weight: Tensor, bias: Tensor | None, summand: Tensor) -> Tensor:
    """Return the sum of a linear layer's output and a summand."""
    if _few(states):
        return mkl_linear(states, weight, bias) + summand
    return torch.ops.mkldnn._linear_pointwise.binary(states, summand, weight, bias, "add")


def _few(states: Tensor) -> bool:
    return math.prod(states.shape[:-1]) < _FEWEST_ROWS


def _fits(weight: Tensor) -> bool:
    return weight.dtype == torch.float32 and weight.device.type == "cpu"


def has_onednn() -> bool:
    """Try the operator, which is not part of PyTorch's stable interface."""
    if not torch.backends.mkldnn.is_available():
        return False
    states, weight = torch.eye(_FEWEST_ROWS, 3), torch.arange(6.0).view(2, 3)
    try:
        found = torch.ops.mkldnn._linear_pointwise(states, weight, None, "none", [], "")
    except (AttributeError, RuntimeError):
        return False
    return torch.equal(found, mkl_linear(states, weight))
