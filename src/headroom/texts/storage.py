"""Labelled texts as a table, and back: read and divided once, then the same for every job."""

from dataclasses import asdict
from pathlib import Path

import pandas as pd

from headroom.tables import TEXTS, read_table
from headroom.texts.rows import Parts
from headroom.texts.text import Text


def table(parts: Parts) -> pd.DataFrame:
    """Return divided texts in the columns of `tables.TEXTS`."""
    rows = [
        {**asdict(text), "part": name, "stratum": text.stratum}
        for name, part in parts._asdict().items()
        for text in part
    ]
    return pd.DataFrame(rows, columns=TEXTS.names)


def read_parts(file: Path) -> Parts:
    """Read what `table` made.

    Raises:
        TableError: the file is missing, damaged or of another schema.
    """
    rows = read_table(file, TEXTS)
    return Parts(*(_texts(rows[rows["part"] == part]) for part in Parts._fields))


def _texts(rows: pd.DataFrame) -> list[Text]:
    return [
        Text(
            example_id=row["example_id"],
            text=row["text"],
            second=row["second"] if isinstance(row["second"], str) else None,
            answers=tuple(row["answers"]),
            starts=tuple(map(int, row["starts"])),
        )
        for row in rows.to_dict("records")
    ]
