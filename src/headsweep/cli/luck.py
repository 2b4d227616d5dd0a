"""`headsweep luck`: is the best of many tries more than lucky?"""

import math
from typing import NamedTuple

from headsweep.errors import ConfigError
from headsweep.results.facts import FORMS, p_template
from headsweep.statistics.luck import best_by_luck, changed_by_chance
from headsweep.statistics.power import (
    GAIN,
    MOST_QUESTIONS,
    POWER,
    questions_for,
    smallest_gain,
)
from headsweep.text import percent, percentage, plural, points
from headsweep.workflow.detectable_gain import Rates, leaves_room

_MOST = 1_000_000  # questions; the distribution has an entry for each
_MOST_TRIES = 10**10  # of more, chances next to 1 are rounded too much
_MOST_CHANGED = 0.5
"""Coins change half of what they decide."""


class Lucky(NamedTuple):
    """What the best of many tries gains by luck alone; gains are fractions of the questions."""

    changed: float
    """Share of the outcomes that one try changes."""
    expected: float
    """The mean of the best gain."""
    most: float
    """What the best gain is at most in 95 of 100 draws."""
    shows: float
    """The smallest gain that these questions show with `POWER`, corrected over all tries; NaN if
    they can show none, or the base leaves no room for it."""
    gain: float | None
    """What the best one seen gains; None if it is unknown, and so are the next two."""
    p: float | None
    """The chance of a best gain at least as large."""
    settles: float | None
    """How many fresh questions would show this gain with `POWER`, asked of the best one alone; None
    also if it gains nothing, NaN if more than `MOST_QUESTIONS`."""


def lucky(
    k: int, n: int, base: float, changed: float | None = None, best: float | None = None
) -> Lucky:
    """Return the luck of the best of k tries on n questions.

    Args:
        k: number of tries.
        n: number of questions.
        base: share of them that the base has right.
        changed: share of the outcomes that one try changes; None: `changed_by_chance`.
        best: share that the best try has right, if it is known.

    Raises:
        ConfigError: a share is none, or more changes than base and coins allow.
    """
    if n > _MOST:
        raise ConfigError(f"--n {n:,} is more than {_MOST:,}; give at most so many questions")
    if k > _MOST_TRIES:
        raise ConfigError(f"--k has {len(str(k))} digits; give at most {_MOST_TRIES:,} tries")
    for name, share in (("base", base), ("best", best)):
        if share is not None and not 0 <= share <= 1:
            raise ConfigError(f"--{name} {share:g} is no share; give one from 0 to 1, as in 0.68")
    if best is not None and changed is not None and abs(best - base) > changed + 1e-12:
        raise ConfigError(
            f"--best {best:g} is further from --base {base:g} than the {changed:g} of the outcomes "
            "that change (--changed); correct one of them"
        )
    limit = min(_MOST_CHANGED, 2 * min(base, 1 - base))
    changed = changed_by_chance(base) if changed is None else changed
    if not 0 <= changed <= limit + 1e-12:
        raise ConfigError(
            f"--changed {changed:g} is not from 0 to {limit:g}, which is all that luck changes "
            f"where the base has {base:g} right; give a share in that range"
        )
    luck = best_by_luck(n, 2 * changed * n, k)
    shows = smallest_gain(n, changed, k)
    if not leaves_room(shows, Rates(base, changed)):
        shows = math.nan
    if best is None:
        return Lucky(changed, luck.expected, luck.most, shows, None, None, None)
    gain = best - base
    settles = questions_for(gain, changed, 1) if gain > 0 else None
    return Lucky(changed, luck.expected, luck.most, shows, gain, luck.p(gain), settles)


def told(k: int, n: int, base: float, changed: float | None, best: float | None) -> str:
    """Return what the command prints; the arguments are those of `lucky`.

    Raises:
        ConfigError: as `lucky`.
    """
    luck = lucky(k, n, base, changed, best)
    tries = "1 try" if k == 1 else f"{k:,} tries"
    lines = [
        f"{tries}, {n:,} {plural('question', n)}, {percent(base)} right without; each changes "
        f"{percent(luck.changed)} of the outcomes.",
        f"By luck alone the best gains {points(luck.expected)} points on average, and at most "
        f"{points(luck.most)} in 95 of 100 draws.",
    ]
    if luck.gain is None or luck.p is None:
        lines.append(_seen(luck, k, base))
    else:
        p = p_template(luck.p).format(p=FORMS["p"](luck.p))
        lines.append(
            f"The best one seen gains {points(luck.gain)}: luck alone gives so much or more with "
            f"{p}."
        )
        if luck.settles is not None:
            lines.append(
                f"{_counted(luck.settles)} fresh questions, asked of it and the base alone, would "
                f"show such a gain with probability {POWER:g}, if it is real: the best of many "
                "usually gains less on fresh questions."
            )
    return "\n".join(lines)


def _counted(questions: float) -> str:
    """Return a number of `questions_for` in words."""
    return f"More than {MOST_QUESTIONS:,}" if math.isnan(questions) else f"{questions:,}"


def _seen(luck: Lucky, k: int, base: float) -> str:
    """Return what these questions could show, and how many a small gain takes, if it can be."""
    needed = ""
    if leaves_room(GAIN, Rates(base, luck.changed)):
        needed = f"; {questions_for(GAIN, luck.changed, k):,} questions show {100 * GAIN:g}"
    if math.isnan(luck.shows):
        return f"These questions can show no gain, corrected over all tries{needed}."
    return (
        f"Corrected over all tries, these questions show a gain from {percentage(luck.shows)} "
        f"points on with probability {POWER:g}{needed}."
    )
