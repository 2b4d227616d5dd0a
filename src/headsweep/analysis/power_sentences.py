"""Sentences about what a run, or a planned one, could show (`headsweep.statistics.power`).

A verdict that shows nothing carries such a sentence, so that a reader can tell the absence of an
effect from a test that is too weak. *Likely* is a probability of 0.8.
"""

import math

from scipy.special import ndtri, stdtrit

from headsweep.analysis.facts import FORMS, Cell, Sentence, Source
from headsweep.statistics import TAILS
from headsweep.statistics.power import (
    GAIN,
    MOST_QUESTIONS,
    POWER,
    questions_for,
    smallest_difference,
)

_ENDS = ("low", "high")


def seen(heads: Source) -> Sentence:
    """Say from what gain on the test of a sweep's median head would have shown it.

    Heads are rows of pruned ones, with the columns ``n`` and ``shows``
    (`headsweep.analysis.gains.HEADS`).
    """
    smallest = heads.number("shows", "part", "median")
    if not smallest:
        few = "question is" if heads.value("n") == 1 else "questions are"
        told = f"{{questions}} {few} too few to show any gain."
        return heads.say(told, questions=Cell("n", "count"))
    return Sentence("Gains of {least} points would likely show.", least=smallest)


def needed(heads: Source, sweep_title: str) -> Sentence:
    """Say how many questions would show a small gain of a sweep's median head.

    Heads are rows of pruned ones, as of `seen`; the title is that of their sweep.
    """
    rows = heads.rows
    changed = float(((rows["gained"] + rows["lost"]) / rows["n"]).median())
    questions = questions_for(GAIN, changed, len(rows))
    told = "{subject}. It takes {count} questions to show a gain of {gain} points, "
    told += "with probability {power}."
    return Sentence(
        told,
        subject=sweep_title,
        gain=f"{100 * GAIN:g}",
        power=f"{POWER:g}",
        count=f"more than {MOST_QUESTIONS:,}" if math.isnan(questions) else f"{questions:,}",
    )


def unless_shown(
    mark: str, row: Source, so: Sentence, *, tests: int = 1, ends: tuple[str, str] = _ENDS
) -> Sentence:
    """Add to a sentence from what difference on a comparison would have shown it.

    Args:
        mark: of the verdict; nothing is added to one that shows something.
        row: a comparison.
        so: what the verdict says last.
        tests: how many comparisons the verdict is corrected over.
        ends: columns of its 95% interval.
    """
    if mark != "–" or math.isnan(row.value(ends[0])):
        return so
    before = "{so} " if str(so) else ""
    return Sentence(
        before + "Differences of {least} points would likely show.",
        so=so,
        least=difference_seen(row, tests=tests, ends=ends),
    )


def change_seen(head: Source) -> float:
    """Return the smallest change that a map's test, over all of its heads, likely shows of a head.

    `head` is its row, with its own interval and the band of all heads
    (`headsweep.maps.outcomes.HEADS`).
    """
    error = (head.value("high") - head.value("low")) / 2 / stdtrit(head.value("n") - 1, TAILS[1])
    return head.value("change") - head.value("band_low") + float(ndtri(POWER)) * error


def difference_seen(rows: Source, *, tests: int = 1, ends: tuple[str, str] = _ENDS) -> str:
    """Return, in points, the smallest difference that each of some comparisons would have shown.

    It is ``more than 100`` if one of them could have shown none. Errors are Student's with a
    table's ``freedom``; without that column they are normal.
    """
    seen_differences = []
    for row in rows:
        low, high = (row.value(end) for end in ends)
        freedom = row.value("freedom") if "freedom" in row.rows else math.inf
        seen_differences.append(smallest_difference(low, high, tests, freedom))
    if any(map(math.isnan, seen_differences)):
        return "more than 100"
    return FORMS["part"](max(seen_differences))
