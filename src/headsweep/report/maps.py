"""The page's part on maps of every head: two grids of layers and heads, side by side."""

from typing import Any

from markupsafe import Markup

from headsweep import paths
from headsweep.analysis.facts import LEVEL, Sentence, Source
from headsweep.config import Config
from headsweep.maps.outcomes import HEADS, LIKELIHOOD, PREFERENCE
from headsweep.planning.batches import pool
from headsweep.planning.titles import title
from headsweep.report.blocks import Picture, Section
from headsweep.report.explorer import colour
from headsweep.text import nats

_SHOWN = (PREFERENCE, LIKELIHOOD)
_SAID = {
    PREFERENCE: "Preference: right minus wrong samples, nats. Does a loss help?",
    LIKELIHOOD: "Likelihood: right samples, nats a token. How much does a head matter?",
}
_STRONGEST = 0.9
"""The share of heads that change less than the darkest colour says: a few carry nearly all."""
_DARKEST = 0.15  # the gain at which `colour` gives its darkest


def mapped(config: Config, section: Section) -> None:
    """Add a map's grids, and say what they show."""
    for name in config.maps:
        of = title(config, "maps", name)
        table = Source.read(config, paths.MAP, HEADS, map=name, table="heads")
        pruned = table.where(kind="head")
        known = [each for each in _SHOWN if len(pruned.where(outcome=each))]
        for outcome in known or pruned.rows["outcome"].unique()[:1]:
            section.blocks.append(_grid(config, name, pruned.where(outcome=outcome), outcome, of))
        if known:
            said = "{of}: known texts, scored without each head. Samples lose likelihood under any "
            said += "change, so likelihood shows what matters, preference what helps."
            section.lead.append(Sentence(said, of=of))


def _grid(config: Config, name: str, rows: Source, outcome: str, of: str) -> Picture:
    """Return the map of one outcome; heads that the explorer has lead there."""
    limit = float(rows.rows["change"].abs().quantile(_STRONGEST)) or 1.0
    opened = _explored(config, config.maps[name].model)
    lines = []
    widest = 0
    for layer, own in rows.rows.groupby("layer"):
        cells = [_cell(row, limit, opened) for row in own.sort_values("head").to_dict("records")]
        widest = max(widest, len(cells))
        line = Markup('<div class="row"><span>L{}</span><div class="cells">{}</div></div>')
        lines.append(line.format(layer, Markup("").join(cells)))
    shown = int((rows.rows["adjusted"] < LEVEL).sum())
    alt = f"{of}, {outcome}: {shown} of {len(rows)} heads are shown to change it"
    box = Markup('<div class="map scored" role="img" aria-label="{}" data-width="{}">{}</div>')
    caption = f"{_SAID.get(outcome, 'Reference solutions, nats a token.')} Darkest: ±{limit:.2g}. "
    caption += "▲ ▼ shown over all heads."
    return Picture(box.format(alt, widest, Markup("").join(lines)), caption, "half")


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
    if row["adjusted"] < LEVEL:
        mark = "▲" if row["change"] > 0 else "▼"
    look = colour(row["change"] / limit * _DARKEST)
    said = f"{row['variant']}: {nats(row['change'])}"
    head = str(row["variant"])
    if head in opened:
        link = Markup('<a class="{}" href="#{}/{}" tabindex="-1" title="{}">{}</a>')
        return link.format(look, opened[head], head, said, mark)
    return Markup('<i class="{}" title="{}">{}</i>').format(look, said, mark)
