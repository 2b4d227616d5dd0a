"""Answers on disk as they finish: the journal of a table that is not complete yet.

Each record is a line: a newline, the CRC-32 of the rest in hex, a space, JSON. The newline comes
first, so that a record cut short by a crash damages only itself. Each process writes a file of its
own, because network file systems lose data if two hosts append to one file. Every process reads all
files (`layout.journal_files`). If a record is there twice, one of the two counts. A record without
a reason to stop is of an answer that has begun: the next engine goes on from there. Of these the
longest of the last attempt counts (`unit.Begun`): one without tokens withdraws those before it.
"""

import contextlib
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from headsweep.files.plain_files import open_to_write, read_plain, sync_file
from headsweep.store.layout import journal_files


def append(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Add records to a journal; they outlive this process, and after `sync` the machine too."""
    bodies = [json.dumps(record, separators=(",", ":")).encode() for record in records]
    lines = b"".join(b"\n%08x %b" % (zlib.crc32(body), body) for body in bodies)
    with os.fdopen(open_to_write(written_here(path)), "ab") as stream:
        stream.write(lines)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the whole records of a journal; none if there is no journal.

    Those of one process are in order.
    """
    records = list[dict[str, Any]]()
    for file in journal_files(path):
        try:
            lines = read_plain(file).split(b"\n")
        except FileNotFoundError:  # it has just become a table
            continue
        whole = (line[9:] for line in lines if line[:9] == b"%08x " % zlib.crc32(line[9:]))
        records += map(json.loads, whole)
    return records


def count_ended(path: Path) -> int:
    """Return how many records of a journal are of answers that have ended, without parsing them."""
    records = 0
    for file in journal_files(path):
        with contextlib.suppress(FileNotFoundError):  # it has just become a table
            records += read_plain(file).count(b'"stop_reason":')
    return records


def sync(path: Path) -> None:
    """Have what this process added to a journal written to the disk itself, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        sync_file(written_here(path))


def remove(path: Path) -> None:
    """Remove a journal."""
    for file in journal_files(path):
        file.unlink(missing_ok=True)


def written_here(path: Path) -> Path:
    """Return the file of a journal that this process alone appends to."""
    return path.with_name(f"{path.stem}.{_writer(os.getpid())}{path.suffix}")


@cache
def _writer(process: int) -> str:
    """Return this process's name, by its id: random, for hosts may share ids and even names."""
    return os.urandom(4).hex()
