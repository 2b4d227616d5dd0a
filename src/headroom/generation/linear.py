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
from torch.nn.functional import linear

_FEWEST_ROWS = 16
"""Below this MKL's smaller overhead wins."""


@contextmanager
def onednn_linear(model: nn.Module) -> Iterator[None]:
    """Let a model's float32 linear layers on the CPU run by oneDNN inside a ``with`` block."""
    with ExitStack() as patches:
        if torch.backends.mkldnn.is_available() and _works():
            for module in model.modules():
                if type(module) is nn.Linear and _fits(module.weight):
                    patches.enter_context(patch.object(module, "forward", _forward(module)))
        yield


def _forward(module: nn.Linear) -> Callable[[Tensor], Tensor]:
    weight, bias = module.weight, module.bias

    def forward(states: Tensor) -> Tensor:
        if math.prod(states.shape[:-1]) < _FEWEST_ROWS:
            return linear(states, weight, bias)
        return torch.ops.mkldnn._linear_pointwise(states, weight, bias, "none", [], "")

    return forward


def _fits(weight: Tensor) -> bool:
    return weight.dtype == torch.float32 and weight.device.type == "cpu"


def _works() -> bool:
    """Try the operator, which is not part of PyTorch's stable interface."""
    states, weight = torch.eye(_FEWEST_ROWS, 3), torch.arange(6.0).view(2, 3)
    try:
        found = torch.ops.mkldnn._linear_pointwise(states, weight, None, "none", [], "")
    except (AttributeError, RuntimeError):
        return False
    return torch.equal(found, linear(states, weight))
