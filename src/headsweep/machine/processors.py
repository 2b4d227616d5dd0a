"""GPUs and CPUs: which are here, and one rate for each kind."""

import os
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from headsweep.machine.host import host_cores


class Card(NamedTuple):
    """What a kind of device does in a second: a GPU, or CPU cores."""

    flops: float
    """Operations of answers that are kept: two for each weight and token."""
    training: float
    """Operations of training."""
    training_launch_seconds: float
    """Seconds to launch the kernels of a training step."""


GPU = Card(1e14, 2e13, 0.2)
"""An H100 with Qwen2.5-1.5B's shape in bfloat16: 32,000 kept tokens a second in a sweep that keeps
nothing of the base model's answers, 38,700 in plain decoding. Its training was not measured, nor
other GPUs."""
CORE = Card(5e10, 5e10, 0.01)
"""A CPU core: answers from 4.9e10 (the demo's reasoner) to 1.5e11 (a model of 1.5B) with AVX-512,
half of that without. The demo's trainings take 0.4 to 0.8 of the seconds that follow."""

PATIENCE = 120.0
"""Seconds that another program has to say what this machine has. Importing torch takes a minute
from a slow disk, and `nvidia-smi` more than ten seconds where it wakes eight GPUs."""
_DEVICES = Path("/dev")
"""Where the kernel lists the devices."""


def gpu_count() -> int:
    """Return how many GPUs of NVIDIA's a process of this machine sees, from the kernel's list.

    CUDA sees those that CUDA_VISIBLE_DEVICES names, up to the first name that is none.
    """
    gpus = len(list(_DEVICES.glob("nvidia[0-9]*")))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return gpus
    named = takewhile(_is_name_of_gpu, visible.split(","))
    return min(gpus, sum(1 for _ in named))


def _is_name_of_gpu(name: str) -> bool:
    return name.strip().isdecimal() or name.strip().startswith(("GPU-", "MIG-"))


def has_gpu() -> bool:
    """Tell whether a process of this machine sees a GPU of NVIDIA's."""
    return gpu_count() > 0


def is_on_gpu(device: str) -> bool:
    """Tell whether a model of this `device` is computed on a GPU of this machine."""
    return device != "cpu" and has_gpu()


def usable_gpu_count() -> int | None:
    """Return how many GPUs the installed PyTorch can use; None if it does not say.

    Another process looks: importing torch takes long.
    """
    said = output_of(sys.executable, "-c", "import torch; print(torch.cuda.device_count())")
    return int(said) if said.isdecimal() else None


def output_of(*command: str) -> str:
    """Return what a command prints; nothing if it is missing, fails or hangs."""
    options: dict[str, Any] = {"capture_output": True, "check": True, "timeout": PATIENCE}
    try:
        printed = subprocess.run(command, errors="replace", **options).stdout
        return str(printed).rstrip("\n")
    except (OSError, subprocess.SubprocessError):
        return ""


def this_cpu() -> Card:
    """Return the cores that this process may use."""
    return CORE._replace(flops=host_cores() * CORE.flops)


def card_of(device: str, *, local: bool = True) -> Card:
    """Return the kind of device that computes a model, on this machine or on a cluster.

    A job of a cluster has one core.
    """
    if is_on_gpu(device) if local else device != "cpu":
        return GPU
    return this_cpu() if local else CORE
