"""GPUs and CPUs: which are here, and the rates that each is assumed to reach."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from headsweep.planning.host import host_cores, host_memory


class Card(NamedTuple):
    """A GPU or CPU: its memory, and the rates that it is assumed to reach."""

    gigabytes: float
    """Memory; 0 if unknown."""
    bandwidth: float
    """Bytes a second."""
    flops: float
    """Operations a second in half-precision products (CPU: single precision)."""
    half: float = 1.0
    """How many times as fast products are in half precision as `flops`."""
    speedup_light: float = 1.0
    """How many times as fast as `flops` the engine's products with weights are."""
    speedup_heavy: float = 1.0
    """The same where a layer has more than `rows_at_once.HEAVY` weights."""
    reading_rows: float = 30.0
    """A CPU reads a layer's weights in the time in which it computes so many rows. A product of r
    rows takes as long as r + reading_rows rows at the rate of very many. Fitted to products with
    1536 × 8960 weights."""
    launch_seconds: float = 2.3e-4
    """Seconds that the host takes to launch a layer's kernels in each step: some 20 of 12 µs."""
    training: float = 0.13
    """Fraction of `flops` that training reaches."""
    training_launch_seconds: float = 0.2
    """Seconds to launch the kernels of a training step."""


CARDS: Mapping[str, Card] = {
    name: Card(gigabytes, 0.6e12 * terabytes, 0.5e12 * teraflops)
    for name, gigabytes, terabytes, teraflops in (
        ("A100 40 GB", 40, 1.555, 312),
        ("A100 80 GB", 80, 2.039, 312),
        ("H100", 80, 3.35, 989),
        ("H200", 141, 4.8, 989),
        ("L40S", 48, 0.864, 362),
    )
}
"""From NVIDIA's data sheets (SXM modules: A100 2021, H100 2023, H200 2024; L40S: 2023): memory in
GB, bandwidth in TB/s, dense bfloat16 products in TFLOP/s; 60% and 50% of the peaks are reached."""

ANY_CARD = CARDS["A100 80 GB"]
"""Assumed for jobs on a cluster, which may get any card."""
ANY_CORE = Card(0, 1e10, 3e10, launch_seconds=3e-5, training=0.7, training_launch_seconds=0.05)
"""One CPU core, likewise."""

CPU_SHARE = 0.7
"""Of the rate of a single-threaded product, assumed for this CPU."""
_WITH_BF16, _WITHOUT_BF16, _WITHOUT_AVX512 = 2.0, 0.5, 0.93
"""Rate of products in half precision over single, on a CPU that has bfloat16, on one without, and
on one without AVX-512 either, where the engine computes in float32 and rounds."""
_READING_ROWS_WITHOUT_AVX512 = 8.0  # 16, 35, 64 and 128 rows: 48, 64, 70, 73 GFLOP/s of 76

_SPEEDUP_LIGHT, _SPEEDUP_HEAVY = 1.4, 2.1
"""Of the engine's products on a CPU over the assumed rate: the library that packs weights is faster
than NumPy's, the more so the larger they are. Fitted to random Llamas of 13, 108 and 111 million
weights in 10, 6 and 30 layers, in CPU seconds of one thread, on a CPU with AVX-512. Without it
that library is no faster for many rows, and products have NumPy's rate."""

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


def gpu_names() -> list[str]:
    """Return the names of this machine's GPUs, as `nvidia-smi` has them; none if it is missing."""
    return output_of("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()


def output_of(*command: str) -> str:
    """Return what a command prints; nothing if it is missing, fails or hangs."""
    options: dict[str, Any] = {"capture_output": True, "check": True, "timeout": PATIENCE}
    try:
        printed = subprocess.run(command, errors="replace", **options).stdout
        return str(printed).rstrip("\n")
    except (OSError, subprocess.SubprocessError):
        return ""


@cache
def this_cpu() -> Card:
    """Return the cores that this process may use; a single-precision product is timed on one."""
    flops = host_cores() * CPU_SHARE * product_rate()
    card = ANY_CORE._replace(gigabytes=host_memory() / 1e9, bandwidth=2e10, flops=flops)
    flags = _cpu_flags()
    if "avx512f" not in flags:
        return card._replace(half=_WITHOUT_AVX512, reading_rows=_READING_ROWS_WITHOUT_AVX512)
    has_bf16 = not {"avx512_bf16", "amx_bf16"}.isdisjoint(flags)
    half = _WITH_BF16 if has_bf16 else _WITHOUT_BF16
    return card._replace(half=half, speedup_light=_SPEEDUP_LIGHT, speedup_heavy=_SPEEDUP_HEAVY)


def this_core() -> Card:
    """Return one of the cores that this process may use."""
    cpu = this_cpu()
    return cpu._replace(flops=cpu.flops / host_cores())


def product_rate() -> float:
    """Return the operations a CPU second of a single-precision product, best of eight tries."""
    import numpy as np
    from threadpoolctl import threadpool_limits

    size = 512
    seconds = []
    matrix = np.ones((size, size), dtype=np.float32)
    with threadpool_limits(1):
        for _ in range(8):
            begin = time.process_time()
            matrix @ matrix
            seconds.append(time.process_time() - begin)
    return 2 * size**3 / max(min(seconds), 1e-6)


def _cpu_flags() -> set[str]:
    """Return what the processor can do, in the kernel's words."""
    with suppress(OSError):
        return {*Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()}
    return set()


def card_of(device: str, *, local: bool = True) -> Card:
    """Return the card assumed for a model's `device`, on this machine or on a cluster."""
    if not local:
        return ANY_CORE if device == "cpu" else ANY_CARD
    return ANY_CARD if is_on_gpu(device) else this_cpu()
