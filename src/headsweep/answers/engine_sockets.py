"""The engines' sockets: their names in this folder, and who holds them.

A name is that of an abstract Unix socket. Anybody may take any name. So this module signals only a
process of this user, and only the one that holds the socket. Jobs import this module: it imports
next to nothing.
"""

import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

_LOG = logging.getLogger(__name__)

_LOOKS, _SECONDS_BETWEEN_LOOKS = 20, 0.05


def prefix() -> str:
    """Return what the names of all engines of this folder begin with."""
    folder = Path.cwd().stat()
    return f"headsweep-{os.getuid()}-{folder.st_dev:x}-{folder.st_ino:x}-"


def names() -> list[str]:
    """Return the names of this folder's engines, those included that begin or end.

    A name that no process of this user holds, as far as can be seen, is left out with a warning.
    """
    for _ in range(_LOOKS):
        inodes = _inodes()
        held = _holders(chain.from_iterable(inodes.values()))
        ours = [name for name in sorted(inodes) if not held.keys().isdisjoint(inodes[name])]
        if len(ours) == len(inodes):
            return ours
        time.sleep(_SECONDS_BETWEEN_LOOKS)  # a process that ends lets go of its socket first
    for name in sorted(inodes.keys() - ours):
        _LOG.warning(
            "%s is left alone: no process of yours that can be seen from here holds this socket; "
            "it is another user's, or an engine in another container, which `headsweep engine "
            "stop` ends there",
            name,
        )
    return ours


def send_signal(name: str, process: int, number: signal.Signals) -> bool:
    """Send a signal to the process that listens at a name if it holds the name's socket; tell so.

    The id may be 0, which would mean this process and its group, or be another process's by now.
    """
    held = _holders(_inodes().get(name, ()))
    if is_holder := process in chain.from_iterable(held.values()):
        os.kill(process, number)
    return is_holder


def _inodes() -> dict[str, set[str]]:
    """Return the inodes of the sockets with each name of this folder: listening or connected."""
    lines = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()
    inodes = dict[str, set[str]]()
    for line in lines:
        columns, _, name = line.partition(" @")
        if name.startswith(prefix()):
            inodes.setdefault(name, set()).add(columns.split()[-1])
    return inodes


def _holders(inodes: Iterable[str]) -> dict[str, list[int]]:
    """Return the processes of this user that hold each of some sockets, by the sockets' inodes."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    holders = dict[str, list[int]]()
    if not wanted:
        return holders
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # others' processes, and those that end
            if folder.stat().st_uid != os.getuid():
                continue
            for file in (folder / "fd").iterdir():
                with contextlib.suppress(FileNotFoundError):  # it is closed by now
                    if inode := wanted.get(str(file.readlink())):
                        holders.setdefault(inode, []).append(int(folder.name))
    return holders
