"""The page's part on maps of every head: grids of layers and heads, side by side."""

from typing import Any

from markupsafe import Markup

from headsweep import paths
from headsweep.analysis.facts import Source
from headsweep.config import Config
from headsweep.maps.outcomes import HEADS, LIKELIHOOD, PREFERENCE, SOLUTIONS
from headsweep.planning.batches import pool
from headsweep.planning.titles import title
from headsweep.report.blocks import Picture, Section
from headsweep.report.explorer import colour
from headsweep.statistics import SIGNIFICANCE
from headsweep.text import nats

_TITLES = {
    PREFERENCE: "Preference: right minus wrong samples, nats",
    LIKELIHOOD: "Likelihood of right samples, nats a token; any change lowers it",
    SOLUTIONS: "Likelihood of reference solutions, nats a token",
}
_STRONGEST = 0.9
"""The share of heads that change less than the darkest colour says: a few carry nearly all."""
_DARKEST = 0.15  # the gain at which `colour` gives its darkest


def mapped(config: Config, section: Section) -> None:
    """Add each map's grids."""
    for name in config.maps:
        table = Source.read(config, paths.MAP, HEADS, map=name, table="heads")
        pruned = table.where(kind="head")
        outcomes = [
            outcome for outcome in (PREFERENCE, LIKELIHOOD) if pruned.where(outcome=outcome)
        ]
        if not outcomes and pruned:
            outcomes = [SOLUTIONS]
        if outcomes:
            rows = {outcome: pruned.where(outcome=outcome) for outcome in outcomes}
            section.blocks.append(_picture(config, name, rows))


def _picture(config: Config, name: str, rows: dict[str, Source]) -> Picture:
    """Return the grids of a map's outcomes."""
    map_title = title(config, "maps", name)
    opened = _explored(config, config.maps[name].model)
    grids = []
    limits = []
    for outcome, heads in rows.items():
        limit = float(heads.rows["change"].abs().quantile(_STRONGEST)) or 1.0
        limits.append(f"±{limit:.2g}")
        grid = _grid(heads, f"{map_title}, {outcome}", limit, opened)
        box = Markup('<div class="titled"><p class="note">{}</p>{}</div>')
        grids.append(box.format(_TITLES[outcome], grid))
    caption = f"Known texts, {map_title}. Darkest: {', '.join(limits)}. ▲ ▼ shown over all heads."
    return Picture(Markup('<div class="pair">{}</div>').format(Markup("").join(grids)), caption)


def _grid(rows: Source, said: str, limit: float, opened: dict[str, str]) -> Markup:
    """Return the map of one outcome; heads that the explorer has lead there."""
    lines = []
    widest = 0
    for layer, heads in rows.rows.groupby("layer"):
        cells = [_cell(row, limit, opened) for row in heads.sort_values("head").to_dict("records")]
        widest = max(widest, len(cells))
        line = Markup('<div class="row"><span>L{}</span><div class="cells">{}</div></div>')
        lines.append(line.format(layer, Markup("").join(cells)))
    shown = int((rows.rows["adjusted"] < SIGNIFICANCE).sum())
    alt = f"{said}: {shown} of {len(rows)} heads are shown to change it"
    # A row of cells is 15 pixels a head wide or wider: narrower ones would wrap.
    box = Markup(
        '<div class="map scored" role="group" aria-label="{}" data-width="{}" '
        'style="min-width: min(100%, {}px)">{}</div>'
    )
    return box.format(alt, widest, 40 + 15 * widest, Markup("").join(lines))


def _explored(config: Config, model: str) -> dict[str, str]:
    """Return the sweep whose explorer opens a head of a model, by the head's name."""
    return {
        str(head): sweep
        for sweep, section in reversed(config.sweeps.items())
        if section.model == model
        for head in pool(config, section)
    }


def _cell(row: dict[Any, Any], limit: float, opened: dict[str, str]) -> Markup:
    mark = ""
    if row["adjusted"] < SIGNIFICANCE:
        mark = "▲" if row["change"] > 0 else "▼"
    look = colour(row["change"] / limit * _DARKEST)
    said = f"{row['variant']}: {nats(row['change'])}"
    head = str(row["variant"])
    if head in opened:
        link = Markup('<a class="{}" href="#{}/{}" tabindex="-1" title="{}" aria-label="{}">{}</a>')
        return link.format(look, opened[head], head, said, said, mark)
    return Markup('<i class="{}" title="{}">{}</i>').format(look, said, mark)
