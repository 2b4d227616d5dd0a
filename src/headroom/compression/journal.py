"""Checkpoints of a training or compression: one that was killed goes on to the bit.

A checkpoint is one safetensors file. After each round there is one of the learner as it stands,
with the history; within a round that of its training. Scores before it are computed again, as they
were.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import PreTrainedModel

from headroom.errors import ModelError
from headroom.models.geometry import find_heads, kept_heads
from headroom.models.learner import Example, Learner
from headroom.models.removal import remove_heads
from headroom.tables import atomic
from headroom.variants import Variant

_FACTS = "headroom"  # one metadata entry: safetensors writes several in no fixed order


class Checkpoint(NamedTuple):
    """What a checkpoint holds beside the network."""

    facts: dict[str, Any]
    """JSON values: what has been done."""
    optimizer: dict[str, Tensor]
    """State of the optimizer, by name of the parameter and of the value: `weight/exp_avg`."""
    best: dict[str, Tensor]
    """Weights of the best epoch so far."""
    memory: dict[str, Tensor]
    """What whoever acts between the steps has to remember."""


def write(
    path: Path,
    learner: Learner,
    facts: Mapping[str, Any],
    *,
    optimizer: torch.optim.Optimizer | None = None,
    best: Mapping[str, Tensor] | None = None,
    memory: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a checkpoint, atomically.

    Args:
        path: the checkpoint.
        learner: weights and heads as they stand.
        facts: JSON values: what has been done, and what tells this training from others.
        optimizer: over the network's parameters.
        best: see `Checkpoint`.
        memory: see `Checkpoint`.
    """
    moments = {
        f"{name}/{key}": tensor
        for name, parameter in learner.network.named_parameters()
        for key, tensor in (optimizer.state.get(parameter, {}) if optimizer else {}).items()
    }
    parts = {
        "model": learner.network.state_dict(),
        "best": best or {},
        "memory": memory or {},
        "optimizer": moments,
    }
    tensors, seen = {}, set()
    for part, values in parts.items():
        for name, tensor in values.items():
            shared = tensor.data_ptr() in seen  # safetensors refuses tied weights
            seen.add(tensor.data_ptr())
            own = tensor.detach().contiguous().cpu()
            tensors[f"{part}/{name}"] = own.clone() if shared else own
    noted = json.dumps({**facts, "shape": shape_of(learner.encoder)})
    with atomic(path) as temporary:
        safetensors.torch.save_file(tensors, temporary, {_FACTS: noted})


def read(path: Path, learner: Learner, identity: Mapping[str, Any]) -> Checkpoint:
    """Bring a learner, with all its heads, to where a checkpoint ends; return the rest.

    Args:
        path: the checkpoint.
        learner: loses heads and takes weights.
        identity: JSON values that the facts must share with what is to go on.

    Raises:
        ModelError: it is damaged, of something else, or of a model with other shapes.
    """
    try:
        with safe_open(path, framework="pt") as file:
            facts: dict[str, Any] = json.loads(file.metadata()[_FACTS])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path} is no checkpoint ({error}); remove it and run again") from None
    differing = [name for name in identity if facts.get(name) != identity[name]]
    if differing:
        raise ModelError(
            f"{path} is of a training with another {' and '.join(differing)}; remove it "
            f"and run again"
        )
    restore_shape(learner.encoder, facts["shape"])
    parts: dict[str, dict[str, Tensor]] = {name: {} for name in ("model", *Checkpoint._fields[1:])}
    try:
        for name, tensor in safetensors.torch.load_file(path).items():
            part, _, own = name.partition("/")
            parts[part][own] = tensor
        learner.network.load_state_dict(parts.pop("model"))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(
            f"{path} does not fit the model ({reason}); remove it and run again"
        ) from None
    return Checkpoint(facts, **parts)


def examples_key(*parts: Sequence[Example]) -> str:
    """Return what tells sets of examples from others: a hash of their ids."""
    ids = [[example.example_id for example in part] for part in parts]
    return hashlib.sha256(repr(ids).encode()).hexdigest()[:16]


def shape_of(encoder: PreTrainedModel) -> dict[str, list[int]]:
    """Return which heads a pruned encoder kept, by layer; nothing for a whole one."""
    return {str(layer): list(heads) for layer, heads in kept_heads(encoder.config).items()}


def restore_shape(encoder: PreTrainedModel, shape: Mapping[str, Sequence[int]]) -> None:
    """Cut an encoder to the heads of `shape`, as `shape_of` returned them."""
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
