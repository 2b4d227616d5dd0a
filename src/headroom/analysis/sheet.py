"""Tables as CSV, and as Markdown and LaTeX from a declaration of their columns."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from headroom.analysis.text import latex, markdown, points, settable, wrapped
from headroom.errors import TableError
from headroom.record import Stopwatch, intact, write_record
from headroom.tables import atomic, write_text

_LOG = logging.getLogger(__name__)

NEEDS = r"% needs \usepackage{array,booktabs,longtable,lscape}"
"""First line of a LaTeX file of tables."""

NONE = "–"
"""Text of a cell without a number."""

Columns = dict[str, str]
"""Titles, with the templates of their cells.

A template has placeholders for the row's columns, as in ``"{gain:pts} ({low:pts} to {high:pts})"``.
Formats in addition to Python's: ``%``, percent without the percent sign; ``pts``, signed percentage
points; ``int``; ``k``, thousands. A cell is a dash if one of its numbers is missing.
"""

_SMALL, _LINE, _TURNED = 88, 122, 180
"""Letters that fit on A4 with 2 cm margins: in small and scriptsize type, and in landscape."""

_LONG = 40  # letters beyond which a text is broken into lines
_TITLE = 14  # letters in a line of a title


class Sheet(NamedTuple):
    """A table as text.

    LaTeX repeats the first sentence of the caption on every page of a long table.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    texts: int = 1
    """Number of text columns, from the left; the others have numbers."""
    bold: np.ndarray | None = None
    """Which cells are bold, [rows, columns]."""

    def markdown(self) -> str:
        """Return the table and its caption as Markdown, with all text escaped."""
        if not self.rows:
            return f"{markdown(self.caption)}\n"
        cells = [[markdown(cell) for cell in row] for row in self.rows]
        for row, column in () if self.bold is None else np.argwhere(self.bold):
            cells[row][column] = f"**{cells[row][column]}**"
        rule = "|" + "---|" * self.texts + "--:|" * (len(self.titles) - self.texts)
        head, *lines = (f"| {' | '.join(row)} |" for row in [map(markdown, self.titles), *cells])
        return "\n".join([head, rule, *lines, "", markdown(self.caption)]) + "\n"

    def latex(self) -> str:
        r"""Return the table as a ``longtable`` with its notes.

        A wide table is set in landscape, a still wider one is split into parts.
        """
        if not self.rows:
            return f"{latex(self.caption)}\n"
        title, _, notes = self.caption.partition(". ")
        letters = [
            2 + min(_LONG, max(map(len, (*_lines(head), *cells))))
            for head, *cells in zip(self.titles, *self.rows, strict=True)
        ]
        parts = [list(range(self.texts))]
        for column in range(self.texts, len(letters)):
            if sum(letters[other] for other in (*parts[-1], column)) > _TURNED:
                parts.append(list(range(self.texts)))
            parts[-1].append(column)
        tables = [
            self._latex(
                part,
                f"{title}. Part {number} of {len(parts)}." if len(parts) > 1 else f"{title}.",
                [letters[column] for column in part],
            )
            for number, part in enumerate(parts, start=1)
        ]
        return "\n".join([*tables, rf"{{\small\noindent {latex(notes)}\par}}"]) + "\n"

    def _latex(self, columns: list[int], caption: str, letters: list[int]) -> str:
        """Return some columns as LaTeX, in the type size that fits them."""
        titles: dict[object, str] = {column: _stacked(self.titles[column]) for column in columns}
        style = pd.DataFrame(self.rows)[columns].style.hide(axis="index")
        style = style.format(lambda cell: latex(str(cell)))
        style = style.format_index(lambda column: titles[column], axis="columns")
        if self.bold is not None:
            marks = np.where(self.bold[:, columns], "textbf: --rwrap;", "")
            style = style.apply(lambda _: marks, axis=None)
        forms = [
            rf">{{\raggedright\arraybackslash}}p{{{0.55 * width / sum(letters):.2f}\linewidth}}"
            if width > _LONG
            else "l"
            if column < self.texts
            else "r"
            for column, width in zip(columns, letters, strict=True)
        ]
        table = style.to_latex(
            environment="longtable",
            hrules=True,
            caption=latex(caption),
            column_format="".join(forms),
        )
        size = "small" if sum(letters) <= _SMALL else "scriptsize"
        setting = rf"\begingroup\{size}\setlength{{\tabcolsep}}{{3pt}}"
        lines = [rf"{setting}\setlength{{\LTcapwidth}}{{\linewidth}}", table, r"\endgroup"]
        turned = [r"\begin{landscape}", *lines, r"\end{landscape}"]
        return "\n".join(lines if sum(letters) <= _LINE else turned)


class _Cells(Formatter):
    """Formats cells of `Columns`."""

    def format_field(self, value: Any, form: str) -> str:
        if pd.isna(value):
            raise _MissingError
        match form:
            case "%":
                return points(value).lstrip("+")
            case "pts":
                return points(value)
            case "int":
                return str(int(value))
            case "k":
                return f"{value / 1e3:,.0f}"
        return format(value, form)


class _MissingError(Exception):
    """A number of a cell is missing."""


def cell(template: str, row: Mapping[str, Any]) -> str:
    """Return a cell of a row; see `Columns`."""
    try:
        return _Cells().vformat(template, (), row)
    except _MissingError:
        return NONE


def sheet(table: pd.DataFrame, columns: Columns, caption: str, texts: int = 1) -> Sheet:
    """Return a table as text; without rows it is only its caption."""
    rows: list[dict[str, Any]] = table.to_dict("records")  # type: ignore[assignment]
    cells = [[cell(template, row) for template in columns.values()] for row in rows]
    return Sheet(list(columns), cells, caption, texts)


def interval(column: str, form: str = "pts", ends: str = "") -> str:
    """Return the template of a number with its interval, from columns ending in _low and _high."""
    low, high = (f"{{{ends or column}_{end}:{form}}}" for end in ("low", "high"))
    return f"{{{column}:{form}}} ({low} to {high})"


def write_sheets(
    template: str,
    sheets: Mapping[str, Sheet],
    data: pd.DataFrame | None = None,
    digits: int = 6,
) -> list[Path]:
    """Write tables as Markdown and LaTeX, and their numbers as CSV.

    Args:
        template: path with the placeholder ``{suffix}``.
        sheets: the tables by heading; an empty heading is left out.
        data: the numbers; None if their file exists already.
        digits: significant digits in the CSV file.

    Returns:
        The files made.
    """
    heads = [f"## {markdown(name)}\n\n" if name else "" for name in sheets]
    tables = [own.markdown() for own in sheets.values()]
    texts = {
        "md": "\n".join(head + table for head, table in zip(heads, tables, strict=True)),
        "tex": "\n".join([NEEDS, *(own.latex() for own in sheets.values())]),
    }
    if data is not None:
        texts["csv"] = data.to_csv(index=False, lineterminator="\n", float_format=f"%.{digits}g")
    made = [Path(template.format(suffix=suffix)) for suffix in texts]
    for path, text in zip(made, texts.values(), strict=True):
        write_text(path, text)
    return made


def write_csv(path: Path, data: pd.DataFrame) -> None:
    """Write a table as CSV, atomically."""
    with atomic(path) as temporary:
        data.to_csv(temporary, index=False, lineterminator="\n")


def read_csv(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read a CSV file that must have some columns.

    Raises:
        TableError: the file is missing, empty, or lacks a column.
    """
    try:
        table = pd.read_csv(intact(path))
    except FileNotFoundError:
        raise TableError(f"{path} is missing; the rule that makes it has not run") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise TableError(f"{path} cannot be read ({error}); remove it and run again") from error
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise TableError(f"{path}: columns {missing} are missing; remove the file and rerun")
    return table


def rows_of(table: pd.DataFrame) -> Iterator[Any]:
    """Yield the rows of a table as named tuples, typed Any since pandas-stubs has no fields."""
    yield from table.itertuples(index=False)


def filled(template: str, **names: object) -> str:
    """Fill in a path template except for its suffix."""
    return template.format(suffix="{suffix}", **names)


def record(made: Sequence[Path], stopwatch: Stopwatch, sources: Sequence[Path]) -> None:
    """Write one record for files made together, beside the last one."""
    facts = {"files": [path.name for path in made], "sources": [str(path) for path in sources]}
    write_record(made[-1], stopwatch, facts)
    _LOG.info("%s", ", ".join(path.name for path in made))


def _lines(title: str) -> list[str]:
    """Break a title into lines; a unit in brackets gets its own line."""
    parts = settable(title).replace(" (", "\n(").split("\n")
    return [line for part in parts for line in wrapped(part, _TITLE, 4).splitlines()]


def _stacked(title: str) -> str:
    lines = list(map(latex, _lines(title)))
    return lines[0] if len(lines) == 1 else r"\shortstack{" + r"\\".join(lines) + "}"
