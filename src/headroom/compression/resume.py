"""Checkpoints of a training under way: one safetensors file, from which it goes on to the bit."""

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import PreTrainedModel

from headroom.errors import ModelError
from headroom.models.geometry import find_heads, kept_heads
from headroom.models.removal import remove_heads
from headroom.tables import atomic
from headroom.variants import Variant

_FACTS = "headroom"  # one metadata entry: safetensors writes several in no fixed order
_MODEL, _OPTIMIZER, _BEST = "model/", "optimizer/", "best/"


def write(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    best: dict[str, Tensor],
    facts: dict[str, Any],
) -> None:
    """Write the state of a training, atomically.

    Args:
        path: the checkpoint.
        model: weights as they stand.
        optimizer: over the model's parameters.
        best: weights of the best epoch so far, none if empty.
        facts: JSON values: where the training stands.
    """
    tensors = {_MODEL + name: tensor for name, tensor in model.state_dict().items()}
    tensors |= {_BEST + name: tensor for name, tensor in best.items()}
    for name, parameter in model.named_parameters():
        for key, tensor in optimizer.state.get(parameter, {}).items():
            tensors[f"{_OPTIMIZER}{name}/{key}"] = tensor
    tensors = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    with atomic(path) as temporary:
        safetensors.torch.save_file(tensors, temporary, {_FACTS: json.dumps(facts)})


def read_facts(path: Path) -> dict[str, Any]:
    """Return the facts of a checkpoint.

    Raises:
        ModelError: it is damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            facts: dict[str, Any] = json.loads(file.metadata()[_FACTS])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path} is no checkpoint ({error}); remove it and run again") from None
    return facts


def read(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Load a checkpoint into a model and its optimizer; return the weights of the best epoch.

    Raises:
        ModelError: it is damaged or of a model with other shapes.
    """
    try:
        tensors = safetensors.torch.load_file(path)
        model.load_state_dict(_part(tensors, _MODEL))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(
            f"{path} does not fit the model ({reason}); remove it and run again"
        ) from None
    moments = _part(tensors, _OPTIMIZER)
    for name, parameter in model.named_parameters():
        state = _part(moments, f"{name}/")
        if state:
            optimizer.state[parameter] = {
                key: tensor.to(parameter.device) for key, tensor in state.items()
            }
    return _part(tensors, _BEST)


def shape_of(encoder: PreTrainedModel) -> dict[str, list[int]]:
    """Return which heads a pruned encoder kept, by layer; nothing for a whole one."""
    return {str(layer): list(heads) for layer, heads in kept_heads(encoder.config).items()}


def restore_shape(encoder: PreTrainedModel, shape: dict[str, list[int]]) -> None:
    """Cut an encoder to the heads of `shape`, which a training that was killed had left it."""
    if shape == shape_of(encoder):
        return
    geometry = find_heads(encoder)
    gone = [
        Variant(layer.index, head)
        for layer in geometry.layers
        for head, number in enumerate(layer.original_heads)
        if number not in shape.get(str(layer.index), [number])
    ]
    remove_heads(encoder, geometry, gone)


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
