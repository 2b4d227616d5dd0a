"""Weights of eight bits, to hold pruning against: alone, or after it."""

import copy
import warnings
from typing import TypeVar

import torch
from torch import nn

from headroom.errors import ModelError

_M = TypeVar("_M", bound=nn.Module)


def quantised(model: _M) -> _M:
    """Return a copy of a model whose linear layers have weights of eight bits, for the CPU.

    Quantisation is dynamic: weights once, by tensor; activations at every pass. Embeddings, norms
    and what is no plain linear layer (GPT-2's projections) stay as they are. The copy computes
    as any model, and can be evaluated, timed and sized; it cannot be trained or cut.

    Raises:
        ModelError: the model is not on the CPU in float32, or this PyTorch cannot quantise.
    """
    weights = next(model.parameters())
    if weights.device.type != "cpu" or weights.dtype != torch.float32:
        raise ModelError(
            f"dynamic quantisation takes a float32 model on the CPU, not {weights.dtype} on "
            f"{weights.device}; load it so"
        )
    with warnings.catch_warnings():
        # To move to torchao, which is a package of its own; until then nothing replaces it.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module="torch")
        try:
            from torch.ao.quantization import quantize_dynamic

            return quantize_dynamic(copy.deepcopy(model).eval(), {nn.Linear}, dtype=torch.qint8)
        except (ImportError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise ModelError(f"this PyTorch cannot quantise weights ({reason})") from error
