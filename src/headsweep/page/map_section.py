"""The page's part on maps of every head: grids of layers and heads, side by side."""

import pandas as pd
from markupsafe import Markup

from headsweep.config import Config
from headsweep.config.titles import title
from headsweep.experiments.maps.outcomes import (
    HEADS,
    HIGHER,
    LIKELIHOOD,
    LOWER,
    PREFERENCE,
    SOLUTIONS,
    UNIT_OF_OUTCOME,
)
from headsweep.files import paths
from headsweep.page.blocks import Picture, Section, ShownTable
from headsweep.page.figures.shared import strongest
from headsweep.page.head_grid import STRONGEST, Head, HeadGrid, colour, placed
from headsweep.results.facts import FORMS, Sentence, Source
from headsweep.store.batches import pool
from headsweep.store.layout import Store

_TITLES = {
    PREFERENCE: "Preference: right minus wrong samples, nats",
    LIKELIHOOD: "Likelihood of right samples, nats a token; nearly any change lowers it",
    SOLUTIONS: "Likelihood of reference solutions, nats a token",
}


_MARKS = "▲ ▼ shown to be higher, lower, over all heads"


def mapped(store: Store, section: Section) -> None:
    """Add each map's grids, and their numbers to a folded block."""
    config = store.config
    for name in config.maps:
        table = Source.read(store, paths.MAP, HEADS, map=name, table="heads")
        pruned = table.where(kind="head")
        if not pruned:
            continue
        outcomes = [
            outcome for outcome in (PREFERENCE, LIKELIHOOD) if pruned.where(outcome=outcome)
        ]
        rows = {outcome: pruned.where(outcome=outcome) for outcome in outcomes or [SOLUTIONS]}
        noise = table.where(kind="noise").rows
        section.blocks.append(_picture(config, name, rows, _held_against(pruned.rows, noise)))
        numbers = section.folds.setdefault("Every head", [])
        for outcome, heads in rows.items():
            numbers.append(_numbers(heads, f"{title(config, 'maps', name)}. {_TITLES[outcome]}"))


def _held_against(heads: pd.DataFrame, noise: pd.DataFrame) -> str:
    """Return what the changes of a map's heads are tested against, besides zero."""
    if noise.empty:
        return "than zero"
    places = ["layer", "head"]
    if len(noise[places].drop_duplicates()) == len(heads[places].drop_duplicates()):
        return "than zero and than noise as strong in the head's place"
    numbers = ", ".join(map(str, sorted({*noise["head"]})))
    return f"than zero and than noise in each layer, as strong as head {numbers}"


def _picture(config: Config, name: str, rows: dict[str, Source], held_against: str) -> Picture:
    """Return the grids of a map's outcomes; the last says what they are tested against."""
    map_title = title(config, "maps", name)
    sweep_of_head = _explored(config, config.maps[name].model)
    grids = []
    limits = []
    for outcome, heads in rows.items():
        changes = heads.rows["change"]
        limit = strongest(changes)
        largest = f"{max(changes.min(), changes.max(), key=abs):+.3g}".replace("-", "−")
        limits.append(f"±{limit:.2g}, largest {largest}")
        grid = _grid(heads, f"{map_title}, {outcome}", limit, sweep_of_head)
        box = Markup('<div class="titled"><p class="note">{}</p>{}</div>')
        grids.append(box.format(_TITLES[outcome], grid))
    caption = (
        f"Known texts, {map_title}. Darkest: beyond {'; '.join(limits)}. {_MARKS}, {held_against}."
    )
    return Picture(Markup('<div class="pair">{}</div>').format(Markup("").join(grids)), caption)


def _grid(rows: Source, name: str, limit: float, sweep_of_head: dict[str, str]) -> Markup:
    """Return the map of one outcome; heads that the explorer has lead there."""
    grid = _grid_of(rows)
    line = Markup('<div class="row"><span>{}</span><div class="cells">{}</div></div>')
    labels = Markup("").join(map(Markup("<b>{}</b>").format, grid.labels))
    lines = [line.format("", labels)]
    for layer, heads in grid.rows:
        cells = [_cell(head, limit, sweep_of_head) for head in heads]
        lines.append(line.format(f"L{layer}", Markup("").join(cells)))
    shown = int(rows.rows["shown"].notna().sum())
    alt = f"{name}: {shown} of {len(rows)} heads are shown to change it"
    # A row of cells is 15 pixels a head wide or wider: narrower ones would wrap.
    box = Markup(
        '<div class="map scored" role="group" aria-label="{}" data-width="{}" '
        'style="min-width: min(100%, {}px)">{}</div>'
    )
    return box.format(alt, grid.width, 40 + 15 * grid.width, Markup("").join(lines))


def _numbers(rows: Source, caption: str) -> ShownTable:
    """Return an outcome's changes as numbers, which the map itself shows to a pointer only."""
    grid = _grid_of(rows)
    numbers = sorted({int(number) for number in rows.rows["head"]})
    table = []
    for layer, heads in grid.rows:
        table.append([f"L{layer}", *(_number(rows, head) for head in heads)])
    titles = ["layer", *(f"head {number}" for number in numbers)]
    return ShownTable(titles, table, f"{caption}. {_MARKS}.", rows.file)


def _number(rows: Source, head: Head | None) -> Sentence:
    """Return the change without a head, with its mark; nothing for none."""
    if head is None:
        return Sentence("")
    unit = UNIT_OF_OUTCOME[head["outcome"]]
    change = rows.of(rows.rows.loc[[head["row"]]]).number("change", unit)
    return Sentence(f"{{change}} {_mark(head)}".rstrip(), change=change)


def _grid_of(rows: Source) -> HeadGrid:
    """Return an outcome's heads in their places; `row` is that of the table."""
    return placed(rows.rows.assign(row=rows.rows.index).to_dict("records"))


def _mark(head: Head) -> str:
    return {HIGHER: "▲", LOWER: "▼"}.get(head["shown"], "")


def _explored(config: Config, model: str) -> dict[str, str]:
    """Return the sweep whose explorer opens a head of a model, by the head's name."""
    return {
        str(head): sweep
        for sweep, section in reversed(config.sweeps.items())
        if section.model == model
        for head in pool(config, section)
    }


def _cell(head: Head | None, limit: float, sweep_of_head: dict[str, str]) -> Markup:
    if head is None:
        return Markup('<i class="absent"></i>')
    look = colour(head["change"] / limit * STRONGEST)
    name = str(head["variant"])
    mark = _mark(head)
    label = f"{name}: {FORMS[UNIT_OF_OUTCOME[head['outcome']]](head['change'])}"
    if mark:
        label += ", shown"
    if name in sweep_of_head:
        # A mark in the link would be its name.
        link = '<a class="{}" href="#{}/{}" tabindex="-1" title="{}" aria-label="{}">{}</a>'
        return Markup(link).format(look, sweep_of_head[name], name, label, label, mark)
    return Markup('<i class="{}" title="{}">{}</i>').format(look, label, mark)
