"""The section on families of variants: are heads special?"""

from collections.abc import Iterator
from itertools import cycle

from headroom import paths
from headroom.analysis.facts import Sentence, Source
from headroom.analysis.verdicts import title
from headroom.config import Config
from headroom.report.blocks import Block, Picture, Section
from headroom.report.svg import Chart, Scale

_PLACEBO = "noise"
"""The family drawn in grey: it changes as much as a head does, at random."""

_COLOURS = ("s0", "s1", "s3", "s4", "s5")
"""Classes of the other families' curves."""

_OUTCOMES = {
    "pass": "Solved by any of N answers (%)",
    "majority": "Right by the vote of N answers (%)",
}


def families(config: Config, section: Section) -> None:
    """Draw Pass@N and votes of each family against tokens, and say what was compared."""
    for name, frontier in config.frontiers.items():
        table = Source.read(config, paths.FRONTIER, frontier=name, table="families")
        said = "{of}: {members} members each, in an order that training questions chose."
        of = title(config, "frontiers", name)
        section.lead.append(Sentence(said, of=of, members=str(frontier.members)))
        section.blocks += _charts(config, name, table)


def _charts(config: Config, name: str, table: Source) -> Iterator[Block]:
    curves = Source.read(config, paths.FRONTIER, frontier=name, table="curves")
    titles = dict(zip(table.rows["family"], table.rows["title"], strict=True))
    ordered = curves.rows.query("order == 'ordered'")
    x = Scale(ordered["answers"].min(), ordered["answers"].max(), log=True)
    for outcome, what in _OUTCOMES.items():
        y = Scale(100 * ordered[outcome].min() - 1, 100 * ordered[outcome].max() + 1)
        last = ordered.groupby("family", sort=False)[outcome].last()
        told = ", ".join(f"{titles[family]} {100 * value:.1f}%" for family, value in last.items())
        chart = Chart(x, y, 190, f"{what}: with most answers {told}.", ("{:g}×", "{:.0f}"))
        kinds = cycle(_COLOURS)
        for family, own in ordered.groupby("family", sort=False):
            kind = "grey" if family == _PLACEBO else next(kinds)
            points = own.assign(at=100 * own[outcome])[["answers", "at"]].to_numpy().tolist()
            chart.curve(points, titles[family], kind)
        caption = f"{what}, by tokens: 1 is one answer of the base model."
        yield Picture(chart.svg(), caption, "half")
