"""Provenance: how a file was made.

Each result ``name.parquet`` has a record ``name.parquet.run.json``: settings, revisions, versions,
seeds, git commit, and, only here, times and hosts. It also holds checksums of the result and of the
files that belong to it, so that damage is noticed when a result is read.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from headsweep.errors import TableError
from headsweep.tables import unreadable, write_json

_LIBRARIES = (
    "headsweep torch transformers accelerate datasets tokenizers sentence-transformers math-verify "
    "numpy pandas pyarrow snakemake"
)


RECORD = ".run.json"
"""Ends the name of a record, after that of its result."""


class Stopwatch:
    """Measures the wall time of a job, from its creation."""

    def __init__(self) -> None:
        self.started = time.time()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.time() - self.started


def record_path(path: Path) -> Path:
    """Return the path of a result's record."""
    return path.with_name(path.name + RECORD)


def write_record(
    path: Path, stopwatch: Stopwatch, facts: Mapping[str, Any], folder: Path | None = None
) -> None:
    """Write the record of a result.

    Args:
        path: the result.
        stopwatch: started when the job started.
        facts: what decided the result: resolved settings, revisions, seeds, devices, counts.
        folder: further files of the result, such as weights that a JSON file describes; beside the
            result or around it.
    """
    beside = () if folder is None else folder.rglob("[!.]*")
    files = {path, *(f for f in beside if f.is_file() and f.suffixes[-2:] != [".run", ".json"])}
    record = {
        "file": path.name,
        **facts,
        "sha256": {str(file.relative_to(path.parent)): digest_of(file) for file in sorted(files)},
        "versions": versions(),
        "git_commit": git_commit(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(stopwatch.started)),
        "seconds": round(stopwatch.seconds, 3),
        "host": socket.gethostname(),
        "process": os.getpid(),
    }
    write_json(record_path(path), record)


def rewrite_checksums(path: Path) -> None:
    """Have the record of a result, if it has one, describe its files as they are now."""
    facts = read_record(path)
    for name in facts.get("sha256", {}):
        if (file := path.parent / name).exists():
            facts["sha256"][name] = digest_of(file)
    if facts:
        write_json(record_path(path), facts)


def read_record(path: Path) -> dict[str, Any]:
    """Return the record of a result; empty if it has none."""
    record = record_path(path)
    facts: Any = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    return facts


def peak_resident() -> int:
    """Return this process's peak resident memory so far, in bytes.

    `getrusage` would return the parent's peak, which a new process inherits.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0])


def intact(path: Path) -> Path:
    """Return the path of a result after comparing its files with the checksums of its record.

    It need not have one. Parquet tables hold their own checksums.

    Raises:
        TableError: a file is damaged.
    """
    if file := damaged(path):
        removed = "it" if file == path else path
        raise TableError(
            f"{file} cannot be read (it is damaged: its checksum differs); remove {removed} and "
            f"run again"
        )
    return path


def damaged(path: Path, suffix: str = "") -> Path | None:
    """Return a file of a result whose checksum is not that of the result's record, if there is one.

    `suffix` names the kind of files that are compared, by default all.
    """
    for name, written in read_record(path).get("sha256", {}).items():
        file = path.parent / name
        if name.endswith(suffix) and file.exists() and digest_of(file) != written:
            return file
    return None


def read_json(path: Path) -> Any:
    """Return the value of a JSON result, after comparing it with its record.

    Raises:
        TableError: it is missing or damaged.
    """
    try:
        return json.loads(intact(path).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError) as error:
        raise unreadable(path, error) from error


def digest_of(path: Path) -> str:
    """Return the sha256 of a file, as records hold it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python, the platform and the libraries that decide results."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for library in _LIBRARIES.split():
        with suppress(importlib.metadata.PackageNotFoundError):
            found[library] = importlib.metadata.version(library)
    return found


@cache
def git_commit() -> str | None:
    """Return the source tree's commit, with ``+changes`` if it was edited; None outside git."""
    folder = str(Path(__file__).parent)
    asked = ["rev-parse HEAD", "status --porcelain --untracked-files=no -- ."]
    run = partial(subprocess.run, capture_output=True, errors="replace", check=True, timeout=10)
    try:
        commit, changes = (run(["git", "-C", folder, *w.split()]).stdout.strip() for w in asked)
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + ("+changes" if changes else "")
