"""The devices that models are loaded onto, and the locks of GPUs.

A GPU belongs to one process, from before a model is loaded until the process ends: an engine takes
most of the memory, so a second process would fail. The locks lie on the host's own disk and hold
for all of its users. They are not shared between hosts, nor with a container that has its own
`/tmp`.
"""

import gc
import logging
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import torch

from headsweep.errors import EngineError
from headsweep.files.locks import Locks

_LOG = logging.getLogger(__name__)

LOCKS = Path("/tmp/headsweep-gpus")

_SECONDS_BETWEEN_TRIES = 2.0

_holders = Counter[str]()
"""How often this process holds each GPU: a lock is a process's, whoever in it has taken it."""


class Device(NamedTuple):
    """Where a model is loaded."""

    name: str  # as torch says it, ``balanced``, or ``cuda:0,1`` for GPUs that share a model
    gpus: tuple[str, ...] = ()  # the GPUs that it stands for, by UUID


def devices(device: str, together: int = 1) -> list[Device]:
    """Return the device of each worker to load a model; a single "cpu" for any number of them.

    With ``auto``, `together` GPUs hold one copy of the model; a rest of fewer stays free.

    Raises:
        EngineError: there are fewer GPUs than hold a copy, or counting them fails.
    """
    if device == "cpu":
        return [Device(device)]
    gpus = _visible_gpus()
    if 0 < len(gpus) < together:
        raise EngineError(
            f"tensor_parallel: {together}, but there are {len(gpus)} GPUs here; lower it"
        )
    if device == "auto":
        return _groups(gpus, together) or [Device("cpu")]
    if device == "balanced":
        return [Device(device, tuple(gpus))]
    number = int(device.partition(":")[2] or 0)  # of cuda or cuda:N
    return [Device(device, tuple(gpus[number : number + 1]))]


def _groups(gpus: Sequence[str], together: int) -> list[Device]:
    """Return a device for each group of so many successive GPUs; a rest of fewer has none."""
    groups = []
    for first in range(0, len(gpus) - together + 1, together):
        numbers = range(first, first + together)
        name = "cuda:" + ",".join(map(str, numbers))
        groups.append(Device(name, tuple(gpus[number] for number in numbers)))
    return groups


def visible_devices(numbers: str) -> str:
    """Return what CUDA_VISIBLE_DEVICES names these GPUs, of those that this process knows."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not visible:
        return numbers
    names = visible.split(",")
    return ",".join(names[int(number)] for number in numbers.split(","))


@contextmanager
def held(device: Device, waits: Callable[[str], object]) -> Iterator[None]:
    """Hold the locks of a device's GPUs; wait for them first.

    While another process has a GPU, `waits` is called with its UUID every two seconds. All take
    GPUs in the same order, so that nobody has what somebody else waits for. A process may hold a
    GPU several times; it is free after the last.
    """
    locks = _locks() if device.gpus else None
    if locks is None:
        yield
        return
    with ExitStack() as taken:
        for gpu in sorted(device.gpus):
            _holders[gpu] += 1
            taken.callback(_let_go, locks, gpu)
            while not locks.take(gpu):
                waits(gpu)
                time.sleep(_SECONDS_BETWEEN_TRIES)
        taken.callback(give_back_memory)
        yield


def _let_go(locks: Locks, gpu: str) -> None:
    """Release a GPU's lock, unless something else in this process holds it, too."""
    _holders[gpu] -= 1
    if not _holders[gpu]:
        locks.release(gpu)


def give_back_memory() -> None:
    """Give back the GPU memory that torch keeps for tensors to come."""
    gc.collect()
    torch.cuda.empty_cache()


def _locks() -> Locks | None:
    """Return the locks of this host's GPUs; None if another user has spoilt their file."""
    try:
        return _opened(LOCKS)
    except EngineError as error:
        _LOG.warning("%s; two models may be loaded onto one GPU", error)
        return None


@cache
def _opened(path: Path) -> Locks:
    """Open a file of locks; a process opens each once, see `Locks`."""
    return Locks(path, shared=True)


def _visible_gpus() -> list[str]:
    """Return the UUIDs of the GPUs that torch sees, in its order.

    A child looks: with names of parts of a GPU (MIG), counting alone initialises CUDA, and a
    process that has done so cannot fork workers any more. In its children CUDA does not work, so
    that such a process looks itself.
    """
    if torch.cuda.is_initialized():
        return _uuids()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_tell_gpus, args=(theirs,))
    child.start()
    theirs.close()
    try:
        uuids: list[str] = ours.recv()
    except EOFError:
        child.join()
        raise EngineError(
            f"counting the GPUs has ended with status {child.exitcode}; `nvidia-smi` may say why; "
            f"or set device: cpu"
        ) from None
    child.join()
    return uuids


def _tell_gpus(connection: Connection) -> None:
    connection.send(_uuids())


def _uuids() -> list[str]:
    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if named[0].startswith("MIG-"):  # a part's own name: the UUID may be that of the whole GPU
        return named[:count]
    return [str(torch.cuda.get_device_properties(gpu).uuid) for gpu in range(count)]
