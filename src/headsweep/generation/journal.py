r"""Answers on disk as they finish: the journal of a table that is not complete yet.

One record a line: a newline, the CRC-32 of the rest in hex, a space, JSON. As the newline comes
first, a record cut short by a crash spoils itself only, and several processes may append to one
journal. Of a record that is there twice the last one counts.
"""

import contextlib
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def append(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Add records to a journal; they outlive this process, and after `sync` the machine too."""
    bodies = [json.dumps(record, separators=(",", ":")).encode() for record in records]
    lines = b"".join(b"\n%08x %b" % (zlib.crc32(body), body) for body in bodies)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as stream:
        stream.write(lines)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the whole records of a journal, in order; none if there is no journal."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    whole = (line[9:] for line in lines if line[:9] == b"%08x " % zlib.crc32(line[9:]))
    return [json.loads(body) for body in whole]


def sync(path: Path) -> None:
    """Have a journal written to the disk itself, if it is still there."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as stream:
        os.fsync(stream.fileno())
