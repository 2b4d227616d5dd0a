"""Tables as a reader sees them: a declaration of columns, and the text that it makes of a table.

A cell is written by a function of a row, so that a table is declared as titles and cells. The same
`Sheet` is written as Markdown and as LaTeX, and shown on the page.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headroom.analysis.text import latex, markdown, settable, signed, wrapped
from headroom.errors import TableError
from headroom.record import Stopwatch, intact, write_record
from headroom.tables import atomic, write_text

_LOG = logging.getLogger(__name__)

NEEDS = r"% needs \usepackage{array,booktabs,longtable,lscape}"
"""First line of a LaTeX file of tables."""

NONE = "–"
"""What is written where there is no number."""

Cell = Callable[[Any], str]
"""Writes a cell from a row."""

Columns = Sequence[tuple[str, Cell]]
"""Titles and cells, from left to right; titles may repeat."""

_SMALL, _LINE, _TURNED = 88, 122, 180
"""Letters that fit A4 paper with margins of 2 cm: in two sizes, and on the page turned."""


@dataclass(frozen=True)
class Sheet:
    """A table as text.

    The first sentence of the caption is what LaTeX repeats on every page of a long table.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    texts: int = 1
    """How many columns, from the left, hold text; the others hold numbers."""
    lead: str = ""
    """Stands above the table."""
    bold: np.ndarray | None = None
    """Which cells are bold, [rows, columns]."""
    widths: Sequence[float] = ()
    """In LaTeX, the width of each column as a part of the line; by default, what it needs."""

    @classmethod
    def of(cls, table: pd.DataFrame, columns: Columns, caption: str, **facts: Any) -> "Sheet":
        """Write a table.

        Args:
            table: its numbers.
            columns: what is shown of each row.
            caption: what it shows; alone, where the table has no rows.
            facts: further fields.
        """
        rows = [[cell(row) for _, cell in columns] for row in rows_of(table)]
        return cls([title for title, _ in columns], rows, caption, **facts)

    def markdown(self) -> str:
        """Return the table between its lead and its caption as Markdown; what it holds is inert."""
        parts = [self.lead, self.markdown_table(), markdown(self.caption)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def markdown_table(self) -> str:
        """Return the table alone as Markdown; empty where it has no rows."""
        if not self.rows:
            return ""
        bold = np.zeros(np.shape(self.rows), bool) if self.bold is None else self.bold
        cells = [
            [f"**{markdown(cell)}**" if mark else markdown(cell) for cell, mark in pair]
            for pair in (zip(*each, strict=True) for each in zip(self.rows, bold, strict=True))
        ]
        rule = "|" + "---|" * self.texts + "--:|" * (len(self.titles) - self.texts)
        head, *lines = (
            f"| {' | '.join(line)} |" for line in [list(map(markdown, self.titles)), *cells]
        )
        return "\n".join([head, rule, *lines])

    def latex(self) -> str:
        r"""Return the table as a ``longtable`` with its notes.

        Where it is wide it is turned; where it is wider than that it comes in parts.
        """
        if not self.rows:
            return f"{latex(self.caption)}\n"
        title, stop, notes = self.caption.partition(". ")
        parts = self._parts()
        tables = [
            part._latex(f"{title}{stop.strip()} Part {number} of {len(parts)}.")
            if len(parts) > 1
            else part._latex(title + stop.strip())
            for number, part in enumerate(parts, start=1)
        ]
        return "\n".join([*tables, rf"{{\small\noindent {latex(notes)}\par}}"]) + "\n"

    def _latex(self, caption: str) -> str:
        titles: dict[object, str] = dict(enumerate(map(_stacked, self.titles)))
        style = pd.DataFrame(self.rows).style.hide(axis="index")
        style = style.format(lambda cell: latex(str(cell)))
        style = style.format_index(lambda column: titles[column], axis="columns")
        if self.bold is not None:
            marks = np.where(self.bold, "textbf: --rwrap;", "")
            style = style.apply(lambda _: marks, axis=None)
        cut = [rf">{{\raggedright\arraybackslash}}p{{{width}\linewidth}}" for width in self.widths]
        form = "l" * self.texts + "r" * (len(self.titles) - self.texts)
        table = style.to_latex(
            environment="longtable",
            hrules=True,
            caption=latex(caption),
            column_format="".join(cut) or form,
        )
        letters = _SMALL + 1 if self.widths else sum(self._widest())
        size = "small" if letters <= _SMALL else "scriptsize"
        setting = rf"\begingroup\{size}\setlength{{\tabcolsep}}{{3pt}}"
        lines = [rf"{setting}\setlength{{\LTcapwidth}}{{\linewidth}}", table, r"\endgroup"]
        turned = [r"\begin{landscape}", *lines, r"\end{landscape}"]
        return "\n".join(lines if letters <= _LINE else turned)

    def _widest(self) -> list[int]:
        """Return how many letters each column needs, with the space beside it."""
        titles, columns = map(_lines, self.titles), zip(*self.rows, strict=True)
        return [2 + max(map(len, (*a, *b))) for a, b in zip(titles, columns, strict=True)]

    def _parts(self) -> list["Sheet"]:
        """Return tables that fit a turned page, of some columns of numbers each."""
        widest = [] if self.widths else self._widest()
        fixed = list(range(self.texts))
        parts = [list(fixed)]
        for column in range(self.texts, len(widest)):
            if sum(widest[other] for other in (*parts[-1], column)) > _TURNED:
                parts.append(list(fixed))
            parts[-1].append(column)
        if len(parts) == 1:
            return [self]
        return [self._of_columns(part) for part in parts]

    def without_empty_columns(self) -> "Sheet":
        """Return the table without columns of numbers that have none."""
        columns = enumerate(zip(*self.rows, strict=True))
        return self._of_columns([n for n, cells in columns if n < self.texts or {*cells} != {NONE}])

    def _of_columns(self, columns: list[int]) -> "Sheet":
        return replace(
            self,
            titles=[self.titles[column] for column in columns],
            rows=[[row[column] for column in columns] for row in self.rows],
            bold=None if self.bold is None else self.bold[:, columns],
        )


def written(sheets: Mapping[str, Sheet] | Sequence[Sheet]) -> dict[str, str]:
    """Return tables as text, by suffix: md, tex; with headings where they are given by name."""
    named = sheets.items() if isinstance(sheets, Mapping) else (("", sheet) for sheet in sheets)
    parts = [(f"## {markdown(name)}\n\n" if name else "", sheet) for name, sheet in named]
    return {
        "md": "\n".join(heading + sheet.markdown() for heading, sheet in parts),
        "tex": "\n".join([NEEDS, *(sheet.latex() for _, sheet in parts)]),
    }


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
    """Yield the rows of a table as named tuples, whose fields the stubs of pandas do not know."""
    yield from table.itertuples(index=False)


def name(column: str) -> Cell:
    """Return the cell of a name."""
    return lambda row: str(getattr(row, column))


def number(column: str, form: str = "d", unit: float = 1) -> Cell:
    """Return the cell of a number in some unit, in Python's format."""

    def cell(row: Any) -> str:
        value = getattr(row, column)
        if pd.isna(value):
            return NONE
        return format(int(value) if form == "d" else value / unit, form)

    return cell


def in_percent(column: str) -> Cell:
    """Return the cell of a part of 1 in percent, without the sign."""
    return lambda row: percentage(getattr(row, column))


def percentage(part: float) -> str:
    """Write a part of 1 in percent, without the sign."""
    return NONE if pd.isna(part) else signed(100 * part).lstrip("+")


def in_points(column: str) -> Cell:
    """Return the cell of a difference in percentage points, with its sign."""

    def cell(row: Any) -> str:
        value = getattr(row, column)
        return NONE if pd.isna(value) else signed(100 * value)

    return cell


def joined(first: Cell, between: str, second: Cell, after: str = "") -> Cell:
    """Return the cell of two cells with something between; a dash where one of them has none."""

    def cell(row: Any) -> str:
        found = first(row), second(row)
        return NONE if NONE in found else f"{found[0]}{between}{found[1]}{after}"

    return cell


def interval(column: str, ends: str = "", form: Callable[[str], Cell] = in_points) -> Cell:
    """Return the cell of a number with its interval, of columns that end in _low and _high.

    Args:
        column: of the number.
        ends: what the columns of the interval start with, if not the same.
        form: how the three are written.
    """
    low, high = (form(f"{ends or column}_{end}") for end in ("low", "high"))
    return joined(form(column), " (", joined(low, " to ", high), ")")


_TITLE = 14  # letters of a title's line


def _lines(title: str) -> list[str]:
    """Break a title into lines; a unit in brackets has its own."""
    parts = settable(title).replace(" (", "\n(").split("\n")
    return [line for part in parts for line in wrapped(part, _TITLE, 4).splitlines()]


def _stacked(title: str) -> str:
    lines = list(map(latex, _lines(title)))
    return lines[0] if len(lines) == 1 else r"\shortstack{" + r"\\".join(lines) + "}"


def filled(template: str, **names: object) -> str:
    """Fill a path template but for its suffix."""
    return template.format(suffix="{suffix}", **names)


def record(made: Sequence[Path], stopwatch: Stopwatch, sources: Sequence[Path]) -> None:
    """Write one record for files made together, beside the last of them."""
    facts = {"files": [path.name for path in made], "sources": [str(path) for path in sources]}
    write_record(made[-1], stopwatch, facts)
    _LOG.info("%s", ", ".join(path.name for path in made))


def write_csv(path: Path, data: pd.DataFrame) -> None:
    """Write a table as CSV, atomically."""
    with atomic(path) as temporary:
        data.to_csv(temporary, index=False, lineterminator="\n")


def write_sheets(
    template: str,
    sheets: Mapping[str, Sheet] | Sequence[Sheet],
    data: pd.DataFrame | None = None,
    digits: int = 6,
) -> list[Path]:
    """Write tables as Markdown and LaTeX, and their numbers as CSV.

    Args:
        template: path with ``{suffix}`` left open.
        sheets: by name, where each has a heading.
        data: the numbers; None where their file is there already.
        digits: significant ones in the CSV file.

    Returns:
        The files made.
    """
    texts = written(sheets)
    if data is not None:
        texts["csv"] = data.to_csv(index=False, lineterminator="\n", float_format=f"%.{digits}g")
    made = [Path(template.format(suffix=suffix)) for suffix in texts]
    for path, text in zip(made, texts.values(), strict=True):
        write_text(path, text)
    return made
