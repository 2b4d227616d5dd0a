"""CSV files of a run; numbers that know their file and row, and sentences made of them.

A `Sentence` is plain text where a run prints its findings, and HTML on the page.
"""

import io
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from scipy.special import stdtrit

from headsweep.errors import TableError
from headsweep.files.record import Stopwatch, read_bytes, write_record
from headsweep.files.safe_files import unreadable
from headsweep.files.tables import FileKind, Table
from headsweep.results.marks import Mark
from headsweep.statistics import SIGNIFICANCE
from headsweep.store.layout import Store
from headsweep.text import correlation, nats, nats_a_token, percent, percentage, plain, points

_LOG = logging.getLogger(__name__)

LEAST_P = 0.001
"""The smallest p-value that is told as a number."""

FORMS: dict[str, Callable[[float], str]] = {
    "percent": percent,
    "part": percentage,
    "points": points,
    "nats": nats,
    "nats a token": nats_a_token,
    "correlation": correlation,
    "count": lambda value: f"{value:,.0f}",
    "plain": lambda value: f"{value:.3g}",
    "p": lambda value: f"< {LEAST_P}" if value < LEAST_P else f"{value:.3f}",
    "ratio": lambda value: f"{value:.2f}",
}
"""Formats of numbers: fractions as percent, as percent without the sign, and as percentage points;
changes of log-probabilities, of a text and for each token; correlations; counts; three digits;
p-values; ratios."""


def p_template(p: float) -> str:
    """Return the template of a p-value ``{p}``, whose text begins with ``<`` if it is so small."""
    return "p {p}" if p < LEAST_P else "p = {p}"


def widened(low: Any, high: Any, entries: int, freedom: Any = np.inf) -> tuple[Any, Any]:
    """Return 95% intervals, numbers or columns, widened to hold for so many entries at once.

    Bonferroni's: each leaves out a share of the error. Intervals are symmetric around an estimate
    whose error is Student's with these degrees of freedom, by default normal.
    """
    if entries == 1:
        return low, high
    quantile, joint_quantile = (
        stdtrit(freedom, 1 - SIGNIFICANCE / 2 / tests) for tests in (1, entries)
    )
    more = (high - low) / 2 * (joint_quantile / quantile - 1)
    return low - more, high + more


def read_csv(path: Path, columns: Sequence[str] = ()) -> pd.DataFrame:
    """Read a CSV file that must have some columns.

    Raises:
        TableError: the file is missing, damaged, empty, or lacks a column.
    """
    try:
        table = pd.read_csv(io.BytesIO(read_bytes(path)))
    except ValueError as error:
        raise unreadable(path, error) from error
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise TableError(f"{path}: columns {missing} are missing; remove the file and rerun")
    return table


def rows_of(table: pd.DataFrame) -> Iterator[Any]:
    """Yield the rows of a table as named tuples, typed Any since pandas-stubs has no fields."""
    yield from table.itertuples(index=False)


def record(
    made: Sequence[Path], stopwatch: Stopwatch, sources: Sequence[Path | str], **more: str
) -> None:
    """Write one record for files made together in a folder, beside the last one."""
    facts = {"sources": [str(path) for path in sources], **more}
    write_record(made[-1], stopwatch, facts, together=made)
    _LOG.info("%s", ", ".join(path.name for path in made))


@dataclass(frozen=True)
class Number:
    """A number with the file, rows and column that it comes from."""

    value: float
    file: str
    """Below the run's folder."""
    key: str
    """``column@row``; over several rows ``column@row,row:sum``, over all ``column@*:sum``. Rows are
    counted from 0. An end of an interval that holds for 4 entries at once (`Source.jointly`) has
    ``:of 4`` behind it, a p-value after Holm's correction over 4 tests ``:holm of 4``."""
    text: str

    def __str__(self) -> str:
        return self.text

    def __html__(self) -> str:
        if not self:
            return ""
        return Markup('<data value="{:.6g}" data-from="{}" data-key="{}">{}</data>').format(
            self.value, self.file, self.key, self.text
        )

    def __bool__(self) -> bool:
        """Return whether there is a number; an empty cell has none."""
        return not pd.isna(self.value)


class Sentence:
    """A sentence with numbers in it: plain text, or HTML that marks them."""

    def __init__(self, template: str, **parts: object) -> None:
        self.template = template
        self.parts = {
            name: plain(value) if type(value) is str else value for name, value in parts.items()
        }

    def __str__(self) -> str:
        return self.template.format(**{name: str(part) for name, part in self.parts.items()})

    def __html__(self) -> str:
        return Markup(self.template).format(**self.parts)


@dataclass(frozen=True, eq=False)
class Source:
    """A table of a run, whose numbers know their position."""

    file: str
    """Below the run's folder."""
    rows: pd.DataFrame
    """All rows or some, numbered from 0 as in the file."""
    whole: bool = False
    entries: int = 1
    """How many entries' intervals ``low`` to ``high`` are widened to hold for at once."""

    @classmethod
    def read(
        cls, store: Store, kind: FileKind, columns: Sequence[str] = (), **names: object
    ) -> "Source":
        """Read a table of a run: Parquet, or CSV that must have some columns.

        Raises:
            TableError: the file is missing, damaged, or lacks a column.
        """
        path = store.path(kind, suffix="csv", **names)
        rows = store.read(kind, **names) if isinstance(kind, Table) else read_csv(path, columns)
        return cls(str(Path(*path.parts[2:])), rows, whole=True)

    def where(self, **wanted: object) -> "Source":
        """Return the rows in which each column has the given value."""
        rows = self.rows
        return self.of(rows[(rows[list(wanted)] == pd.Series(wanted)).all(axis=1)])

    def query(self, wanted: str) -> "Source":
        """Return the rows of a `pandas.DataFrame.query`."""
        return self.of(self.rows.query(wanted))

    def of(self, rows: pd.DataFrame) -> "Source":
        """Return some of its rows as a source."""
        return Source(self.file, rows, entries=self.entries)

    def largest(self, column: str) -> "Source":
        """Return the row with the largest value of a column."""
        return self.of(self.rows.loc[[self.rows[column].idxmax()]])

    def __iter__(self) -> Iterator["Source"]:
        """Yield each row as a table of its own."""
        return (self.of(self.rows.loc[[index]]) for index in self.rows.index)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def first(self) -> pd.Series:
        """The first row."""
        return self.rows.iloc[0]

    def value(self, column: str) -> float:
        """Return a number of the first row."""
        return float(self.first[column])

    def number(self, column: str, form: str = "plain", how: str = "") -> Number:
        """Return a number of the first row, or over all rows: `how` is pandas' name of it."""
        index = self.rows.index
        values = self.rows[column]
        if how:
            key = f"{column}@{'*' if self.whole else ','.join(map(str, index))}:{how}"
            value = float(values.agg(how))
        else:
            key = f"{column}@{index[0]}"
            value = self.value(column)
            if self.entries > 1 and column in ("low", "high"):
                key += f":of {self.entries}"
        return Number(value, self.file, key, "" if pd.isna(value) else FORMS[form](value))

    def interval(self, column: str, form: str, low: str, high: str) -> Sentence:
        """Return a number of the first row with its interval, if any: ``+1.0 (−2.1 to +4.1)``."""
        value, lower, upper = (
            self.number(column_name, form) for column_name in (column, low, high)
        )
        said = "{value} ({low} to {high})" if lower else "{value}"
        return Sentence(said, value=value, low=lower, high=upper)

    def jointly(self, entries: int) -> "Source":
        """Return its rows with intervals ``low`` to ``high`` that hold for so many entries at once.

        They are `widened` by a table's ``freedom``; without that column errors are normal.
        """
        freedom = self.rows.get("freedom", np.inf)
        low, high = widened(self.rows["low"], self.rows["high"], entries, freedom)
        return Source(self.file, self.rows.assign(low=low, high=high), entries=entries)

    def say(self, template: str, **parts: object) -> Sentence:
        """Return a sentence about the first row.

        Its `parts` are cells of the row (`Cell`), or are said as they are. Other names in braces
        are columns of text.
        """
        said: dict[str, object] = {}
        for _, name, _, _ in Formatter().parse(template):
            if name is not None:
                part = parts.get(name, Cell(name))
                said[name] = part.of(self) if isinstance(part, Cell) else part
        return Sentence(template, **said)

    def direction(self, low: str, high: str, corrected: str = "") -> Mark:
        """Return the mark of an interval of the first row.

        With the column of a `corrected` p-value nothing is shown where that is not below
        `SIGNIFICANCE`.
        """
        if corrected and not self.value(corrected) < SIGNIFICANCE:
            return Mark.NOT_SHOWN
        return Mark.of_interval(self.value(low), self.value(high))


@dataclass(frozen=True)
class Cell:
    """A cell of a table: which columns of a row it shows, and how."""

    column: str
    form: str = ""
    """One of `FORMS`, for a number; text has none."""
    low: str = ""
    high: str = ""
    """Columns of its interval."""
    over_rows: str = ""
    """How it is computed over all rows, as pandas names it: ``mean``, ``count``."""

    def of(self, row: Source) -> Any:
        """Return the cell of a row."""
        if self.low:
            return row.interval(self.column, self.form, self.low, self.high)
        if self.form:
            return row.number(self.column, self.form, self.over_rows)
        value = row.first[self.column]
        return "" if pd.isna(value) else plain(str(value))

    @property
    def columns(self) -> list[str]:
        """The columns that it needs."""
        return [name for name in (self.column, self.low, self.high) if name]


Columns = Mapping[str, Cell | Callable[[Source], Any]]
"""Cells by the title of their column; a function computes one from a row."""


def cells_of(rows: Iterable[Source], wanted: Columns) -> tuple[list[str], list[list[Any]]]:
    """Return titles and cells of tables of one row; columns without any value are left out."""
    sources = list(rows)
    columns: dict[str, list[Any]] = {}
    for title, cell in wanted.items():
        if isinstance(cell, Cell):
            if not sources or cell.column not in sources[0].rows:
                continue
            values = [cell.of(source) for source in sources]
        else:
            values = [cell(source) for source in sources]
        if any(map(str, values)):
            columns[title] = values
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]
