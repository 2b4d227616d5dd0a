"""Reads the rows of CSV and JSON Lines that others wrote, each with its place in the file.

Cells of CSV are texts as they are written: an id of ``007`` stays what it is. A byte order mark at
the beginning is no part of the text. A small compressed file may hold any number of bytes, so that
all is read within limits.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO

from headsweep.errors import quoted, reject_duplicate_keys

Row = tuple[str, dict[str, Any]]
"""A row's place ("line 12", counted from 1) and its columns."""


MOST_BYTES = 1 << 31
"""Of a file's content, unpacked."""
_LONGEST_LINE = 1 << 26  # bytes; of CSV also the characters of a cell


class RowError(ValueError):
    """A row that cannot be read; the message begins with its place and ends with what to do."""


def csv_rows(file: BinaryIO) -> Iterator[Row]:
    """Yield the rows below the header, by column name.

    Raises:
        RowError: a column is named twice, a row has more or fewer cells than the header, the text
            is not CSV in UTF-8, or there is too much of it.
    """
    csv.field_size_limit(_LONGEST_LINE)  # without it a cell has at most 131,072 characters
    lines = (line.decode("utf-8-sig") for line in _lines(file))
    text = csv.DictReader(lines, strict=True)
    try:
        names = text.fieldnames or []
        if twice := {name for name, count in Counter(names).items() if count > 1}:
            raise RowError(
                f"line {text.line_num} names the column {quoted(min(twice))} twice; rename one"
            )
        for row in text:
            if None in row or None in row.values():
                raise RowError(
                    f"line {text.line_num} has more or fewer cells than the header; put cells that "
                    f"hold commas or line breaks in double quotes"
                )
            yield f"line {text.line_num}", row
    except (csv.Error, UnicodeDecodeError) as error:
        raise RowError(
            f"after line {text.line_num} is not CSV in UTF-8 ({error}); save it as such"
        ) from None


def json_rows(file: BinaryIO) -> Iterator[Row]:
    """Yield the object of each line that is not blank.

    Raises:
        RowError: a line is not JSON in UTF-8, no object, names a key twice, or holds half of a
            character; or there is too much of them.
    """
    for number, line in enumerate(_lines(file), start=1):
        try:
            text = line.decode("utf-8-sig")
            if not text.strip():
                continue
            row = json.loads(text, object_pairs_hook=reject_duplicate_keys)
        except (ValueError, RecursionError) as error:
            raise RowError(
                f"line {number} is not JSON ({error}); write one object on each line"
            ) from None
        if not isinstance(row, dict):
            raise RowError(f"line {number} is {quoted(row)}, not an object; write one on each line")
        if "\\ud" in text.lower() and not _is_unicode(row):
            raise RowError(
                f"line {number} holds half of a character, as in \\ud83d; write all of it"
            )
        yield f"line {number}", row


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file within limits."""
    left = MOST_BYTES
    for number, line in enumerate(iter(partial(file.readline, _LONGEST_LINE + 1), b""), start=1):
        left -= len(line)
        if len(line) > _LONGEST_LINE or left < 0:
            raise RowError(
                f"has more than {_LONGEST_LINE >> 20} MiB in line {number}, or more than "
                f"{MOST_BYTES >> 20} MiB up to it; split it"
            )
        yield line


def _is_unicode(row: object) -> bool:
    """Return whether texts can be written again: half of a surrogate pair cannot."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
