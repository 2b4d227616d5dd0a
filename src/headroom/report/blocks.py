"""The building blocks of the page's sections: tables, rows of marks, figures, print images."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from headroom.analysis.facts import Columns, Sentence, Source, cells_of
from headroom.analysis.text import points, short
from headroom.planning.exhibits import EMPTY
from headroom.record import read_json
from headroom.report.svg import Scale, ruler, strip

_CLIP = 0.25
"""Differences beyond this are drawn as arrows."""
_ROWS = 12
"""How many rows of marks are shown."""
_ROOM = 600_000
"""Characters of images that a page embeds; for further ones it names the file."""


@dataclass
class Table:
    """Rows of text and numbers."""

    titles: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: Any = ""
    file: str = ""
    """The file of its numbers, named once for the table."""
    foot: Sequence[Any] = ()
    """The last row, with the scale of a column of marks."""
    kind: str = "table"

    def cell(self, cell: Any) -> Markup:
        """Return a cell as HTML."""
        return Markup(escape(cell).replace(Markup(' data-from="{}"').format(self.file), ""))


@dataclass
class Picture:
    """A figure drawn for the page, an image that was drawn for print, or text."""

    svg: Markup
    caption: Any = ""
    kind: str = "figure"


Block = Table | Picture


@dataclass
class Section:
    """A question, the blocks that answer it, and folded blocks by title."""

    anchor: str
    title: str
    lead: list[Any] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    folds: dict[str, list[Block]] = field(default_factory=dict)


def table(source: Source, columns: Columns, caption: Any = "", limit: int = 600) -> list[Block]:
    """Return a table, or nothing if there are no rows.

    Empty columns are left out; constant ones move to the caption.
    """
    titles, rows = cells_of(source[:limit], columns)
    if not rows:
        return []
    keep, said = [], [caption]
    for place, title in enumerate(titles):
        if place and len(rows) > 2 and len({str(row[place]) for row in rows}) == 1:
            said.append(Sentence("{title}: {value}.", title=title, value=rows[0][place]))
        else:
            keep.append(place)
    if len(source) > limit:
        said.append(f"{limit} of {len(source)} rows; {source.file} has all.")
    there = {f"part{place}": part for place, part in enumerate(said) if str(part)}
    told = Sentence(" ".join(f"{{{name}}}" for name in there), **there)
    shown = [[row[place] for place in keep] for row in rows]
    return [Table([titles[place] for place in keep], shown, told, source.file)]


def marks(
    rows: Iterable[Source],
    label: str | Callable[[Source], Any],
    drawn: Mapping[str, str],
    ends: Sequence[str],
    columns: Columns,
    caption: Any,
) -> list[Block]:
    """Return rows of marks with their intervals and numbers, or nothing if there are no rows.

    Args:
        rows: tables of one row, in the order to show.
        label: label of a row, or a text with its columns in braces.
        drawn: columns by the class of their mark; the mark `sign` is coloured if its interval
            excludes zero.
        ends: columns of the interval.
        columns: cells beside the marks.
        caption: caption of the table.
    """
    found = list(rows)
    if not found:
        return []
    last = [*drawn.values()][-1]
    highest = sorted(range(len(found)), key=lambda place: -found[place].value(last))[:_ROWS]
    found = [found[place] for place in sorted(highest)]
    values = [row.value(each) for row in found for each in (*drawn.values(), *ends)]
    percent = "part_of_100" in "".join(map(str, columns.values()))
    scale = Scale.over(values, math.inf if percent else _CLIP)

    def named(row: Source) -> Any:
        return label(row) if callable(label) else short(label.format(**row.first), 40)

    def strips(row: Source) -> Markup:
        low, high = map(row.value, ends)
        kinds = {"sign": "dot up" if low > 0 else "dot down" if high < 0 else "ring"}
        own = {kinds.get(kind, kind): row.value(name) for kind, name in drawn.items()}
        return strip(scale, own, (low, high))

    titles, cells = cells_of(
        found, {"": named, "percent" if percent else "points": strips, **columns}
    )
    foot = ["", ruler(scale, "{:.1f}".format if percent else points), *("" for _ in titles[2:])]
    return [Table(titles, cells, caption, foot=foot, kind="strips")]


class Images:
    """Embeds the figures drawn for print, up to the page's budget."""

    def __init__(self) -> None:
        self._room = _ROOM

    def of(self, pictures: Iterable[str]) -> list[Block]:
        """Return figures as images, given their paths with the suffix left open.

        What was not drawn or is empty is left out.
        """
        found: list[Block] = []
        for template in pictures:
            path = Path(template.format(suffix="svg"))
            words = read_json(path.with_suffix(".json")) if path.exists() else {"alt": EMPTY}
            if words["alt"].startswith(EMPTY):
                continue
            image = _smaller(path.read_text(encoding="utf-8"))
            self._room -= len(image)
            uri = Markup(image.replace("%", "%25").replace("#", "%23").replace("&", "&amp;"))
            svg = Markup('<img alt="{}" src="data:image/svg+xml,{}">').format(words["alt"], uri)
            caption = f"In print: {path.with_suffix('.pdf')}"
            found.append(Picture(svg if self._room >= 0 else Markup(""), caption, "image"))
        return found


def _smaller(svg: str) -> str:
    """Return a Matplotlib SVG at half its length, without what a screen does not show."""
    hidden = r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>"
    svg = re.sub(rf"{hidden}| xmlns:xlink=\S+| id=\"[a-z]+_\d+\"", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s+", " ", re.sub(r"(\d+\.\d)\d+", r"\1", svg)).replace("> <", "><").strip()
    rules = []
    for place, style in enumerate(dict.fromkeys(re.findall(r'style="([^"]*)"', svg))):
        svg = svg.replace(f'style="{style}"', f'class="c{place}"')
        rules.append(f".c{place}{{{style}}}")
    svg = svg.replace("<defs>", f"<defs><style>{''.join(rules)}</style>", 1)
    return svg.replace("xlink:href", "href").replace('"', "'")
