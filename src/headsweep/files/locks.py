"""Locks with names, each held by one process until it releases it or dies, for whatever reason.

One file, which stays empty, holds any number of locks: a name's lock is the byte at the position
given by its hash. They are POSIX record locks. Other hosts see them if the file system passes them
on: NFS with lockd or of version 4, Lustre mounted with `flock`, GPFS, CephFS. Otherwise they hold
only between the processes of a host.
"""

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
from functools import cache
from pathlib import Path

from headsweep.errors import EngineError
from headsweep.files.plain_files import open_to_write

_LOG = logging.getLogger(__name__)

_BUSY = (errno.EACCES, errno.EAGAIN)


class Locks:
    """The locks of a file, which is made if it is not there; `shared` by all users of this host.

    A process opens a file once: closing it again would free all that the process has locked there.

    Raises:
        EngineError: the file cannot be written, is a link, or no plain file.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        self._path = path
        try:
            self._file = _open(path, shared=shared)
        except OSError as error:
            raise EngineError(
                f"{path} cannot be locked ({error.strerror}); it must be a plain file that you may "
                f"write: correct that, or remove it while nothing runs"
            ) from None

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # it could not be opened
            os.close(self._file)

    def take(self, name: str) -> bool:
        """Take a lock unless another process has it; tell whether this process has it now.

        A file system that knows no locks has them all free.
        """
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(name))
        except OSError as error:
            if error.errno in _BUSY:
                return False
            _warn(self._path, error.strerror)
        return True

    def release(self, name: str) -> None:
        """Let go of a lock; it need not be held."""
        with contextlib.suppress(OSError):  # there are none, see above
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _place(name))

    def are_held(self) -> bool:
        """Tell whether other processes have any lock; this one must have none."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.lockf(self._file, fcntl.LOCK_UN)
        except OSError as error:
            return error.errno in _BUSY
        return False


@cache
def _warn(path: Path, cause: str) -> None:
    """Say once that there are no locks."""
    _LOG.warning("%s cannot be locked (%s): two processes may do the same work", path, cause)


def _place(name: str) -> int:
    """Return a name's byte: one of 2 ** 62, as many as fit in an offset on all systems."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) >> 2


def _open(path: Path, *, shared: bool) -> int:
    """Open a file; one that is made has all of its permissions at once."""
    if not shared:
        return open_to_write(path, os.O_RDWR)
    mask = os.umask(0)
    try:
        return open_to_write(path, os.O_RDWR)
    finally:
        os.umask(mask)
