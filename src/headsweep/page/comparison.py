"""The page of a comparison of anyone's answers, in the style of the report; it fetches nothing."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from headsweep import __version__
from headsweep.files.safe_files import write_text
from headsweep.page.blocks import Block, Section, marks, table
from headsweep.page.declarations import DIFFERENCE, difference_marks
from headsweep.page.report import render
from headsweep.results.facts import Cell, Sentence, Source, p_template
from headsweep.results.marks import Mark
from headsweep.statistics import SIGNIFICANCE
from headsweep.text import short

_HEADING = "Which answers are better?"
_MARKS = difference_marks("{second} − {first}", corrected="holm")
_SYSTEMS = {
    "system": Cell("system"),
    "questions": Cell("n", "count"),
    "answers each": Cell("samples", "count"),
    "right (%)": Cell("accuracy", "part", low="low", high="high"),
    "tokens an answer": Cell("tokens", "count"),
}
_INTERVAL = {"difference": DIFFERENCE}
_HOLM = {"Holm": Cell("holm", "p")}
_PAIR = {
    **_INTERVAL,
    "only the second right": Cell("gained", "count"),
    "only the first right": Cell("lost", "count"),
    "p": Cell("p", "p"),
    **_HOLM,
    "test": Cell("test"),
}
_NAMES = {"second": Cell("second"), "first": Cell("first")}
_DIFFERENCE = {**_NAMES, **_INTERVAL, "p": Cell("p", "p"), **_HOLM}
_SAMPLES = {
    "system": Cell("system"),
    "k": Cell("k", "count"),
    "Pass@k (%)": Cell("pass_at_k", "part", low="pass_low", high="pass_high"),
    "vote@k (%)": Cell("vote_at_k", "part", low="vote_low", high="vote_high"),
}
_CAPTION = (
    "The second minus the first, in points, 95%. Coloured: Holm's p-value over all pairs is below "
    f"{SIGNIFICANCE}, and the interval leaves out zero."
)
_NAME = 22  # characters of a system's name in a label


def told_of_pairs(pairs: Source) -> Sentence:
    """Say what the table ``pairs`` shows: which of two is better, or how many pairs differ.

    A difference is shown where both say so, the test and the interval.
    """
    if len(pairs) > 1:
        differing = pairs.query(f"holm < {SIGNIFICANCE} and (low > 0 or high < 0)")
        shown = differing.number("holm", "count", "count")
        said = "{shown} of {count} differences are more than chance, corrected for all of them."
        return Sentence(said, shown=shown, count=pairs.number("holm", "count", "count"))
    mark = pairs.direction(_MARKS.low, _MARKS.high, _MARKS.corrected)
    said = {
        Mark.BETTER: "{second} is better than {first}: {difference} points.",
        Mark.WORSE: "{second} is worse than {first}: {difference} points.",
        Mark.NOT_SHOWN: "{second} and {first} are not shown to differ: {difference} points.",
    }[mark]
    if mark is not pairs.direction(_MARKS.low, _MARKS.high):  # the test alone does not show it
        said = f"{said.removesuffix('.')}, {p_template(pairs.value('holm'))}."
    return pairs.say(
        said,
        difference=DIFFERENCE,
        p=Cell("holm", "p"),
    )


def told_of_best(best: Source) -> Sentence:
    """Say whether the best of several is more than lucky, from the table ``best``."""
    said = "{best} gains {gain} points over {baseline}, the most of {others}. "
    none_gains = p_template(best.value("p"))
    if best.number("by_chance"):
        said += "The best of so many would gain {by_chance} points by chance alone (that none of "
        said += f"them gains: {none_gains})."
    else:  # all of them clearly lose
        said += f"That none of them gains: {none_gains}."
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
    """Return the sections of the tables of `headsweep.results.systems.compared`."""
    sources = {name: Source(f"{name}.csv", rows, whole=True) for name, rows in tables.items()}
    right = Section("systems", "How many are right?")
    right.blocks = table(sources["systems"], _SYSTEMS, "95% intervals.")
    differ = Section("pairs", "Is a difference more than chance?")
    differ.blocks = _of_pairs(sources["pairs"])
    shown = [right, differ]
    if "best" in sources:
        lead = [told_of_best(sources["best"])]
        shown.append(Section("best", "Is the best more than lucky?", lead))
    if "samples" in sources:
        shown.append(_of_samples(sources["samples"], sources.get("samples_pairs")))
    if "equal_tokens" in sources:
        shown.append(_of_tokens(sources["equal_tokens"]))
    return shown


def _of_pairs(pairs: Source) -> list[Block]:
    """Return every difference; a test that all have is named in the caption."""
    columns = dict(_PAIR)
    caption = _CAPTION
    tests = pairs.rows["test"].unique()
    if len(tests) == 1:
        del columns["test"]
        caption = f"{caption} Test: {tests[0]}."
    return _marks(pairs, columns, caption)


def _of_samples(samples: Source, pairs: Source | None) -> Section:
    """Return the section on Pass@k and vote@k; every k is folded."""
    section = Section("samples", "What do several answers reach?")
    columns: dict[str, Any] = {"system": Cell("system")}
    for way, name in (("pass", "Pass"), ("vote", "vote")):
        if f"{way}_at_k" in samples.rows:
            for k in filter(_is_power_of_two, sorted(samples.rows["k"].unique())):
                columns[f"{name}@{k} (%)"] = partial(_reached, samples, way, k)
    caption = "k answers of those given, drawn at random; 95% over questions."
    section.blocks = table(samples.where(k=1), columns, caption)
    section.folds["Every k"] = table(samples, _SAMPLES, caption)
    if pairs is not None:
        most = int(pairs.rows["k"].max())
        last = pairs.where(of="pass@k", k=most)
        section.blocks += _marks(last, {**_INTERVAL, **_HOLM}, f"Pass@{most}. {_CAPTION}")
        differences = {"of": Cell("of"), "k": Cell("k", "count"), **_DIFFERENCE}
        section.folds["Every difference"] = table(pairs, differences, _CAPTION)
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
    section.blocks = _marks(last, {**_INTERVAL, **_HOLM}, caption)
    differences = {
        "of": Cell("of"),
        "baseline's answers": Cell("answers", "count"),
        "tokens": Cell("tokens", "count"),
        **_DIFFERENCE,
    }
    section.folds["Every difference"] = table(pairs, differences, _CAPTION)
    return section


def _is_power_of_two(k: int) -> bool:
    return int(k).bit_count() == 1


def _marks(pairs: Source, columns: Mapping[str, Cell], caption: str) -> list[Block]:
    """Return a mark for each pair; none is cut off, however large the difference."""

    def label(pair: Source) -> str:
        return f"{short(pair.first['second'], _NAME)} − {short(pair.first['first'], _NAME)}"

    return marks(list(pairs), _MARKS, columns, caption, label=label, clip=math.inf, limit=None)


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
