"""CSV files of a run, and the records of jobs that write several files."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from headroom.errors import TableError
from headroom.record import Stopwatch, intact, write_record
from headroom.tables import unreadable

_LOG = logging.getLogger(__name__)


def read_csv(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read a CSV file that must have some columns.

    Raises:
        TableError: the file is missing, empty, or lacks a column.
    """
    try:
        table = pd.read_csv(intact(path))
    except (FileNotFoundError, ValueError) as error:
        raise unreadable(path, error) from error
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise TableError(f"{path}: columns {missing} are missing; remove the file and rerun")
    return table


def rows_of(table: pd.DataFrame) -> Iterator[Any]:
    """Yield the rows of a table as named tuples, typed Any since pandas-stubs has no fields."""
    yield from table.itertuples(index=False)


def record(made: Sequence[Path], stopwatch: Stopwatch, sources: Sequence[Path | str]) -> None:
    """Write one record for files made together, beside the last one."""
    facts = {"files": [path.name for path in made], "sources": [str(path) for path in sources]}
    write_record(made[-1], stopwatch, facts)
    _LOG.info("%s", ", ".join(path.name for path in made))
