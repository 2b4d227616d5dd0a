"""The main memory and cores of this host that this process may use; the name it has there."""

import math
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
    of_node = _from_slurm("SLURM_MEM_PER_NODE")  # 0: all of the node's
    of_cores = _from_slurm("SLURM_MEM_PER_CPU") * _from_slurm("SLURM_CPUS_ON_NODE")
    allotted = _MEGABYTE * (of_node or of_cores)
    return min([physical, *_memory_limits(), allotted or physical])


def host_cores() -> int:
    """Return the number of cores that share this memory: those that this process may use.

    A container that may use a share of all cores has as many as make up this share.
    """
    usable = len(os.sched_getaffinity(0))
    allotted = _from_slurm("SLURM_CPUS_ON_NODE")
    return min([usable, *_core_limits(), allotted or usable])


def name_process(name: str) -> None:
    """Have `ps` and `top` show this process by a name, of 15 bytes at most."""
    with suppress(OSError):  # /proc is read-only
        Path("/proc/self/comm").write_text(name, encoding="utf-8")


def _from_slurm(variable: str) -> int:
    """Return a number that SLURM has set for a job; 0 if it has not."""
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() else 0


def _memory_limits() -> Iterator[int]:
    """Yield the limits of this process's groups and of those around them, in bytes.

    A group without a limit says ``max``, in the first version a number beyond all memory.
    """
    for group, version in _groups("memory"):
        name = "memory.max" if version == 2 else "memory.limit_in_bytes"
        with suppress(OSError, ValueError):
            yield _number_in(group / name)


def _core_limits() -> Iterator[int]:
    """Yield the limits of these groups, in cores.

    A group may use so many microseconds of all cores in a period; without a limit they are ``max``,
    in the first version -1.
    """
    for group, version in _groups("cpu"):
        with suppress(OSError, ValueError):
            if version == 2:
                quota, period = map(int, (group / "cpu.max").read_text(encoding="ascii").split())
            else:
                quota = _number_in(group / "cpu.cfs_quota_us")
                period = _number_in(group / "cpu.cfs_period_us")
            if quota > 0:
                yield math.ceil(quota / period)


def _number_in(file: Path) -> int:
    return int(file.read_text(encoding="ascii"))


def _groups(controller: str) -> Iterator[tuple[Path, int]]:
    """Yield the folders of this process's groups and of those around them, and their version.

    In the second version of the kernel's groups all controllers share a tree; in the first each has
    its own. In a container the groups around its own may be out of sight.
    """
    try:
        lines = _MEMBERSHIP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root = _GROUPS
            version = 2
        elif controller in controllers.split(","):
            root = _GROUPS / controller
            version = 1
        else:
            continue
        innermost = root / path.lstrip("/")
        for group in (innermost, *innermost.parents):
            if group.is_relative_to(root):
                yield group, version
