"""Checkpoints of a training or compression: one safetensors file, to go on from to the bit."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import PreTrainedModel

from headroom.errors import ModelError
from headroom.models.geometry import find_heads, kept_heads
from headroom.models.learner import Example
from headroom.models.removal import remove_heads
from headroom.tables import atomic
from headroom.variants import Variant

_FACTS = "headroom"  # one metadata entry: safetensors writes several in no fixed order
_MODEL, _OPTIMIZER, _BEST, _MEMORY = "model/", "optimizer/", "best/", "memory/"


def write(
    path: Path,
    model: nn.Module,
    facts: dict[str, Any],
    *,
    optimizer: torch.optim.Optimizer | None = None,
    best: Mapping[str, Tensor] | None = None,
    memory: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a state, atomically.

    Args:
        path: the checkpoint.
        model: weights as they stand.
        facts: JSON values: what has been done.
        optimizer: over the model's parameters.
        best: weights of the best epoch so far.
        memory: what whoever acts between the steps has to remember.
    """
    tensors = {_MODEL + name: tensor for name, tensor in model.state_dict().items()}
    tensors |= {_BEST + name: tensor for name, tensor in (best or {}).items()}
    tensors |= {_MEMORY + name: tensor for name, tensor in (memory or {}).items()}
    moments = {} if optimizer is None else optimizer.state
    for name, parameter in model.named_parameters():
        for key, tensor in moments.get(parameter, {}).items():
            tensors[f"{_OPTIMIZER}{name}/{key}"] = tensor
    seen: set[int] = set()
    for name, tensor in tensors.items():
        shared = tensor.data_ptr() in seen  # safetensors refuses tied weights
        seen.add(tensor.data_ptr())
        own = tensor.detach().contiguous().cpu()
        tensors[name] = own.clone() if shared else own
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


class Stored(NamedTuple):
    """What a checkpoint holds beside the state of model and optimizer."""

    best: dict[str, Tensor]
    memory: dict[str, Tensor]


def read(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> Stored:
    """Load a checkpoint into a model and its optimizer; return the rest.

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
        if state and optimizer is not None:
            optimizer.state[parameter] = {
                key: tensor.to(parameter.device) for key, tensor in state.items()
            }
    return Stored(_part(tensors, _BEST), _part(tensors, _MEMORY))


def check(path: Path, facts: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Make sure that a checkpoint is of what is to go on.

    Raises:
        ModelError: it is of something else.
    """
    differing = [name for name in own if facts.get(name) != own[name]]
    if differing:
        raise ModelError(
            f"{path} is of a training with another {' and '.join(differing)}; remove it "
            f"and run again"
        )


def examples_key(*parts: Sequence[Example]) -> str:
    """Return what tells sets of examples from others: a hash of their ids."""
    ids = [[example.example_id for example in part] for part in parts]
    return hashlib.sha256(repr(ids).encode()).hexdigest()[:16]


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
