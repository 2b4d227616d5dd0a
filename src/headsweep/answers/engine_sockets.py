"""The names of the engines' sockets in this folder.

A name is that of an abstract Unix socket, and anybody on this machine may take any. Who listens at
one is the kernel's word (`machine.sockets.check_peer`): another user's process is left alone, and
so is one that lets nobody in. What takes a name and does not listen looks like an engine that
begins: so a stranger can delay the end of a run by some seconds, and have `headsweep engine stop`
tell of an engine that does not listen. Jobs import this module: it imports next to nothing.
"""

import os
from pathlib import Path


def prefix() -> str:
    """Return what the names of all engines of this folder begin with."""
    folder = Path.cwd().stat()
    return f"headsweep-{os.getuid()}-{folder.st_dev:x}-{folder.st_ino:x}-"


def names() -> set[str]:
    """Return the names that are taken in this folder, those of engines that begin or end, too."""
    text = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
    found = (line.partition(" @")[2] for line in text.splitlines())
    return {name for name in found if name.startswith(prefix())}
