"""The verdicts on maps of every head."""

from collections.abc import Iterator

import numpy as np

from headsweep.config import Config
from headsweep.config.titles import title
from headsweep.experiments.maps import outcomes
from headsweep.files import paths
from headsweep.results.facts import Cell, Sentence, Source, widened
from headsweep.results.report_verdict import ReportVerdict
from headsweep.statistics import SIGNIFICANCE
from headsweep.text import plural


def map_verdicts(config: Config) -> Iterator[ReportVerdict]:
    """Does a map show a head whose loss makes right answers more likely than wrong ones?

    A map of reference solutions alone has no wrong answers: does one make the solutions likelier?
    """
    for name in config.maps:
        table = Source.read(config, paths.MAP, outcomes.HEADS, map=name, table="heads")
        pruned = table.where(kind="head")
        preference = pruned.where(outcome=outcomes.PREFERENCE)
        changes = preference or pruned.where(outcome=outcomes.SOLUTIONS)
        if not changes:
            continue
        layers = Source.read(config, paths.MAP, outcomes.LAYERS, map=name, table="layers")
        layers = layers.where(outcome=changes.first["outcome"])
        helps = changes.where(shown=outcomes.HIGHER)
        best = _largest(helps or changes)
        unit = outcomes.UNIT_OF_OUTCOME[changes.first["outcome"]]
        noise = layers.where(layer=best.value("layer")).number("noise", unit)
        likelihood = pruned.where(outcome=outcomes.LIKELIHOOD)
        matter = likelihood.where(shown=outcomes.LOWER)
        is_best = best.value("change") == _largest(changes).value("change")
        of_which = "Best of {heads}" if is_best else "Best shown, of {heads}"
        asked = plural("question", best.value("n"))
        said = f"{of_which}: {{change}} {unit}, {{questions}} {asked}"
        if not helps and changes.query(f"adjusted < {SIGNIFICANCE} and change > 0"):
            said += "; noise in its layer: {noise}"
        if likelihood:
            said += "; {matter} matter"
            placebos = table.where(kind="noise", outcome=outcomes.LIKELIHOOD)
            if placebos:
                said += f" beyond {_whose_noise(likelihood, placebos)}"
        said += "."
        if len(config.maps) > 1:
            said = "{subject}. " + said
        sentence = best.say(
            said,
            subject=title(config, "maps", name),
            heads=changes.number("variant", "count", "count"),
            change=Cell("change", unit, "band_low", "band_high"),
            questions=Cell("n", "count"),
            noise=noise,
            matter=matter.number("variant", "count", "count"),
        )
        mark = "–"
        so = _foretells(config, name)
        favoured = "right answers" if preference else "reference solutions"
        answer = f"No head's loss is shown to favour {favoured}"
        if helps:
            mark = "▲"
            many = "1 head's" if len(helps) == 1 else f"{len(helps)} heads'"
            does = "favours right answers" if preference else "makes reference solutions likelier"
            answer = f"{many} loss {does}"
        yield ReportVerdict("heads", mark, answer, sentence, so)


def _largest(changes: Source) -> Source:
    """Return the row of the largest change."""
    return changes.of(changes.rows.loc[[changes.rows["change"].idxmax()]])


def _whose_noise(heads: Source, placebos: Source) -> str:
    """Say how strong the noise is that a map's heads are held against."""
    if len(placebos) == len(heads):
        return "noise as strong as each"
    in_layer = placebos.rows.groupby("layer").size().max()
    return "one head's noise" if in_layer == 1 else f"{in_layer} heads' noise"


def _foretells(config: Config, name: str) -> Sentence:
    """Say whether a map's outcomes rank measured gains, on the first questions that tell."""
    table = Source.read(config, paths.MAP, map=name, table="foretold").where(estimate="scored")
    parts = []
    sampled = table.where(outcome=outcomes.LIKELIHOOD)
    looked_at = [outcomes.PREFERENCE, outcomes.LIKELIHOOD] if sampled else [outcomes.SOLUTIONS]
    for outcome in looked_at:
        row = table.where(outcome=outcome).query("low.notna()")
        if row and _ranks(row, len(looked_at)):
            correlation = Cell("correlation", "ratio")
            parts.append(row.say("{outcome} {correlation}", correlation=correlation))
    if parts:
        joined = Sentence("{first}, {second}", first=parts[0], second=parts[-1])
        return Sentence(
            "The map ranks gains (ρ): {ranks}.", ranks=joined if len(parts) > 1 else parts[0]
        )
    ranked = table.query("low.notna()")
    return Sentence("That it ranks gains is not shown." if ranked else "")


def _ranks(row: Source, entries: int) -> bool:
    """Return whether a rank correlation is above zero by an interval that holds for all entries.

    Fisher's interval is symmetric around the inverse hyperbolic tangent of the correlation.
    """
    low, high = np.arctanh(np.clip([row.value("low"), row.value("high")], -1 + 1e-12, 1 - 1e-12))
    joint_low, _ = widened(low, high, entries)
    return bool(joint_low > 0)
