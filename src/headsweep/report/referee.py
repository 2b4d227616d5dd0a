"""The page of a comparison of anyone's answers, in the style of the report; it fetches nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from headsweep.analysis.facts import LEVEL, Cell, Sentence, Source
from headsweep.report.blocks import Section, marks, table
from headsweep.report.page import environment, style
from headsweep.report.page_tables import Marks
from headsweep.tables import write_text

_HEADING = "Which answers are better?"
_MARKS = Marks(
    label="{second} − {first}",
    drawn={"sign": "difference"},
    low="low",
    high="high",
    corrected="holm",
)
_SYSTEMS = {
    "system": Cell("system"),
    "questions": Cell("n", "count"),
    "answers each": Cell("samples", "count"),
    "right (%)": Cell("accuracy", "part"),
    "from": Cell("low", "part"),
    "to": Cell("high", "part"),
}
_PAIR = {
    "difference": Cell("difference", "points"),
    "interval from": Cell("low", "points"),
    "to": Cell("high", "points"),
    "only the second right": Cell("gained", "count"),
    "only the first right": Cell("lost", "count"),
    "p": Cell("p", "p"),
    "Holm": Cell("holm", "p"),
    "test": Cell("test"),
    "would show": Cell("shows", "part"),
}
_SAMPLES = {
    "system": Cell("system"),
    "k": Cell("k", "count"),
    "Pass@k (%)": Cell("pass_at_k", "part"),
    "from": Cell("pass_low", "part"),
    "to": Cell("pass_high", "part"),
    "vote@k (%)": Cell("vote_at_k", "part"),
    "vote from": Cell("vote_low", "part"),
    "vote to": Cell("vote_high", "part"),
}
_SAMPLES_PAIR = {
    "of": Cell("of"),
    "k": Cell("k", "count"),
    "second": Cell("second"),
    "first": Cell("first"),
    "difference": Cell("difference", "points"),
    "from": Cell("low", "points"),
    "to": Cell("high", "points"),
    "p": Cell("p", "p"),
    "Holm": Cell("holm", "p"),
}
_CAPTION = (
    "The second minus the first, in points, 95%. Coloured: Holm's p-value over all pairs is below "
    f"{LEVEL}. Would show: the difference that these questions show with probability 0.8."
)


def told_of_best(best: Source) -> Sentence:
    """Say whether the best of several is more than lucky, from the table ``best``."""
    said = (
        "{best} gains {gain} points over {baseline}, the most of {others}. The best of so many "
        "would gain {by_chance} by chance alone (p = {p})."
    )
    if best.number("held_out"):
        said += " Chosen on one half of the questions, the best gains {held_out} on the other."
    return best.say(
        said,
        gain=Cell("gain", "points"),
        others=Cell("others", "count"),
        by_chance=Cell("by_chance", "points"),
        p=Cell("p", "p"),
        held_out=Cell("held_out", "points", "low", "high"),
    )


def sections(tables: Mapping[str, pd.DataFrame]) -> list[Section]:
    """Return the sections of the tables of `headsweep.analysis.referee.compared`."""
    of = {name: Source(f"{name}.csv", rows) for name, rows in tables.items()}
    first = Section("systems", "How many are right?", ["95% intervals."])
    first.blocks = table(
        of["systems"],
        _SYSTEMS,
    )
    second = Section("pairs", "Is a difference more than chance?")
    second.blocks = marks(list(of["pairs"]), _MARKS, _PAIR, _CAPTION)
    found = [first, second]
    if "best" in of:
        third = Section("best", "Is the best more than lucky?")
        third.lead = [told_of_best(of["best"])]
        found.append(third)
    if "samples" in of:
        fourth = Section("samples", "What do several answers reach?")
        fourth.blocks = table(
            of["samples"],
            _SAMPLES,
            "k answers of those given, drawn at random; 95% over questions.",
        )
        found.append(fourth)
    if "samples_pairs" in of:
        fourth.blocks += table(
            of["samples_pairs"],
            _SAMPLES_PAIR,
            "The second minus the first, in points, 95%; Holm over the pairs of each k.",
        )
    return found


def write_page(file: Path, tables: Mapping[str, pd.DataFrame], read: Sequence[str]) -> None:
    """Write the page; `read` says what was compared, a line each."""
    page = environment().get_template("compare.html")
    text = page.render(heading=_HEADING, style=style(), read=read, sections=sections(tables))
    write_text(file, text)
