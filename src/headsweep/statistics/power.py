"""What could have been seen: the gain that a test finds with probability `POWER`.

The test is the exact McNemar test, two-sided at `headsweep.statistics.LEVEL`, corrected over so
many comparisons by Bonferroni. That is what Holm's correction asks of a gain that is alone; beside
other effects it asks for less, and finds it more often than stated.

Each question's outcome changes with probability `changed`: a gain g turns (changed + g) / 2 of them
right and (changed − g) / 2 wrong. A gain beyond `changed` changes as many as it turns right. The
number of changed outcomes is binomial, and so is, given it, the number that are lost; the power is
the exact sum over both (Duffy 1984, Asymptotic and exact power for the McNemar test and its
analogue with R controls per case).
"""

import math

import numpy as np
from jaxtyping import Float, Int
from scipy.special import bdtr, bdtrik, nctdtrinc, ndtri, stdtrit

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
        changed: share of the questions whose outcome changes, as a fraction.
        tests: number of comparisons that the test is corrected over.
        gain: the true gain, a fraction of the questions, not negative.
    """
    share = max(changed, gain)
    if not share:
        return 0.0
    count = np.arange(questions + 1)
    chance = np.diff(bdtr(count, questions, share), prepend=0.0)
    likely = chance > 1e-12  # the rest adds nothing
    most = _most_lost(count[likely], TAILS[0] / tests)
    shown = bdtr(most, count[likely], (share - gain) / share / 2)
    return float(chance[likely] @ np.where(most >= 0, shown, 0.0))


def smallest_gain(questions: int, changed: float, tests: int) -> float:
    """Return the smallest gain with power `POWER`; NaN if these questions can show none.

    Arguments are those of `power`.
    """
    low, high = 0.0, 1.0
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


def smallest_difference(
    low: float, high: float, tests: int = 1, freedom: float = math.inf
) -> float:
    """Return the smallest difference that a test with this 95% interval shows with `POWER`.

    The half width is Student's quantile of `LEVEL` times the standard error. The difference must be
    so many standard errors that Student's noncentral t exceeds the quantile of the corrected level
    with this probability. NaN if that is above 1.

    Args:
        low: lower end of the interval.
        high: upper end.
        tests: number of comparisons that the test is corrected over.
        freedom: degrees of freedom of Student's t; infinite for the normal distribution.
    """
    error = (high - low) / 2 / stdtrit(freedom, TAILS[1])
    critical = stdtrit(freedom, 1 - TAILS[0] / tests)
    errors = critical + ndtri(POWER)
    if math.isfinite(freedom):
        errors = nctdtrinc(freedom, 1 - POWER, critical)
    least = float(error * errors)
    return least if least <= 1 else math.nan


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
