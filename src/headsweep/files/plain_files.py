"""Opens plain files alone, and writes through no link below the folder of results.

What lies in a folder may be a stranger's: an export that was handed on, an archive. A pipe there in
place of a file would never end, and a link would have a run change files elsewhere. This module
imports nothing slow: jobs and the command line open their logs with it.
"""

import errno
import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path

from headsweep.errors import ConfigError
from headsweep.files import paths

_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK  # opening a pipe would wait for its other end
_MAY_BE_LINKS = (Path(paths.RESULTS), Path(paths.STORE))


def expanded(given: str | Path) -> Path:
    """Return a path with a home folder in place of ``~`` or ``~user``.

    Raises:
        ConfigError: nobody has that name.
    """
    try:
        return Path(given).expanduser()
    except RuntimeError:
        raise ConfigError(
            f"{str(given)!r} begins with the name of no user; write the whole path, or ./{given} "
            f"for a file of that name"
        ) from None


def refuse_links(path: Path) -> None:
    """Refuse to change what a path leads to through a link below the results of this folder.

    `results` and `results/store` may be links: they lie on a larger disk, or are shared.

    Raises:
        ConfigError: one line that names the link.
    """
    if path.is_absolute():
        try:
            here = Path.cwd()
        except FileNotFoundError:  # the working folder was removed
            return
        if not path.is_relative_to(here):
            return
        path = path.relative_to(here)
    if path.parts[:1] != (paths.RESULTS,):
        return
    for part in (path, *path.parents[:-2]):
        if part not in _MAY_BE_LINKS and part.is_symlink():
            raise ConfigError(
                f"{part} is a link; below {paths.RESULTS} only {paths.STORE} may be one: put there "
                f"what it leads to, or remove it"
            )


def open_to_read(path: Path) -> BufferedReader:
    """Open a file to read.

    Raises:
        OSError: it is missing, no plain file, or may not be read.
    """
    return os.fdopen(_plain(_opened(path, os.O_RDONLY), path), "rb")


def read_plain(path: Path) -> bytes:
    """Return the content of a file; raises what `open_to_read` raises."""
    with open_to_read(path) as stream:
        return stream.read()


def sync_file(path: Path) -> None:
    """Have what any process has written to a file be on the disk itself.

    Raises:
        OSError: as `open_to_read`.
    """
    with open_to_read(path) as stream:
        os.fsync(stream.fileno())


def open_to_write(path: Path, flags: int = os.O_WRONLY | os.O_APPEND) -> int:
    """Return the descriptor of a file that is made if it is missing, with its folder.

    It may lie in a folder where all may write, and where others may have put anything. It is made
    only if it is missing: Linux lets nobody create what is another user's in /tmp.

    Raises:
        OSError: it is a link or no plain file, or may not be written.
        ConfigError: see `refuse_links`.
    """
    refuse_links(path)
    flags |= os.O_NOFOLLOW
    try:
        descriptor = _opened(path, flags)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, flags | _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:  # somebody else has just made it
            descriptor = _opened(path, flags)
    return _plain(descriptor, path)


def digest_of(path: Path) -> str:
    """Return the sha256 of a plain file, 64 hex digits, or raise an OSError."""
    with open_to_read(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _opened(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | _FLAGS)
    except ValueError:  # Python's own, of a NUL
        raise OSError(errno.EINVAL, "a path holds no NUL character", str(path)) from None


def _plain(descriptor: int, path: Path) -> int:
    """Return a descriptor if it is of a plain file, or close it."""
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "not a plain file", str(path))
