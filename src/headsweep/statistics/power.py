"""What a planned run could show: the gain that a test finds with probability `POWER`.

After a run its intervals say what remains possible: power belongs before it. The test is the exact
McNemar test, two-sided at `headsweep.statistics.LEVEL`, corrected over so many comparisons by
Bonferroni. That is what Holm's correction asks of a gain that is alone; beside other effects it
asks for less, and finds it more often than stated.

Removing a head changes outcomes even where it gains nothing: a share `changed` of them, half of
them for the better. A gain g comes on top: it turns changed / 2 + g of the outcomes right and
changed / 2 wrong. The number of changed outcomes is binomial, and so is, given it, the number that
are lost; the power is the exact sum over both (Duffy 1984, Asymptotic and exact power for the
McNemar test and its analogue with R controls per case).
"""

import math

import numpy as np
from jaxtyping import Float, Int
from scipy.special import bdtr, bdtrik

from headsweep.statistics import TAILS

POWER = 0.8
"""Probability with which a stated gain is shown."""
GAIN = 0.02
"""Gain for which a number of questions is stated."""
MOST_QUESTIONS = 2**24
"""The largest number of questions that is looked at."""

_PRECISION = 1e-4  # of a gain, a hundredth of a point


def power(questions: int, changed: float, tests: int, gain: float) -> float:
    """Return the probability that the corrected test shows a gain.

    Args:
        questions: number of questions.
        changed: share of the outcomes that change without a gain, as a fraction.
        tests: number of comparisons that the test is corrected over.
        gain: the true gain, a fraction of the questions from 0 to 1 − `changed`.
    """
    share = changed + gain
    if not share:
        return 0.0
    count = np.arange(questions + 1)
    chance = np.diff(bdtr(count, questions, share), prepend=0.0)
    likely = chance > 1e-12  # the rest adds nothing
    most = _most_lost(count[likely], TAILS[0] / tests)
    shown = bdtr(most, count[likely], changed / 2 / share)
    return float(chance[likely] @ np.where(most >= 0, shown, 0.0))


def smallest_gain(questions: int, changed: float, tests: int) -> float:
    """Return the smallest gain with power `POWER`; NaN if these questions can show none.

    Arguments are those of `power`.
    """
    low = 0.0
    high = 1 - changed
    if power(questions, changed, tests, high) < POWER:
        return math.nan
    while high - low > _PRECISION:
        middle = (low + high) / 2
        if power(questions, changed, tests, middle) < POWER:
            low = middle
        else:
            high = middle
    return high


def questions_for(gain: float, changed: float, tests: int) -> float:
    """Return how many questions show a gain with power `POWER`, to two digits, rounded up.

    NaN if it takes more than `MOST_QUESTIONS`. The other arguments are those of `power`.
    """
    low, high = 0, 1
    while power(high, changed, tests, gain) < POWER:
        if high >= MOST_QUESTIONS:
            return math.nan
        low = high
        high = 2 * high
    while high - low > 1 + high // 1000:
        middle = (low + high) // 2
        if power(middle, changed, tests, gain) < POWER:
            low = middle
        else:
            high = middle
    step = 10 ** max(0, len(str(high)) - 2)
    return math.ceil(high / step) * step


def _most_lost(changed: Int[np.ndarray, " counts"], tail: float) -> Float[np.ndarray, " counts"]:
    """Return how many of the changed outcomes may be lost for a gain to be shown; -1 for none.

    It is the largest number with a probability of at most `tail` for so few, at even odds.
    """
    most_lost = np.full(len(changed), -1.0)
    possible = 0.5**changed <= tail
    rough = np.floor(bdtrik(tail, changed[possible], 0.5))
    # The inverse is numeric: one step up or down may be right.
    for step in (-1, 0, 1):
        tried = rough + step
        fits = (tried >= 0) & (bdtr(np.maximum(tried, 0), changed[possible], 0.5) <= tail)
        most_lost[possible] = np.where(fits, tried, most_lost[possible])
    return most_lost
