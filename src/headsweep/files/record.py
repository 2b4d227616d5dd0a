"""Provenance: how a file was made, and whether it is still as it was made.

Each result ``name.csv`` has a record ``name.csv.run.json``: settings, revisions, versions, seeds
and git commit. Times and hosts stand only there. Results that a job makes together may share a
record. It also holds checksums of the result, of the files that belong to it, and of itself. The
functions here read whatever a run or the store holds and compare it with these checksums; Parquet
tables, which hold their own, are read by `headsweep.files.safe_files`.
"""

import copy
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import socket
import subprocess
import time
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache, lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headsweep.errors import TableError
from headsweep.files.plain_files import digest_of, open_to_read, read_plain
from headsweep.files.safe_files import count_rows, unreadable, write_json

if TYPE_CHECKING:
    from torch import Tensor

_LIBRARIES = (
    "headsweep torch transformers accelerate datasets tokenizers sentence-transformers mpmath "
    "numpy pandas pyarrow snakemake"
)


RECORD = ".run.json"
"""Ends the name of a record, after that of its result."""

_CHECKSUM = "crc32"
"""Key of the checksum that facts hold of themselves."""
_DEPTH = 3
"""A record describes files of its folder and of two levels below: ``model/encoder/config.json``."""


class Stopwatch:
    """Measures the wall time of a job, from its creation."""

    def __init__(self) -> None:
        self.started = time.time()
        self._begun = time.monotonic()  # the clock may be set meanwhile

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begun


def record_path(path: Path) -> Path:
    """Return the path of a result's record."""
    return path.with_name(path.name + RECORD)


def write_record(
    path: Path,
    stopwatch: Stopwatch,
    facts: Mapping[str, Any],
    folder: Path | None = None,
    together: Iterable[Path] = (),
) -> None:
    """Write the record of a result.

    Args:
        path: the result.
        stopwatch: started when the job started.
        facts: what decided the result: resolved settings, revisions, seeds, devices, counts.
        folder: further files of the result, such as weights that a JSON file describes; beside the
            result or around it.
        together: further results that were made with this one, in the same folder.
    """
    beside = () if folder is None else folder.rglob("[!.]*")
    files = {path, *together}
    files |= {f for f in beside if f.is_file() and f.suffixes[-2:] != [".run", ".json"]}
    record = {
        "file": path.name,
        **facts,
        "together": sorted(file.name for file in {path, *together}),
        "sha256": {str(file.relative_to(path.parent)): digest_of(file) for file in sorted(files)},
        "versions": versions(),
        "git_commit": git_commit(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(stopwatch.started)),
        "seconds": round(stopwatch.seconds, 3),
        "host": socket.gethostname(),
        "process": os.getpid(),
    }
    replace_record(path, record)


def replace_record(path: Path, facts: Mapping[str, Any]) -> None:
    """Write facts as the record of a result."""
    write_facts(record_path(path), facts)


def write_facts(file: Path, facts: Mapping[str, Any]) -> None:
    """Write facts as JSON that holds its own checksum, so that no record has to be written, too."""
    written = json.loads(json.dumps(facts))
    write_json(file, {**written, _CHECKSUM: _checksum_of(written)})


def read_facts(file: Path) -> dict[str, Any]:
    """Return the facts that `write_facts` wrote; empty if the file is missing.

    Raises:
        TableError: the file is damaged. One without a checksum is taken as it is.
    """
    try:
        return copy.deepcopy(_facts(file, _state(file)))
    except (FileNotFoundError, NotADirectoryError):
        return {}


def rewrite_checksums(path: Path) -> None:
    """Have the record that describes a file, if there is one, fit its files as they are now."""
    description = find_record(path)
    if description is None:
        return
    record, _ = description
    result = record.with_name(record.name.removesuffix(RECORD))
    facts = read_record(result)
    for name in facts["sha256"]:
        if (file := result.parent / name).exists():
            facts["sha256"][name] = digest_of(file)
    replace_record(result, facts)


def read_record(path: Path) -> dict[str, Any]:
    """Return the record of a result; empty if it has none.

    Raises:
        TableError: the record is damaged.
    """
    return read_facts(record_path(path))


def peak_resident() -> int:
    """Return this process's peak resident memory so far, in bytes.

    `getrusage` would return the parent's peak, which a new process inherits.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0])


def find_record(path: Path) -> tuple[Path, str] | None:
    """Return the record that describes a file, and the sha256 that it gives; None without one.

    The record is the file's own, or that of a result made with it, or that of a result whose folder
    it lies in. Files of others that are called as records are, near a user's model, are none.

    Raises:
        TableError: a record among which it is looked for is damaged.
    """
    path = path.absolute()
    folders = path.parents[:_DEPTH]
    around = (sorted(folder.glob(f"*{RECORD}")) for folder in folders)
    own = record_path(path)
    for record in chain([own], chain.from_iterable(around)):
        try:
            checksums = _facts(record, _state(record)).get("sha256", {})
        except (FileNotFoundError, NotADirectoryError):
            continue
        except TableError:
            if record != own and _is_foreign(record):
                continue
            raise
        if not isinstance(checksums, dict):  # somebody else's file
            continue
        if written := checksums.get(path.relative_to(record.parent).as_posix()):
            return record, written
    return None


def contradicting_record(path: Path) -> Path | None:
    """Return the record that says that a file's content was another, if there is one."""
    description = find_record(path)
    if description is None:
        return None
    record, digest = description
    return None if _digest(path, _state(path)) == digest else record


def first_damaged_file(path: Path) -> Path | None:
    """Return a damaged file among a result and those that its record describes, if there is one."""
    written = read_record(path).get("sha256", {})
    if not written:
        return path if path.exists() and contradicting_record(path) else None
    if not isinstance(written, dict) or any(map(_leads_away, written)):
        return record_path(path)
    for name, checksum in written.items():
        file = path.parent / name
        if file.exists() and _digest(file, _state(file)) != checksum:
            return file
    return None


def _leads_away(name: str) -> bool:
    """Tell whether a name in a record is of no file of its result; reading it might never end."""
    return Path(name).is_absolute() or ".." in Path(name).parts


def checked_file(path: Path) -> Path:
    """Return the path of a result after checking it and the files that its record describes.

    A Parquet table is held against the checksum in it. A file without record or checksum is taken
    as it is.

    Raises:
        TableError: a file is damaged.
    """
    if file := first_damaged_file(path):
        record = record_path(path)
        raise _is_damaged(file, record if record.exists() else contradicting_record(path) or record)
    if path.suffix == ".parquet":
        count_rows(path)
    return path


def read_bytes(path: Path) -> bytes:
    """Return the content of a file of a run or the store, compared with its record, if it has one.

    Raises:
        TableError: it is missing or damaged.
    """
    try:
        content = read_plain(path)
    except OSError as error:
        raise unreadable(path, error) from error
    description = find_record(path)
    if description is not None:
        record, digest = description
        if hashlib.sha256(content).hexdigest() != digest:
            raise _is_damaged(path, record)
    return content


def read_text(path: Path) -> str:
    """Return a text of a run or the store; otherwise as `read_bytes`."""
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise unreadable(path, error) from error


def read_json(path: Path) -> Any:
    """Return the value of a JSON result, after checking all files that its record describes.

    Raises:
        TableError: it is missing, or one of them is damaged.
    """
    try:
        return json.loads(read_bytes(checked_file(path)))
    except (ValueError, RecursionError) as error:
        raise unreadable(path, error) from error


def read_tensors(path: Path) -> tuple[dict[str, str], dict[str, "Tensor"]]:
    """Return metadata and tensors of a safetensors file of a run or the store.

    Raises:
        TableError: it is missing or damaged.
    """
    from safetensors import SafetensorError, safe_open  # with torch, which few jobs need

    try:
        with open_to_read(checked_file(path)), safe_open(path, framework="pt") as file:
            names = file.keys()
            return file.metadata() or {}, {name: file.get_tensor(name) for name in names}
    except (OSError, SafetensorError) as error:
        raise unreadable(path, error) from error


_State = tuple[int, ...]
"""What changes when a file is replaced or written to."""


def _state(path: Path) -> _State:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@lru_cache(maxsize=4096)
def _digest(path: Path, _: _State) -> str:
    """Return the sha256 of a file in some state; one process computes it once."""
    try:
        return digest_of(path)
    except OSError as error:
        raise unreadable(path, error) from error


@lru_cache(maxsize=4096)
def _facts(file: Path, _: _State) -> dict[str, Any]:
    """Return the facts in a file in some state, compared with their checksum."""
    try:
        facts: dict[str, Any] = json.loads(read_plain(file))
        if not isinstance(facts, dict):
            raise ValueError("it holds no object")
        if facts.pop(_CHECKSUM, None) not in (None, _checksum_of(facts)):
            raise ValueError("it is damaged: its checksum differs")
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, AttributeError, TypeError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        file = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
        removed = "it"
        result = file.with_name(file.name.removesuffix(RECORD))
        if result != file:  # without its record nobody knows whether the result is whole
            removed = f"it and {result}"
        raise TableError(f"{file} cannot be read ({reason}); remove {removed} and run again") from (
            error
        )
    return facts


def _is_foreign(record: Path) -> bool:
    """Tell whether a file holds JSON, but not what a record does."""
    try:
        facts = json.loads(read_plain(record))
    except (OSError, ValueError, RecursionError):
        return False
    return not isinstance(facts, dict)


def _checksum_of(facts: Mapping[str, Any]) -> str:
    """Return the CRC-32 of facts, without their checksum, as 8 hex digits."""
    return f"{zlib.crc32(json.dumps(facts, sort_keys=True).encode()):08x}"


def _is_damaged(file: Path, record: Path) -> TableError:
    """Return what to raise where a record contradicts a file.

    Results made together are made again if any is missing. A file that belongs to a result is not:
    the result has to go.
    """
    result = record.with_name(record.name.removesuffix(RECORD))
    removed: str | Path = result
    if file.name in (result.name, *_facts(record, _state(record)).get("together", ())):
        removed = "it"
    elif result.is_absolute() and not file.is_absolute():
        removed = os.path.relpath(result)
    return TableError(
        f"{file} cannot be read (it is damaged: its checksum differs); remove {removed} and run "
        f"again"
    )


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python, the platform and the libraries that decide results."""
    of_library = {"python": platform.python_version(), "platform": platform.platform()}
    for library in _LIBRARIES.split():
        with suppress(importlib.metadata.PackageNotFoundError):
            of_library[library] = importlib.metadata.version(library)
    return of_library


@cache
def git_commit() -> str | None:
    """Return the source tree's commit, with ``+changes`` if it was edited; None outside git."""
    folder = str(Path(__file__).parents[1])
    commands = ["rev-parse HEAD", "status --porcelain --untracked-files=no -- ."]
    run = partial(subprocess.run, capture_output=True, errors="replace", check=True, timeout=10)
    try:
        commit, changes = (run(["git", "-C", folder, *w.split()]).stdout.strip() for w in commands)
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + ("+changes" if changes else "")
