"""The page of a comparison of anyone's answers, in the style of the report; it fetches nothing."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from headsweep import __version__
from headsweep.analysis.facts import LEAST_P, LEVEL, Sentence, Source, columns
from headsweep.report.blocks import Block, Section, marks, table
from headsweep.report.page import render
from headsweep.tables import write_text
from headsweep.text import short

_HEADING = "Which answers are better?"
_ENDS = ["low", "high", "holm"]
_DRAWN = {"sign": "difference"}
_SYSTEMS = (
    "system=system, questions=n count, answers each=samples count, right (%)=accuracy part, "
    "from=low part, to=high part, tokens an answer=tokens count"
)
_INTERVAL = "difference=difference points, interval from=low points, to=high points"
_PAIR = (
    f"{_INTERVAL}, only the second right=gained count, only the first right=lost count, p=p p, "
    "Holm=holm p, test=test, would show=shows part"
)
_SAMPLES = (
    "system=system, k=k count, Pass@k (%)=pass_at_k part, from=pass_low part, to=pass_high part, "
    "vote@k (%)=vote_at_k part, vote from=vote_low part, vote to=vote_high part"
)
_CAPTION = (
    "The second minus the first, in points, 95%. Coloured: Holm's p-value over all pairs is below "
    f"{LEVEL}."
)
_SHOWS = "Would show: the difference that these questions show with probability 0.8."
_NAME = 22  # characters of a system's name in a label


def told_of_pairs(pairs: Source) -> Sentence:
    """Say what the table ``pairs`` shows: which of two is better, or how many pairs differ."""
    if len(pairs) > 1:
        shown = pairs.query(f"holm < {LEVEL}").number("holm", "count", "count")
        said = "{shown} of {count} differences are more than chance, corrected for all of them."
        return Sentence(said, shown=shown, count=pairs.number("holm", "count", "count"))
    said = {
        "▲": "{second} is better than {first}: {difference points low high} points.",
        "▼": "{second} is worse than {first}: {difference points low high} points.",
        "–": "{second} and {first} are not shown to differ: {difference points low high} points.",
    }[pairs.direction(*_ENDS)]
    if pairs.value("shows") == pairs.value("shows"):
        said += " These questions show differences from {shows part} points on."
    return pairs.say(said)


def told_of_best(best: Source) -> Sentence:
    """Say whether the best of several is more than lucky, from the table ``best``."""
    said = (
        "{best} gains {gain points} points over {baseline}, the most of {others count}. The best "
        "of so many would gain {by_chance points} by chance alone ("
    )
    said += "p {p p})." if best.value("p") < LEAST_P else "p = {p p})."
    if best.number("held_out"):
        said += (
            " Chosen on one half of the questions, the best gains {held_out points low high} on "
            "the other."
        )
    return best.say(said)


def sections(tables: Mapping[str, pd.DataFrame]) -> list[Section]:
    """Return the sections of the tables of `headsweep.analysis.referee.compared`."""
    of = {name: Source(f"{name}.csv", rows, whole=True) for name, rows in tables.items()}
    right = Section("systems", "How many are right?")
    right.blocks = table(of["systems"], columns(_SYSTEMS), "95% intervals.")
    differ = Section("pairs", "Is a difference more than chance?")
    differ.blocks = _marks(of["pairs"], _PAIR, f"{_CAPTION} {_SHOWS}")
    found = [right, differ]
    if "best" in of:
        found.append(Section("best", "Is the best more than lucky?", [told_of_best(of["best"])]))
    if "samples" in of:
        found.append(_of_samples(of["samples"], of.get("samples_pairs")))
    if "equal_tokens" in of:
        found.append(_of_tokens(of["equal_tokens"]))
    return found


def _of_samples(samples: Source, pairs: Source | None) -> Section:
    """Return the section on Pass@k and vote@k; every k is folded."""
    section = Section("samples", "What do several answers reach?")
    told: dict[str, Any] = {"system": "system"}
    for way, name in (("pass", "Pass"), ("vote", "vote")):
        if f"{way}_at_k" in samples.rows:
            for k in filter(_is_power_of_two, sorted(samples.rows["k"].unique())):
                told[f"{name}@{k} (%)"] = partial(_reached, samples, way, k)
    drawn = "k answers of those given, drawn at random; 95% over questions."
    section.blocks = table(samples.where(k=1), told, drawn)
    section.folds["Every k"] = table(samples, columns(_SAMPLES), drawn)
    if pairs is not None:
        most = int(pairs.rows["k"].max())
        last = pairs.where(of="pass@k", k=most)
        section.blocks += _marks(last, f"{_INTERVAL}, Holm=holm p", f"Pass@{most}. {_CAPTION}")
        differences = "of=of, k=k count, second=second, first=first, "
        differences += f"{_INTERVAL}, p=p p, Holm=holm p"
        section.folds["Every difference"] = table(pairs, columns(differences), _CAPTION)
    return section


def _reached(samples: Source, way: str, k: int, system: Source) -> Sentence | str:
    """Return what k answers of a row's system reach, with the interval; nothing if it has fewer."""
    row = samples.where(system=system.first["system"], k=k)
    return row.interval(f"{way}_at_k", "part", f"{way}_low", f"{way}_high") if len(row) else ""


def _of_tokens(pairs: Source) -> Section:
    """Return the section on equal tokens; all but the most that all pairs reach is folded."""
    section = Section("tokens", "What do equal tokens reach?")
    passed = pairs.where(of="pass@k").rows
    reached = passed["answers"].value_counts()
    answers = int(reached[reached == reached.max()].index.max())
    last = pairs.where(of="pass@k", answers=answers)
    caption = (
        f"One of some answers is right, with the tokens of {answers} of the baseline's "
        f"({last.number('tokens', 'count')}). {_CAPTION}"
    )
    section.blocks = _marks(last, f"{_INTERVAL}, Holm=holm p", caption)
    told = (
        "of=of, baseline's answers=answers count, tokens=tokens count, second=second, first=first, "
        f"{_INTERVAL}, p=p p, Holm=holm p"
    )
    section.folds["Every difference"] = table(pairs, columns(told), _CAPTION)
    return section


def _is_power_of_two(k: int) -> bool:
    return int(k).bit_count() == 1


def _marks(pairs: Source, told: str, caption: str) -> list[Block]:
    """Return a mark for each pair; none is cut off, however large the difference."""

    def label(pair: Source) -> str:
        return f"{short(pair.first['second'], _NAME)} − {short(pair.first['first'], _NAME)}"

    return marks(list(pairs), label, _DRAWN, _ENDS, columns(told), caption, clip=math.inf)


def write_page(file: Path, tables: Mapping[str, pd.DataFrame], read: Sequence[str]) -> None:
    """Write the page; `read` says what was compared, a line each."""
    page = render(
        "compare.html",
        heading=_HEADING,
        version=__version__,
        lead=[told_of_pairs(Source("pairs.csv", tables["pairs"], whole=True))],
        read=read,
        sections=sections(tables),
    )
    write_text(file, page)
