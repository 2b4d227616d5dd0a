"""How a table of the page is declared: its file, columns, caption, and marks if it has any."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from string import Formatter

import pandas as pd

from headsweep.files.tables import FileKind
from headsweep.results.facts import Cell


@dataclass(frozen=True)
class Facts:
    """What captions and the choice of rows may name of a table's subject."""

    subject: str = ""
    """The title of the sweep, selector, frontier or comparison."""
    rival: str = ""
    """Of a selector: the method that it is held against."""
    most: int = 0
    """Of a selector: the largest number of answers that SPRINT has."""
    rival_n: int = 0
    """Of a selector: the largest number of answers that SPRINT and its rival have."""
    fewer: str = ""
    """Of a selector: says in brackets if its rival has fewer answers than SPRINT."""
    budget: int | None = None
    """Of a frontier: the tokens of its test, as a multiple of an answer's."""


@dataclass(frozen=True)
class Marks:
    """Rows of marks with an interval each, in place of a plain table."""

    label: str
    """Label of a row: text with columns in braces."""
    drawn: Mapping[str, str]
    """Columns by the class of their mark; `sign` is coloured by the interval."""
    low: str
    high: str
    """Columns of the interval."""
    corrected: str = ""
    """Column of the interval's corrected p-value, if it has one."""

    @property
    def columns(self) -> list[str]:
        """The columns that the marks and their labels need."""
        labels = [name for _, name, _, _ in Formatter().parse(self.label) if name]
        ends = [name for name in (self.low, self.high, self.corrected) if name]
        return labels + list(self.drawn.values()) + ends


DIFFERENCE = Cell("difference", "points", low="low", high="high")


def difference_marks(label: str, corrected: str = "adjusted") -> Marks:
    """Return marks of paired differences, coloured where the corrected test shows one."""
    return Marks(label, {"sign": "difference"}, low="low", high="high", corrected=corrected)


@dataclass(frozen=True)
class PageTable:
    """A table of the page, made of a table of the run."""

    section: str
    """Anchor of the section (`headsweep.page.sections.PAGE_SECTIONS`)."""
    path: FileKind
    """The table's file, as `headsweep.files.tables` or `headsweep.files.paths` has it."""
    columns: Mapping[str, Cell]
    """Cells by the title of their column; beside marks, if there are any."""
    caption: str
    """May name `Facts` in braces."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What the caption adds about a column, by its title, if the column has any value."""
    table: str = ""
    """Name of the table, where a template is that of several."""
    fold: str = ""
    """Title of the folded block that it stands in; the section itself has the others."""
    rows: Callable[[pd.DataFrame, Facts], pd.Series] | None = None
    """Which rows it shows, as a mask; all by default."""
    marks: Marks | None = None

    @property
    def needed_columns(self) -> set[str]:
        """The columns that it names in cells, marks and labels."""
        names = {name for cell in self.columns.values() for name in cell.columns}
        return names.union(self.marks.columns if self.marks else [])
