"""The building blocks of the page: tables, rows of marks, figures, print images.

Which tables a section has is declared in `headsweep.page.page_tables`.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from headsweep.config.titles import title, titles
from headsweep.errors import TableError
from headsweep.files import paths
from headsweep.files.record import read_json, read_text
from headsweep.files.tables import FileKind, template_of
from headsweep.page.declarations import Facts, Marks, PageTable
from headsweep.page.page_tables import PAGE_TABLES
from headsweep.page.paper_tables import STUDY_COLUMNS
from headsweep.page.svg import Scale, ruler, strip
from headsweep.results import paper_differences
from headsweep.results.comparisons import TESTED_AT_BUDGET, rival
from headsweep.results.exhibits import COMPRESSION_TABLES, EMPTY, EXHIBITS, RunFiles, find_exhibit
from headsweep.results.facts import Cell, Columns, Sentence, Source, cells_of
from headsweep.results.marks import Mark
from headsweep.store.layout import Store
from headsweep.text import percentage, points, short

_CLIP = 0.25  # differences beyond this are drawn as arrows
_ROWS = 12  # of marks, at most
_ROOM = 175_000  # characters of images that a page embeds; for further ones it names the file


@dataclass
class ShownTable:
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


Block = ShownTable | Picture


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
    sentences: list[Any] = [caption] if caption else []
    varying = []
    for place, name in enumerate(titles):
        values = {str(row[place]) for row in rows}
        if place and len(rows) > 2 and len(values) == 1:
            sentences.append(Sentence("{title}: {value}.", title=name, value=rows[0][place]))
        else:
            varying.append(place)
    if len(source) > limit:
        sentences.append(f"{limit} of {len(source)} rows; {source.file} has all.")
    whole_caption = Markup(" ").join(map(escape, sentences))
    kept_titles = [titles[place] for place in varying]
    kept_rows = [[row[place] for place in varying] for row in rows]
    return [ShownTable(kept_titles, kept_rows, whole_caption, source.file)]


_SIGNS = {Mark.BETTER: "dot up", Mark.WORSE: "dot down", Mark.NOT_SHOWN: "ring"}
"""Classes of a row's mark."""


def marks(
    rows: Sequence[Source],
    shown: Marks,
    columns: Columns,
    caption: str,
    label: Callable[[Source], Any] | None = None,
) -> list[Block]:
    """Return rows of marks with their intervals and numbers, or nothing if there are no rows.

    The highest `_ROWS` are kept, and the caption says so.

    Args:
        rows: tables of one row, in the order to show.
        shown: the marks of a row.
        columns: cells beside the marks.
        caption: caption of the table.
        label: label of a row, in place of that of the marks.
    """
    if not rows:
        return []
    marked = list(shown.drawn.values())
    kept = _highest(rows, marked[-1])
    if len(kept) < len(rows):
        more = f"The highest {len(kept)} of {len(rows)} rows; {rows[0].file} has all."
        caption = f"{caption} {more}".lstrip()
    rows = kept
    values = [row.value(name) for row in rows for name in (*marked, shown.low, shown.high)]
    forms = [cell.form for cell in columns.values() if isinstance(cell, Cell)]
    in_points = "points" in forms
    scale = Scale.over(values, _CLIP if in_points else math.inf)

    def named(row: Source) -> Any:
        return label(row) if label else short(shown.label.format(**row.first), 40)

    def strips(row: Source) -> Markup:
        direction = row.direction(shown.low, shown.high, shown.corrected)
        sign = _SIGNS[direction]
        places = {
            sign if kind == "sign" else kind: row.value(name) for kind, name in shown.drawn.items()
        }
        return strip(scale, places, (row.value(shown.low), row.value(shown.high)))

    unit = "points" if in_points else "percent"
    titles, cells = cells_of(rows, {"": named, unit: strips, **columns})
    foot = ruler(scale, points if in_points else percentage)
    return [ShownTable(titles, cells, caption, foot=foot, kind="strips")]


def _highest(rows: Sequence[Source], column: str) -> list[Source]:
    """Return the rows with the highest values of a column, in their own order."""
    ranked = sorted(rows, key=lambda row: -np.nan_to_num(row.value(column), nan=-math.inf))
    kept = ranked[:_ROWS]
    return [row for row in rows if row in kept]


def images(pictures: Iterable[str]) -> list[Block]:
    """Return figures drawn for print as images, given their paths with the suffix left open.

    What was not drawn or is empty is left out.
    """
    blocks: list[Block] = []
    for template in pictures:
        path = Path(template.format(suffix="svg"))
        if not path.exists():
            continue
        alt = read_json(path.with_suffix(".json"))["alt"]
        if alt.startswith(EMPTY):
            continue
        image = _smaller(read_text(path))
        uri = Markup(image.replace("%", "%25").replace("#", "%23").replace("&", "&amp;"))
        svg = Markup('<img alt="{}" src="data:image/svg+xml,{}">').format(alt, uri)
        blocks.append(Picture(svg, f"In print: {path.with_suffix('.pdf')}", "image"))
    return blocks


def bounded(blocks: Iterable[Block]) -> None:
    """Leave the last images to their files, where all together are too large for a page."""
    room = _ROOM
    for block in blocks:
        if isinstance(block, Picture) and block.kind == "image":
            room -= len(block.svg)
            if room < 0:
                block.svg = Markup("")


def _smaller(svg: str) -> str:
    """Return a Matplotlib SVG at half its length, without what a screen does not show."""
    hidden = r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>"
    svg = re.sub(rf"{hidden}| xmlns:xlink=\S+| id=\"[a-z]+_\d+\"", "", svg, flags=re.DOTALL)
    # Only inside tags: texts are numbers that are read.
    svg = re.sub("<[^>]*>", lambda tag: re.sub(r"(\d+\.\d)\d+", r"\1", tag[0]), svg)
    svg = re.sub(r"\s+", " ", svg).replace("> <", "><").strip()
    rules = []
    for place, style in enumerate(dict.fromkeys(re.findall(r'style="([^"]*)"', svg))):
        svg = svg.replace(f'style="{style}"', f'class="c{place}"')
        rules.append(f".c{place}{{{style}}}")
    svg = svg.replace("<defs>", f"<defs><style>{''.join(rules)}</style>", 1)
    return svg.replace("xlink:href", "href").replace('"', "'")


def fill(store: Store, section: Section) -> None:
    """Add the declared tables and images to a section."""
    pictures: list[Block] = []
    unfolded: list[Block] = []
    for declared in PAGE_TABLES:
        if declared.section == section.anchor:
            blocks = section.folds.setdefault(declared.fold, []) if declared.fold else unfolded
            for source, facts in _sources(store, declared.path, declared.table):
                blocks += _made(declared, source, facts)
    for exhibit in EXHIBITS:
        if exhibit.section == section.anchor:
            drawn = images(RunFiles(store).pictures(exhibit))
            if section.anchor == "families":
                pictures += drawn
            else:
                section.folds[exhibit.heading] = drawn
    section.blocks = [*pictures, *unfolded, *section.blocks]
    section.folds = {name: blocks for name, blocks in section.folds.items() if blocks}


def _made(declared: PageTable, source: Source, facts: Facts) -> list[Block]:
    """Return a declared table, made of a table of the run.

    Raises:
        TableError: the run's table lacks columns that the declaration names.
    """
    missing = sorted(declared.needed_columns - {*source.rows})
    if missing:
        raise TableError(
            f"{source.file} lacks {missing}, which the page shows; remove the file and rerun"
        )
    if declared.rows is not None:
        source = source.of(source.rows[declared.rows(source.rows, facts)])
    caption = declared.caption.format(**vars(facts))
    for name, note in declared.notes.items():
        if source.rows[declared.columns[name].column].notna().any():
            caption += f" {note}"
    if declared.marks is None:
        return table(source, declared.columns, caption)
    return marks(list(source), declared.marks, declared.columns, caption)


def as_printed(store: Store) -> dict[str, list[Block]]:
    """Return Figures 2, 4 and 5 and Tables 1-4 of both papers, by name."""
    blocks_by_heading: dict[str, list[Block]] = {
        heading: images(RunFiles(store).pictures(find_exhibit(name)))
        for heading, name in (
            ("Figure 2: gains of the best and the median head", "violins"),
            ("Figure 4: Pass@N", "pass_at_n"),
            ("Figure 5: accuracy by subject and head", "heatmap"),
        )
    }
    heading = "Tables 1-4: accuracy by subject, layer and head"
    for source, facts in _sources(store, paths.TABLE):
        rows: list[list[Any]] = []
        for variant in source.rows["variant"].unique():
            accuracies = [cell.number("accuracy", "part") for cell in source.where(variant=variant)]
            rows.append(["No Prune" if variant == "base" else variant, *accuracies])
        titles = ["head", *(short(group, 24) for group in source.rows["group"].unique())]
        shown = ShownTable(titles, rows, f"{facts.subject}. Right answers in percent.", source.file)
        blocks_by_heading.setdefault(heading, []).append(shown)
    for exhibit in COMPRESSION_TABLES:
        if exhibit == "cost" or not store.config.compressions:  # costs stand elsewhere
            continue
        name = exhibit.replace("table", "Table ").capitalize()
        for source, _ in _sources(store, paths.COMPRESSION_TABLE, exhibit):
            columns = {"compression": Cell("title"), **STUDY_COLUMNS}
            caption = paper_differences.of_table(store.config, source.rows)
            blocks_by_heading[f"Second paper, {name}"] = table(source, columns, caption)
    return {name: blocks for name, blocks in blocks_by_heading.items() if blocks}


def _tested_budget(store: Store, frontier: str) -> int | None:
    """Return the tokens at which a frontier's families are tested, as `Facts.budget` has them."""
    needed = ["order", "adjusted", "budget"]
    paired = Source.read(store, paths.FRONTIER, needed, frontier=frontier, table="paired")
    tested = paired.query(TESTED_AT_BUDGET)
    return int(tested.value("budget")) if tested else None


def _sources(store: Store, kind: FileKind, table: str = "") -> Iterator[tuple[Source, Facts]]:
    """Yield the tables of a kind, and the facts of each one's subject.

    Rows of several compressions have the `title` of theirs.
    """
    config = store.config
    names = dict.fromkeys(("table", "exhibit", "paper"), table)
    subject = re.search(r"\{(sweep|map|selector|frontier|comparison)\}", template_of(kind))
    if subject is None:
        source = Source.read(store, kind, **names)
        if kind == paths.COMPRESSION_TABLE:
            called = source.rows["compression"].map(titles(config, "compressions"))
            source = replace(source, rows=source.rows.assign(title=called))
        yield source, Facts()
        return
    wildcard = subject[1]
    for name in getattr(config, f"{wildcard}s"):
        facts = Facts(subject=title(config, f"{wildcard}s", name))
        if wildcard == "selector":
            other = rival(store, name)
            facts = replace(facts, rival=other.method, rival_n=other.n, most=other.sprint_n)
            if other.n < other.sprint_n:
                facts = replace(facts, fewer=f" ({other.method}: {other.n} each)")
        elif wildcard == "frontier":
            facts = replace(facts, budget=_tested_budget(store, name))
        yield Source.read(store, kind, **{wildcard: name}, **names), facts
