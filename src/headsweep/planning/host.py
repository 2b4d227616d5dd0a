"""The main memory and the cores of this host that this process and its workers may use."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
"""Where the kernel keeps groups of processes with their limits, and says which are this one's."""

_MEGABYTE = 1 << 20


def host_memory() -> int:
    """Return the bytes of memory that this process may use.

    They are the machine's, or less in a container or a job of SLURM's that is limited to less.
    """
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    allotted = _from_slurm("SLURM_MEM_PER_NODE")  # 0: all of the node's
    return min([physical, *_limits(), allotted * _MEGABYTE or physical])


def host_cores() -> int:
    """Return the number of cores that share this memory: those that this process may use."""
    usable = len(os.sched_getaffinity(0))
    return min(usable, _from_slurm("SLURM_CPUS_ON_NODE") or usable)


def _from_slurm(variable: str) -> int:
    """Return a number that SLURM has set for a job; 0 if it has not."""
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() else 0


def _limits() -> Iterator[int]:
    """Yield the limits, in bytes, of this process's groups and of those around them.

    In the second version of the kernel's groups a group without a limit says ``max``. In a
    container the groups around its own may be out of sight.
    """
    try:
        lines = _MEMBERSHIP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from _read_limits(_GROUPS, path, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _read_limits(_GROUPS / "memory", path, "memory.limit_in_bytes")


def _read_limits(root: Path, path: str, name: str) -> Iterator[int]:
    innermost = root / path.lstrip("/")
    for group in (innermost, *innermost.parents):
        if group.is_relative_to(root):
            with suppress(OSError, ValueError):
                yield int((group / name).read_text(encoding="ascii"))
