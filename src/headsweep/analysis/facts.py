"""CSV files of a run; numbers that know their file and row, and sentences made of them.

A `Sentence` is plain text where a run prints its findings, and HTML on the page.
"""

import io
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from markupsafe import Markup
from scipy.special import ndtri

from headsweep import paths
from headsweep.config import Config
from headsweep.errors import TableError
from headsweep.planning.store import Store
from headsweep.record import Stopwatch, read_bytes, write_record
from headsweep.tables import CURVES, read_table, unreadable
from headsweep.text import nats, part, percent, plain, points

_LOG = logging.getLogger(__name__)

LEVEL = 0.05
"""Level of tests against chance; false discovery rate among heads called different from base."""

FORMS: dict[str, Callable[[float], str]] = {
    "percent": percent,
    "part": part,
    "points": points,
    "nats": nats,
    "count": lambda value: f"{value:,.0f}",
    "plain": lambda value: f"{value:.3g}",
    "p": lambda value: "< 0.001" if value < 0.001 else f"{value:.3f}",
    "ratio": lambda value: f"{value:.2f}",
}
"""Formats of numbers: fractions as percent, as percent without the sign, and as percentage points;
changes of log-probabilities; counts; three digits; p-values; ratios."""


def joint_factor(entries: int) -> float:
    """Return by how much 95% intervals widen to hold for so many entries at once (Bonferroni)."""
    return float(ndtri(1 - LEVEL / 2 / entries) / ndtri(1 - LEVEL / 2))


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


def record(made: Sequence[Path], stopwatch: Stopwatch, sources: Sequence[Path | str]) -> None:
    """Write one record for files made together in a folder, beside the last one."""
    facts = {"files": [path.name for path in made], "sources": [str(path) for path in sources]}
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
    ``:of 4`` behind it."""
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
        self.parts = {name: plain(own) if type(own) is str else own for name, own in parts.items()}

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
        cls, config: Config, template: str, columns: Sequence[str] = (), **names: object
    ) -> "Source":
        """Read a table of a run, CSV or Parquet, from its template in `headsweep.paths`.

        Raises:
            TableError: the file is missing, damaged, or lacks a column.
        """
        path = Store(config).path(template, suffix="csv", **names)
        schema = CURVES if template == paths.CURVES else pa.schema([])
        is_csv = path.suffix == ".csv"
        rows = read_csv(path, columns) if is_csv else read_table(path, schema, exact=False)
        return cls(str(Path(*path.parts[2:])), rows, whole=True)

    def where(self, **wanted: object) -> "Source":
        """Return the rows in which each column has the given value."""
        rows = self.rows
        return self.of(rows[(rows[list(wanted)] == pd.Series(wanted)).all(axis=1)])

    def query(self, wanted: str) -> "Source":
        """Return the rows of a `pandas.DataFrame.query`; all if it is empty."""
        return self.of(self.rows.query(wanted)) if wanted else self

    def of(self, rows: pd.DataFrame) -> "Source":
        """Return some of its rows as a source."""
        return Source(self.file, rows, entries=self.entries)

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
        index, values = self.rows.index, self.rows[column]
        if how:
            key = f"{column}@{'*' if self.whole else ','.join(map(str, index))}:{how}"
            value = float(values.agg(how))
        else:
            key, value = f"{column}@{index[0]}", self.value(column)
            if self.entries > 1 and column in ("low", "high"):
                key += f":of {self.entries}"
        return Number(value, self.file, key, "" if pd.isna(value) else FORMS[form](value))

    def interval(self, column: str, form: str, low: str, high: str) -> Sentence:
        """Return a number of the first row with its interval, if any: ``+1.0 (−2.1 to +4.1)``."""
        value, lower, upper = (self.number(each, form) for each in (column, low, high))
        said = "{value} ({low} to {high})" if lower else "{value}"
        return Sentence(said, value=value, low=lower, high=upper)

    def jointly(self, entries: int) -> "Source":
        """Return its rows with intervals ``low`` to ``high`` that hold for so many entries at once.

        Bonferroni's: each leaves out a share of the error. Intervals are taken as symmetric around
        an estimate with a normal error.
        """
        middle = (self.rows["low"] + self.rows["high"]) / 2
        wider = (self.rows["high"] - self.rows["low"]) / 2 * joint_factor(entries)
        rows = self.rows.assign(low=middle - wider, high=middle + wider)
        return Source(self.file, rows, entries=entries)

    def say(self, template: str, **parts: object) -> Sentence:
        """Return a sentence with cells of the first row (see `Cell`) in braces, and other parts."""
        specs = {spec for spec in re.findall(r"\{(.+?)\}", template) if spec not in parts}
        return Sentence(template, **parts, **{spec: _cell(self, spec) for spec in specs})

    def direction(self, low: str, high: str, corrected: str = "") -> str:
        """Return the mark of an interval: ▲ above zero, ▼ below, – if it contains zero.

        With the column of a `corrected` p-value it is also – where that is not below `LEVEL`.
        """
        if corrected and not self.value(corrected) < LEVEL:
            return "–"
        return "▲" if self.value(low) > 0 else "▼" if self.value(high) < 0 else "–"


Cell = str | Callable[[Source], Any]
"""A function of a row, or a text with the name of a text column; with a column of numbers and its
form (see `FORMS`); or with these and the two columns of its interval, or how it is computed over
all rows."""
Columns = Mapping[str, Cell]
"""Cells by title."""


def columns(text: str) -> dict[str, str]:
    """Parse declared columns: ``title=cell, title=cell, ...``."""
    return dict(each.split("=", 1) for each in text.split(", "))


def cells_of(rows: Iterable[Source], wanted: Columns) -> tuple[list[str], list[list[Any]]]:
    """Return titles and cells of tables of one row; columns without any value are left out."""
    found = list(rows)
    cells = {
        title: own
        for title, spec in wanted.items()
        if callable(spec) or (found and spec.split()[0] in found[0].rows)
        if any(map(str, own := [_cell(row, spec) for row in found]))
    }
    return list(cells), [list(row) for row in zip(*cells.values(), strict=True)]


def _cell(row: Source, spec: Cell) -> Any:
    if callable(spec):
        return spec(row)
    column, *form = spec.split()
    if form:
        return row.interval(column, *form) if len(form) == 3 else row.number(column, *form)
    value = row.first[column]
    return "" if value is None or value != value else plain(str(value))
