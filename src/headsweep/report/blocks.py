"""The building blocks of the page: tables, rows of marks, figures, print images.

``assets/tables.csv`` declares tables, one a row: the section, and the title of a folded block; the
path's name in `headsweep.paths`, and the table there; which rows, in the language of
`pandas.DataFrame.query`; the cells (`headsweep.analysis.facts.columns`); the caption. Rows of marks
have a label, columns by the class of their mark, and those of the interval and a corrected p-value,
if there is one. Braces are filled: ``of`` names the subject.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Formatter
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup, escape

from headsweep import paths
from headsweep.analysis import cut, unlike
from headsweep.analysis.facts import Columns, Sentence, Source, cells_of, columns
from headsweep.analysis.latex import PRINTED
from headsweep.analysis.verdicts import rival
from headsweep.config import Config
from headsweep.errors import TableError
from headsweep.planning.exhibits import COMPRESSION_TABLES, EMPTY, EXHIBITS, Shown, find_exhibit
from headsweep.planning.store import Store
from headsweep.planning.titles import title, titles
from headsweep.record import read_json, read_record, read_text
from headsweep.report.svg import Scale, ruler, strip
from headsweep.text import part, points, short

_DECLARED = Path(__file__).with_name("assets") / "tables.csv"
_CLIP = 0.25  # differences beyond this are drawn as arrows
_ROWS = 12  # of marks, at most
_ROOM = 600_000  # characters of images that a page embeds; for further ones it names the file


@dataclass
class Table:
    """Rows of text and numbers."""

    titles: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: Any
    file: str = ""
    """The file of its numbers, named once for the table."""
    foot: Any = ""
    """The scale below a column of marks."""
    kind: str = "table"

    def cell(self, cell: Any) -> Markup:
        """Return a cell as HTML."""
        return Markup(escape(cell).replace(Markup(' data-from="{}"').format(self.file), ""))


@dataclass
class Picture:
    """A figure that was drawn for the page, or an image that was drawn for print."""

    svg: Markup
    caption: str
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


def table(source: Source, columns: Columns, caption: str = "", limit: int = 600) -> list[Block]:
    """Return a table, or nothing if there are no rows.

    Empty columns are left out; constant ones move to the caption.
    """
    titles, rows = cells_of(source.of(source.rows[:limit]), columns)
    if not rows:
        return []
    said: list[Any] = [caption] * bool(caption)
    keep = []
    for place, name in enumerate(titles):
        if place and len(rows) > 2 and len({str(row[place]) for row in rows}) == 1:
            said.append(Sentence("{title}: {value}.", title=name, value=rows[0][place]))
        else:
            keep.append(place)
    if len(source) > limit:
        said.append(f"{limit} of {len(source)} rows; {source.file} has all.")
    shown = [[row[place] for place in keep] for row in rows]
    told = Markup(" ").join(map(escape, said))
    return [Table([titles[place] for place in keep], shown, told, source.file)]


def marks(
    rows: Sequence[Source],
    label: str | Callable[[Source], Any],
    drawn: Mapping[str, str],
    ends: Sequence[str],
    columns: Columns,
    caption: str,
) -> list[Block]:
    """Return rows of marks with their intervals and numbers, or nothing if there are no rows.

    Args:
        rows: tables of one row, in the order to show; the highest are kept if there are many.
        label: label of a row, or a text with its columns in braces.
        drawn: columns by the class of their mark; `sign` is coloured by `Source.direction`.
        ends: columns of the interval, and of its corrected p-value, if it has one.
        columns: cells beside the marks.
        caption: caption of the table.
    """
    if not rows:
        return []
    last = [*drawn.values()][-1]
    highest = sorted(rows, key=lambda row: -np.nan_to_num(row.value(last), nan=-math.inf))[:_ROWS]
    rows = [row for row in rows if row in highest]
    values = [row.value(each) for row in rows for each in (*drawn.values(), *ends[:2])]
    unit = "points" if any("points" in str(each) for each in columns.values()) else "percent"
    scale = Scale.over(values, _CLIP if unit == "points" else math.inf)

    def named(row: Source) -> Any:
        return label(row) if callable(label) else short(label.format(**row.first), 40)

    def strips(row: Source) -> Markup:
        low, high = map(row.value, ends[:2])
        sign = {"▲": "dot up", "▼": "dot down", "–": "ring"}[row.direction(*ends)]
        own = {sign if kind == "sign" else kind: row.value(name) for kind, name in drawn.items()}
        return strip(scale, own, (low, high))

    titles, cells = cells_of(rows, {"": named, unit: strips, **columns})
    foot = ruler(scale, points if unit == "points" else part)
    return [Table(titles, cells, caption, foot=foot, kind="strips")]


def images(pictures: Iterable[str]) -> list[Block]:
    """Return figures drawn for print as images, given their paths with the suffix left open.

    What was not drawn or is empty is left out.
    """
    found: list[Block] = []
    for template in pictures:
        path = Path(template.format(suffix="svg"))
        words = read_json(path.with_suffix(".json")) if path.exists() else {"alt": EMPTY}
        if not words["alt"].startswith(EMPTY):
            image = _smaller(read_text(path))
            uri = Markup(image.replace("%", "%25").replace("#", "%23").replace("&", "&amp;"))
            svg = Markup('<img alt="{}" src="data:image/svg+xml,{}">').format(words["alt"], uri)
            found.append(Picture(svg, f"In print: {path.with_suffix('.pdf')}", "image"))
    return found


def bounded(blocks: Iterable[Block]) -> None:
    """Leave the last images to their files, where all together are too large for a page."""
    room = _ROOM
    for block in blocks:
        if isinstance(block, Picture) and block.kind == "image":
            room -= len(block.svg)
            block.svg = block.svg if room >= 0 else Markup("")


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


def fill(config: Config, section: Section) -> None:
    """Add the declared tables and images to a section."""
    opened: list[Block] = []
    rows = declared()
    for row in rows[rows["section"] == section.anchor].itertuples():
        to = section.folds.setdefault(str(row.fold), []) if row.fold else opened
        for source, names in _sources(config, getattr(paths, str(row.path)), str(row.table)):
            _check(source, row)
            found = source.query(str(row.filter).format(**names))
            caption, shown = str(row.caption).format(**names), columns(str(row.columns))
            if not row.marks:
                to += table(found, shown, caption)
                continue
            drawn = columns(str(row.marks).replace(" ", ", "))
            to += marks(list(found), str(row.label), drawn, str(row.ends).split(), shown, caption)
    for exhibit in EXHIBITS:
        if exhibit.section == section.anchor:
            section.folds[exhibit.heading] = images(Shown(config).pictures(exhibit))
    # Charts of half the width come first, side by side.
    section.blocks = sorted([*opened, *section.blocks], key=lambda block: block.kind != "half")
    section.folds = {name: blocks for name, blocks in section.folds.items() if blocks}


def declared() -> pd.DataFrame:
    """Return the declarations of ``tables.csv``, a row each."""
    return pd.read_csv(_DECLARED, dtype=str, keep_default_na=False)


def named(row: Any) -> list[str]:
    """Return the columns that a declaration names in cells, marks, ends and label."""
    cells = [*columns(row.columns).values(), *row.ends.split()]
    if row.marks:
        cells += columns(row.marks.replace(" ", ", ")).values()
    found = [name for _, name, _, _ in Formatter().parse(row.label) if name]
    for cell in cells:
        column, *form = cell.split()
        found += [column, *form[1:]]  # a form, then perhaps the ends of an interval
    return found


def _check(source: Source, row: Any) -> None:
    """Refuse a table that lacks a column which its declaration names.

    Raises:
        TableError: columns are missing.
    """
    missing = sorted({*named(row)} - {*source.rows})
    if missing:
        raise TableError(
            f"{source.file} lacks {missing}, which the page shows; remove the file and rerun"
        )


def as_printed(config: Config) -> dict[str, list[Block]]:
    """Return Figures 2, 4 and 5 and Tables 1-4 of both papers, by name."""
    found: dict[str, list[Block]] = {
        heading: images(Shown(config).pictures(find_exhibit(name)))
        for heading, name in (
            ("Figure 2: gains of the best and the median head", "violins"),
            ("Figure 4: Pass@N", "pass_at_n"),
            ("Figure 5: accuracy by subject and head", "heatmap"),
        )
    }
    heading = "Tables 1-4: accuracy by subject, layer and head"
    for source, names in _sources(config, paths.TABLE):
        rows = [
            ["No Prune" if variant == "base" else variant]
            + [each.number("accuracy", "part") for each in source.where(variant=variant)]
            for variant in source.rows["variant"].unique()
        ]
        titles = ["head", *(short(group, 24) for group in source.rows["group"].unique())]
        caption = f"{names['of']}. Right answers in percent. {cut.note(source.rows)}".rstrip()
        found.setdefault(heading, []).append(Table(titles, rows, caption, source.file))
    for exhibit in COMPRESSION_TABLES[:-1] if config.compressions else ():  # costs stand elsewhere
        name = exhibit.replace("table", "Table ").capitalize()
        for source, _ in _sources(config, paths.COMPRESSION_TABLE, exhibit):
            shown, caption = (
                {"compression": "title", **PRINTED},
                unlike.of_table(config, source.rows),
            )
            found[f"Second paper, {name}"] = table(source, shown, caption)
    return {name: blocks for name, blocks in found.items() if blocks}


def _sources(
    config: Config, template: str, table: str = ""
) -> Iterator[tuple[Source, dict[str, Any]]]:
    """Yield the tables of a template, and what fills a declaration's braces.

    Rows of several compressions have the `title` of theirs.
    """
    names = dict.fromkeys(("table", "exhibit", "paper"), table)
    of = re.search(r"\{(sweep|map|selector|frontier|comparison)\}", template)
    if of is None:
        source = Source.read(config, template, **names)
        if template == paths.COMPRESSION_TABLE:
            called = source.rows["compression"].map(titles(config, "compressions"))
            source = replace(source, rows=source.rows.assign(title=called))
        yield source, {}
        return
    kind = of[1]
    for name in getattr(config, f"{kind}s"):
        told: dict[str, Any] = {"of": title(config, f"{kind}s", name)}
        if kind == "selector":
            told["rival"], told["most"] = rival(config, name)
        elif kind == "frontier":
            file = Store(config).path(template, frontier=name, **names)
            told["budget"] = read_record(file)["primary_budget"]
        yield Source.read(config, template, **{kind: name}, **names), told
