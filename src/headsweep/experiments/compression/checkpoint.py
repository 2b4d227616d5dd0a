"""The state of a training in a file: tensors by part and name, and JSON facts."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from headsweep.errors import ModelError
from headsweep.files.plain_files import open_to_read
from headsweep.files.safe_files import atomic
from headsweep.models.geometry import kept_heads
from headsweep.models.learner import Example, Learner
from headsweep.models.removal import keep_heads

_STATE = "state"  # the one entry of a file's metadata


def write_state(path: Path, facts: Mapping[str, Any], **parts: Mapping[str, Tensor]) -> None:
    """Write facts and tensors, which may not share memory, and their checksum, in one step.

    The checksum is in the file itself: of a file and a record beside it, a killed training could
    leave a new one and an old one.
    """
    tensors = {
        f"{part}/{name}": tensor.detach().cpu()
        for part, named in parts.items()
        for name, tensor in named.items()
    }
    state = json.dumps({"facts": facts, "sha256": _digest(facts, tensors)})
    with atomic(path) as temporary:
        save_file(tensors, temporary, {_STATE: state})


def read_state(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]]:
    """Return the facts and tensors that `write_state` wrote; a part without tensors is empty.

    Raises:
        ModelError: the file is damaged.
    """
    parts: dict[str, dict[str, Tensor]] = defaultdict(dict)
    try:
        with open_to_read(path), safe_open(path, framework="pt") as file:
            state = json.loads(file.metadata()[_STATE])
        facts = state["facts"]
        tensors = load_file(path)
        if state["sha256"] != _digest(facts, tensors):
            raise ValueError("its checksum differs")
        for place, tensor in tensors.items():
            part, _, name = place.partition("/")
            parts[part][name] = tensor
    except (OSError, SafetensorError, LookupError, TypeError, ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(f"{path} is damaged ({reason}); remove it and run again") from None
    return facts, parts


def _digest(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(facts).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\0{name} {tensor.dtype} {[*tensor.shape]}\0".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def moments_of(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return an optimiser's state, such as Adam's moments, as tensors by name."""
    return {
        f"{parameter} {name}": value
        for parameter, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }


def set_moments(optimizer: torch.optim.Optimizer, moments: Mapping[str, Tensor]) -> None:
    """Give an optimiser of the same parameters a state that `moments_of` returned."""
    state: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for place, value in moments.items():
        parameter, name = place.split()
        state[int(parameter)][name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def identity(
    learner: Learner, settings: Mapping[str, Any], seed: int, *parts: Sequence[Example]
) -> dict[str, Any]:
    """Return what identifies a training: settings, seed, hashes of weights and examples' ids."""
    ids = repr([[example.example_id for example in part] for part in parts])
    weights = hashlib.sha256()
    for tensor in learner.network.state_dict().values():
        weights.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy())
    return {
        "seed": seed,
        "settings": settings,
        "examples": hashlib.sha256(ids.encode()).hexdigest()[:16],
        "weights": weights.hexdigest()[:16],
    }


def write_checkpoint(
    path: Path, learner: Learner, facts: Mapping[str, Any], **more: Mapping[str, Tensor]
) -> None:
    """Write a learner's weights and heads, JSON facts and further tensors, in one step."""
    parts = {
        # Copied, since tied weights share memory.
        part: {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
        for part, tensors in {"model": learner.network.state_dict(), **more}.items()
    }
    write_state(path, {**facts, "shape": kept_heads(learner.encoder.config)}, **parts)


def read_checkpoint(
    path: Path, learner: Learner, expected: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]]:
    """Restore an unpruned learner from a checkpoint, and return the facts and further tensors.

    `expected` are facts that must equal those of the checkpoint (see `identity`).

    Raises:
        ModelError: the checkpoint is damaged or belongs to another training or model.
    """
    facts, parts = read_state(path)
    if differing := [name for name in expected if facts.get(name) != expected[name]]:
        raise ModelError(
            f"{path} is of a training with other {' and '.join(differing)}; remove it and run again"
        )
    keep_heads(learner.encoder, facts["shape"])
    learner.network.load_state_dict(parts["model"])
    return facts, parts
