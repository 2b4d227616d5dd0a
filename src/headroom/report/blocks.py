"""The building blocks of the page's sections: tables, rows of marks, figures, print images."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from headroom.analysis.facts import Sentence, Source
from headroom.analysis.text import plain, points
from headroom.planning.exhibits import EMPTY, Exhibit
from headroom.record import read_json
from headroom.report.svg import Scale, ruler, strip

Columns = Mapping[str, str | Callable[[Source], Any]]
"""Cells by title: a function of a row, or a text with the name of a text column; with a column of
numbers and its form (see `headroom.analysis.facts.FORMS`); or with these and the two columns of its
interval."""

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
    lead: Sequence[Any] = ()
    blocks: Sequence[Block] = ()
    folds: dict[str, list[Block]] = field(default_factory=dict)


def table(source: Source, columns: Columns, caption: Any = "", limit: int = 600) -> list[Block]:
    """Return a table, or nothing if there are no rows.

    Empty columns are left out; constant ones move to the caption.
    """
    there = {title: spec for title, spec in columns.items() if _known(source, spec)}
    rows = [[_cell(row, spec) for spec in there.values()] for row in source[:limit]]
    if not rows:
        return []
    keep, said = [], [caption]
    for place, title in enumerate(there):
        texts = {str(row[place]) for row in rows}
        if len(texts) == 1 and len(rows) > 2 and place and texts != {""}:
            said.append(Sentence("{title}: {value}.", title=title, value=rows[0][place]))
        elif texts != {""}:
            keep.append(place)
    if len(source) > limit:
        said.append(f"{limit} of {len(source)} rows; {source.file} has all.")
    titles = list(there)
    shown = [[row[place] for place in keep] for row in rows]
    return [Table([titles[place] for place in keep], shown, _joined(said), source.file)]


def marks(
    rows: Iterable[Source],
    label: str | Callable[[Source], Any],
    drawn: Mapping[str, str],
    ends: tuple[str, str],
    columns: Columns,
    caption: Any,
    *,
    clip: float = math.inf,
    form: Callable[[float], str] = points,
) -> list[Block]:
    """Return rows of marks with their intervals and numbers, or nothing if there are no rows.

    Args:
        rows: tables of one row, in the order to show.
        label: label of a row.
        drawn: columns by the class of their mark; the mark `sign` is coloured if its interval
            excludes zero.
        ends: columns of the interval.
        columns: cells beside the marks.
        caption: caption of the table.
        clip: values beyond ±clip are drawn as arrows.
        form: formats the ticks.
    """
    found = list(rows)
    if not found:
        return []
    values = [float(row.first[each]) for row in found for each in (*drawn.values(), *ends)]
    scale = Scale.over(values, clip)

    def strips(row: Source) -> Markup:
        low, high = (float(row.first[end]) for end in ends)
        kinds = {"sign": "dot up" if low > 0 else "dot down" if high < 0 else "ring"}
        own = {kinds.get(kind, kind): float(row.first[name]) for kind, name in drawn.items()}
        return strip(scale, own, (low, high))

    shown: Columns = {"": label, "points" if form is points else "percent": strips, **columns}
    cells = [[_cell(row, spec) for spec in shown.values()] for row in found]
    foot = ["", ruler(scale, form), *("" for _ in columns)]
    return [Table(list(shown), cells, caption, foot=foot, kind="strips")]


class Images:
    """Embeds the figures drawn for print, up to the page's budget."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._room = _ROOM

    def of(self, exhibit: Exhibit, of: str, layer: int) -> list[Block]:
        """Return a figure of the run as an image, or nothing if it was not drawn."""
        path = Path(exhibit.template(self._run, of, layer).format(suffix="svg"))
        words = read_json(path.with_suffix(".json")) if path.exists() else {"alt": EMPTY}
        if words["alt"].startswith(EMPTY):
            return []
        image = _smaller(path.read_text(encoding="utf-8"))
        self._room -= len(image)
        caption = f"In print: {path.with_suffix('.pdf')}"
        if self._room < 0:
            return [Picture(Markup(""), caption, "image")]
        uri = Markup(image.replace("%", "%25").replace("#", "%23").replace("&", "&amp;"))
        svg = Markup('<img alt="{}" src="data:image/svg+xml,{}">').format(words["alt"], uri)
        return [Picture(svg, caption, "image")]


def _known(source: Source, spec: Any) -> bool:
    return callable(spec) or spec.split()[0] in source.rows


def _cell(row: Source, spec: Any) -> Any:
    if callable(spec):
        return spec(row)
    column, *form = spec.split()
    if form:
        return row.interval(column, *form) if len(form) > 1 else row.number(column, form[0])
    value = row.first[column]
    return "" if value is None or value != value else plain(str(value))


def _joined(parts: Sequence[Any]) -> Sentence:
    """Join sentences with spaces."""
    there = {f"part{place}": part for place, part in enumerate(parts) if str(part)}
    return Sentence(" ".join(f"{{{name}}}" for name in there), **there)


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
