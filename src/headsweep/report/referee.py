"""The page of a comparison of anyone's answers, in the style of the report; it fetches nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from headsweep.analysis.facts import LEVEL, Sentence, Source, columns
from headsweep.report.blocks import Section, marks, table
from headsweep.report.page import render
from headsweep.tables import write_text

_HEADING = "Which answers are better?"
_ENDS = ["low", "high", "holm"]
_PAIR = (
    "difference=difference points, interval from=low points, to=high points, only the second "
    "right=gained count, only the first right=lost count, p=p p, Holm=holm p, test=test, "
    "would show=shows part"
)
_CAPTION = (
    "The second minus the first, in points, 95%. Coloured: Holm's p-value over all pairs is below "
    f"{LEVEL}. Would show: the difference that these questions show with probability 0.8."
)


def told_of_best(best: Source) -> Sentence:
    """Say whether the best of several is more than lucky, from the table ``best``."""
    said = (
        "{best} gains {gain points} points over {baseline}, the most of {others count}. The best "
        "of so many would gain {by_chance points} by chance alone (p = {p p})."
    )
    if best.number("held_out"):
        said += (
            " Chosen on one half of the questions, the best gains {held_out points low high} on "
            "the other."
        )
    return best.say(said)


def sections(tables: Mapping[str, pd.DataFrame]) -> list[Section]:
    """Return the sections of the tables of `headsweep.analysis.referee.compared`."""
    of = {name: Source(f"{name}.csv", rows) for name, rows in tables.items()}
    first = Section("systems", "How many are right?", ["95% intervals."])
    first.blocks = table(
        of["systems"],
        columns(
            "system=system, questions=n count, answers each=samples count, "
            "right (%)=accuracy part, from=low part, to=high part, tokens an answer=tokens count"
        ),
    )
    second = Section("pairs", "Is a difference more than chance?")
    label = "{second} − {first}"
    drawn = {"sign": "difference"}
    second.blocks = marks(list(of["pairs"]), label, drawn, _ENDS, columns(_PAIR), _CAPTION)
    found = [first, second]
    if "best" in of:
        third = Section("best", "Is the best more than lucky?")
        third.lead = [told_of_best(of["best"])]
        found.append(third)
    if "samples" in of:
        fourth = Section("samples", "What do several answers reach?")
        fourth.blocks = table(
            of["samples"],
            columns(
                "system=system, k=k count, Pass@k (%)=pass_at_k part, from=pass_low part, "
                "to=pass_high part, vote@k (%)=vote_at_k part, vote from=vote_low part, "
                "vote to=vote_high part"
            ),
            "k answers of those given, drawn at random; 95% over questions.",
        )
        found.append(fourth)
    if "samples_pairs" in of:
        fourth.blocks += table(
            of["samples_pairs"],
            columns(
                "of=of, k=k count, second=second, first=first, difference=difference points, "
                "from=low points, to=high points, p=p p, Holm=holm p"
            ),
            "The second minus the first, in points, 95%; Holm over the pairs of each k.",
        )
    if "equal_tokens" in of:
        fifth = Section("tokens", "What do as many tokens reach?")
        fifth.blocks = table(
            of["equal_tokens"],
            columns(
                "of=of, baseline's answers=answers count, tokens=tokens count, second=second, "
                "first=first, difference=difference points, from=low points, to=high points, "
                "p=p p, Holm=holm p"
            ),
            "The second minus the first, in points, 95%, where both take the tokens of so many of "
            "the baseline's answers; Holm over the pairs of each number.",
        )
        found.append(fifth)
    return found


def write_page(file: Path, tables: Mapping[str, pd.DataFrame], read: Sequence[str]) -> None:
    """Write the page; `read` says what was compared, a line each."""
    write_text(
        file, render("compare.html", heading=_HEADING, read=read, sections=sections(tables))
    )
