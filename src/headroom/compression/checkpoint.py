"""The state of a training in a file: tensors by part and name, and JSON facts."""

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from headroom.errors import ModelError
from headroom.tables import atomic

_FACTS = "state"  # the one entry of a file's metadata

Parts = Mapping[str, Mapping[str, Tensor]]
"""Tensors by part, then by name."""


def write_state(path: Path, facts: Mapping[str, Any], parts: Parts) -> None:
    """Write facts and tensors, which may not share memory, in one step."""
    tensors = {
        f"{part}/{name}": tensor.detach().cpu()
        for part, of in parts.items()
        for name, tensor in of.items()
    }
    with atomic(path) as temporary:
        save_file(tensors, temporary, {_FACTS: json.dumps(facts)})


def read_state(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]]:
    """Return the facts and tensors that `write_state` wrote; a part without tensors is empty.

    Raises:
        ModelError: the file is damaged.
    """
    parts: dict[str, dict[str, Tensor]] = defaultdict(dict)
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads(file.metadata()[_FACTS])
        for place, tensor in load_file(path).items():
            part, _, name = place.partition("/")
            parts[part][name] = tensor
    except (OSError, SafetensorError, LookupError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(f"{path} is damaged ({reason}); remove it and run again") from None
    return facts, parts


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
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
