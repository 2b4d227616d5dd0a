"""`headroom doctor`: facts for a bug report.

It changes, fetches and starts nothing, and loads no model.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from headroom import paths
from headroom.generation.client import status
from headroom.record import git_commit, versions

_SECONDS = 10.0  # limit of a command that queries a driver or a controller
_PROFILE = Path("workflow/profiles/slurm/config.yaml")


def report() -> str:
    """Return the report, one fact per line; what is missing begins with ``missing:``."""
    facts = {"git commit": git_commit() or "unknown: not a checkout", **versions()}
    lines = [f"{name} {value}" for name, value in facts.items()]
    lines += [*_machine(), *_slurm()]
    return "\n".join(lines)


def _machine() -> Iterator[str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    yield f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} cores, {memory:.0f} GB of memory"
    query = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    yield from _printed(*query).splitlines() or ["no GPU, as far as nvidia-smi can tell"]
    for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "HF_HOME", "HF_HUB_OFFLINE"):
        yield f"{name}={os.environ.get(name, '')}"
    free = shutil.disk_usage(".").free / 1e9
    yield f"results: {Path(paths.RESULTS).absolute()}, {free:.1f} GB free"
    yield f"engines that run here: {len(status())}"


def _slurm() -> Iterator[str]:
    if not shutil.which("sbatch"):
        yield "SLURM: no sbatch on the path"
        return
    yield f"SLURM: {_printed('sbatch', '--version').strip()}"
    yield from _printed("sinfo", "--noheader", "--format=%P %a %D nodes %G").splitlines() or [
        "missing: sinfo does not answer; is the controller up?"
    ]
    if _PROFILE.exists() and "CHANGE-ME" in _PROFILE.read_text(encoding="utf-8"):
        yield f"missing: partition and account in {_PROFILE}"


def _printed(*command: str) -> str:
    """Return what a command prints; nothing if it is missing, fails or hangs."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_SECONDS
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
