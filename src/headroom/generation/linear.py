"""Matrix products of linear layers on a CPU in float32: by oneDNN where it is the faster.

PyTorch takes MKL, which leaves half of the vector unit unused where that is AVX-512's and the
processor not Intel's; without AVX-512, MKL is the faster. oneDNN's operator is the one that
`torch.compile` puts in the place of a linear layer, called without compilation.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.functional import linear as mkl_linear
from torch.nn.functional import silu

_FEWEST_ROWS = 4
"""Below this MKL's smaller overhead wins."""


@contextmanager
def fast_linear(model: nn.Module) -> Iterator[None]:
    """Let float32 linear layers of a model on the CPU take the faster library inside the block."""
    with ExitStack() as patches:
        if _prefers_onednn():
            for module in model.modules():
                if type(module) is nn.Linear and _fits(module.weight):
                    patches.enter_context(patch.object(module, "forward", _forward(module)))
        yield


def _forward(module: nn.Linear) -> Callable[[Tensor], Tensor]:
    weight, bias = module.weight, module.bias
    return lambda states: linear(states, weight, bias)


def linear(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return a linear layer's output."""
    if _by_mkl(states):
        return mkl_linear(states, weight, bias)
    return torch.ops.mkldnn._linear_pointwise(states, weight, bias, "none", [], "")


def linear_silu(states: Tensor, weight: Tensor) -> Tensor:
    """Return the SiLU of a linear layer's output."""
    if _by_mkl(states):
        return silu(mkl_linear(states, weight), inplace=True)
    return torch.ops.mkldnn._linear_pointwise(states, weight, None, "swish", [], "")


def linear_mul(states: Tensor, weight: Tensor, factor: Tensor) -> Tensor:
    """Return the product of a linear layer's output and a factor."""
    if _by_mkl(states):
        return mkl_linear(states, weight).mul_(factor)
    return torch.ops.mkldnn._linear_pointwise.binary(states, factor, weight, None, "mul")


def linear_add(states: Tensor, weight: Tensor, bias: Tensor | None, summand: Tensor) -> Tensor:
    """Return the sum of a linear layer's output and a summand."""
    if _by_mkl(states):
        return mkl_linear(states, weight, bias).add_(summand)
    return torch.ops.mkldnn._linear_pointwise.binary(states, summand, weight, bias, "add")


def _by_mkl(states: Tensor) -> bool:
    return not _prefers_onednn() or math.prod(states.shape[:-1]) < _FEWEST_ROWS


def _fits(weight: Tensor) -> bool:
    return weight.dtype == torch.float32 and weight.device.type == "cpu"


@cache
def _prefers_onednn() -> bool:
    """Look at the processor, and try the operator: it is no part of PyTorch's stable interface."""
    wide = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    if not (wide and torch.backends.mkldnn.is_available()):
        return False
    states, weight = torch.eye(_FEWEST_ROWS, 3), torch.arange(6.0).view(2, 3)
    try:
        found = torch.ops.mkldnn._linear_pointwise(states, weight, None, "none", [], "")
    except (AttributeError, RuntimeError):
        return False
    return torch.equal(found, mkl_linear(states, weight))
