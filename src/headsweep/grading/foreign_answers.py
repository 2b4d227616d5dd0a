"""Reads tables of answers that others made: CSV, JSON Lines, Parquet, by the file's suffix."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from headsweep.benchmarks.row_files import MOST_BYTES, Row, RowError, csv_rows, json_rows
from headsweep.errors import TableError, quoted
from headsweep.files.plain_files import open_to_read


def read_file(path: Path) -> pd.DataFrame:
    """Return a file's rows; cells of CSV, which are texts, and of JSON Lines are objects.

    Raises:
        TableError: the file is missing, damaged, empty, or of an unknown kind.
    """
    if path.suffix not in _READERS:
        raise TableError(
            f"{path} is of no kind that is read; give a file that ends in {', '.join(_READERS)}"
        )
    try:
        table = _READERS[path.suffix](path)
    except RowError as error:
        raise TableError(f"{path} {error}") from None
    except (OSError, ValueError, pa.ArrowException) as error:
        raise TableError(f"{path} cannot be read ({error}); give another file") from None
    if table.empty:
        raise TableError(f"{path} has no rows; give a file with a row for each answer")
    return table


def column(table: pd.DataFrame, path: object, name: str, option: str) -> pd.Series:
    """Return a column of a foreign table.

    Raises:
        TableError: there is none of this name.
    """
    if name in table:
        return table[name]
    there = ", ".join(map(str, table))
    raise TableError(f"{path} has no column {quoted(name)}, only {there}; name it with {option}")


def texts(cells: pd.Series, origin: object) -> list[str | None]:
    """Return the cells of a column as texts, as they are written; None for a missing one.

    Raises:
        TableError: a cell holds several values, or bytes that are no text.
    """
    rows = list(enumerate(cells, 1))
    for row, cell in rows:
        if isinstance(cell, list | tuple | dict | np.ndarray):
            raise TableError(
                f"{origin} row {row}: {cells.name} holds {quoted(cell)}; write one text in each "
                f"cell, and a row for each answer"
            )
    return [None if pd.isna(cell) else _text(cell, f"{origin} row {row}") for row, cell in rows]


def _text(cell: object, where: str) -> str:
    if not isinstance(cell, bytes):
        return str(cell)
    try:
        return cell.decode()
    except UnicodeDecodeError:
        raise TableError(f"{where}: bytes that are no UTF-8; write text") from None


def _csv(path: Path) -> pd.DataFrame:
    with open_to_read(path) as file:
        return _table(csv_rows(file))


def _json_lines(path: Path) -> pd.DataFrame:
    with open_to_read(path) as file:
        return _table(json_rows(file))


def _table(rows: Iterable[Row]) -> pd.DataFrame:
    return pd.DataFrame([row for _, row in rows], dtype=object)


def _parquet(path: Path) -> pd.DataFrame:
    """Read a table in parts: a text that its cells share takes its space once in the file."""
    parts = list[pa.RecordBatch]()
    left = MOST_BYTES
    with open_to_read(path) as stream, pq.ParquetFile(stream) as file:
        groups = (file.metadata.row_group(number) for number in range(file.num_row_groups))
        largest_cell = max([1, *(group.total_byte_size for group in groups)])  # at most
        rows = min(max(1, MOST_BYTES // largest_cell), _MOST_ROWS)
        for part in file.iter_batches(rows):
            left -= part.nbytes
            if left < 0:
                raise ValueError(f"its cells take more than {MOST_BYTES >> 20} MiB; split it")
            parts.append(part)
        table = pa.Table.from_batches(parts, file.schema_arrow)
    # Rows are counted from 0. Whole numbers stay whole where others are missing.
    table.validate(full=True)  # a damaged text is found here, not where it is used
    return table.to_pandas(ignore_metadata=True, integer_object_nulls=True)


_MOST_ROWS = 1 << 16  # that are read at once
_READERS = {".csv": _csv, ".jsonl": _json_lines, ".parquet": _parquet}
SUFFIXES = tuple(_READERS)
