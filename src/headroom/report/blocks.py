"""What a section of the page is made of: tables, figures, and images that print already made."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from headroom.analysis.facts import Said, Source
from headroom.analysis.text import plain
from headroom.planning.exhibits import find_exhibit
from headroom.record import read_json

Cell = Callable[[Source], Any]
"""Writes a cell from a table of one row: text, or a `Number` or `Said`."""

_SHOWN = 600_000
"""Characters of images that a page embeds; the others are named."""


@dataclass
class Table:
    """Rows of text and numbers, with what is the same in all of them in the caption."""

    titles: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: Any = ""
    foot: Sequence[Any] = ()
    """Last row, such as the scale below a column of strips."""
    kind: str = "table"
    file: str = ""
    """Where its numbers come from, said once."""

    def cell(self, cell: Any) -> Markup:
        """Return a cell as HTML."""
        return Markup(escape(cell).replace(Markup(' data-from="{}"').format(self.file), ""))


@dataclass
class Picture:
    """A figure drawn for the page, or an image that was drawn for print."""

    svg: Markup
    caption: Any = ""
    kind: str = "figure"


@dataclass
class Section:
    """A question with what answers it, and what is folded away."""

    anchor: str
    title: str
    lead: Sequence[Any]
    blocks: Sequence[Table | Picture]
    folds: Mapping[str, Sequence[Table | Picture]] = field(default_factory=dict)


def table(
    source: Source, columns: Mapping[str, Cell | str], caption: Any = "", limit: int | None = None
) -> Table | None:
    """Write a table; columns without a value vanish, constant ones go to the caption.

    Args:
        source: its rows.
        columns: by title, the function of a row that writes a cell, or the name of a column of
            text.
        caption: what it shows.
        limit: the most rows that are shown; the caption names the file that has all.

    Returns:
        The table; None if there are no rows.
    """
    rows = [[_cell(row, cell) for cell in columns.values()] for row in source][:limit]
    if not rows:
        return None
    keep, alike = [], []
    for place, title in enumerate(columns):
        texts = {str(row[place]) for row in rows}
        if texts == {""}:
            continue
        if len(texts) == 1 and len(rows) > 2 and place:
            alike.append(Said("{title}: {value}.", title=title, value=rows[0][place]))
        else:
            keep.append(place)
    parts = [caption, *alike]
    if limit is not None and len(source) > limit:
        parts.append(f"{limit} of {len(source)} rows; all are in {source.file}.")
    titles = list(columns)
    return Table(
        [titles[place] for place in keep],
        [[row[place] for place in keep] for row in rows],
        join(parts),
        file=source.file,
    )


def join(parts: Sequence[Any]) -> Said:
    """Return sentences, one after the other."""
    there = [part for part in parts if str(part)]
    names = [f"part{number}" for number in range(len(there))]
    return Said(" ".join(f"{{{name}}}" for name in names), **dict(zip(names, there, strict=True)))


def numbers(form: str, *names: str, **renamed: str) -> dict[str, Cell]:
    """Return columns of numbers in one form, by title; titles are names without underscores."""
    columns = {name.replace("_", " "): name for name in names} | renamed
    return {
        title: lambda row, column=column: row.number(column, form)
        for title, column in columns.items()
    }


def interval(column: str, form: str = "points", low: str = "", high: str = "") -> Cell:
    """Return the cell of a number with its interval."""
    return lambda row: row.interval(column, form, low=low, high=high)


def as_it_is(source: Source, caption: Any = "", limit: int | None = None) -> Table | None:
    """Return a table with all its columns, texts first."""
    texts = list(source.rows.select_dtypes(exclude="number"))
    others = [column for column in source.rows if column not in texts]
    return table(source, {t.replace("_", " "): t for t in texts} | numbers("plain", *others), caption, limit)


def _cell(row: Source, cell: Cell | str) -> Any:
    if not isinstance(cell, str):
        return cell(row)
    value = row.first[cell]
    return "" if value is None or value != value else plain(str(value))


class Images:
    """Images of figures that were drawn for print, while there is room for them."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._room = _SHOWN

    def of(self, name: str, **names: str) -> list[Picture]:
        """Return a figure of the run, as an image on white; none where it was not drawn."""
        template = find_exhibit(name).path
        path, words = (
            Path(template.format(run=self._run, suffix=suffix, **names)) for suffix in ("svg", "json")
        )
        if not path.exists():
            return []
        told = read_json(words)
        if told["alt"].startswith("An empty figure."):
            return []
        image = _smaller(path.read_text(encoding="utf-8"))
        self._room -= len(image)
        file = path.with_suffix(".pdf").relative_to(f"results/{self._run}")
        if self._room < 0:
            return [Picture(Markup(""), Said("In print: {file}", file=str(file)), "image")]
        uri = Markup(image.replace("%", "%25").replace("#", "%23").replace("&", "&amp;"))
        svg = Markup('<img alt="{}" src="data:image/svg+xml,{}">').format(told["alt"], uri)
        return [Picture(svg, Said("In print: {file}", file=str(file)), "image")]


def _smaller(svg: str) -> str:
    """Return an SVG of Matplotlib without what a screen does not show: a third of its length."""
    svg = re.sub(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r"(\d+\.\d)\d+", r"\1", svg)
    return re.sub(r">\s+<", "><", re.sub(r"\s+", " ", svg)).replace('"', "'").strip()

