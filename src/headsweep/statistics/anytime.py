"""Intervals of a gain that hold at any time of looking: a confidence sequence.

Waudby-Smith and Ramdas 2024 (Estimating means of bounded random variables by betting, JRSS B 86,
arXiv 2010.09686): hedged grid Kelly. A difference d of −1, 0 or 1 becomes y = (d + 1) / 2, which
lies in [0, 1]. Against each candidate m of the mean of y, gamblers bet fixed fractions f = 1/21,
..., 20/21 that it is larger; the wealth of all after n questions is

    W_n(m) = mean over f of  ∏_{i ≤ n} (1 + f (y_i / m − 1)).

If m is the mean of each y given those before it, W is a nonnegative martingale from 1, and the
chance that it *ever* reaches 2/α is at most α/2 (Ville 1939). The interval begins at the largest m
that has lost so much: W falls in m, so those below have, too. Its end is found likewise, with
1 − y. All of it may be looked at after every question, as often as one likes, and at whatever time
one likes to stop.

The order of the questions must not depend on their outcomes, but need not be known: fractions are
fixed, so the product is one of counts. The same questions give the same interval in any order. A
sequence that adapts its bets would need an order that stays the same from one look to the next,
which answers that come from several workers do not keep; a new random order at each look would make
each look a sequence of its own, and nothing would hold for all looks together. For the same reason
no interval is cut by those before it.

What a look cannot mend: if questions that come early differ from those that come late, by subject
or by the length of their answers, the mean is that of the early ones until the others have come.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

from headsweep.statistics import LEVEL
from headsweep.statistics.intervals import Interval

_FRACTIONS = np.arange(1, 21) / 21
"""The least serves some ten thousand questions; with more, the interval hardly narrows further."""

_STEPS = 30  # halvings of an interval that is at most 1 long

Counts = Int[np.ndarray, "*shape"]


def anytime_interval(gained: Counts, lost: Counts, questions: int, heads: int) -> Interval:
    """Return intervals of gains that hold for all heads, at all times of looking, together.

    Args:
        gained: questions that a head gains, so far.
        lost: those that it loses.
        questions: all that have been answered, so far.
        heads: of the whole sweep, whether shown or not (Bonferroni): those shown become more from
            look to look, and a level that follows them would not hold for all looks together.

    Returns:
        Lower and upper ends, from −1 to 1: means of differences of −1, 0 and 1.
    """
    least = np.log(2 * heads / (1 - LEVEL))
    return _begin(gained, lost, questions, least), -_begin(lost, gained, questions, least)


def _begin(gained: Counts, lost: Counts, questions: int, least: float) -> Float[np.ndarray, "..."]:
    """Return the largest gain at and below which the logarithm of the wealth is `least` or more."""
    below = np.zeros(np.shape(gained))
    # At the mean of the questions so far the wealth is at most 1.
    above = (1 + (gained - lost) / max(questions, 1)) / 2
    for _ in range(_STEPS):
        middle = (below + above) / 2
        refuted = _log_wealth(gained, lost, questions, middle) >= least
        below, above = np.where(refuted, middle, below), np.where(refuted, above, middle)
    return 2 * below - 1


def _log_wealth(
    gained: Counts, lost: Counts, questions: int, mean: Float[np.ndarray, "*shape"]
) -> Float[np.ndarray, "*shape"]:
    """Return the logarithm of the wealth against a mean of y, in [0, 1]."""
    mean = np.maximum(mean, np.finfo(float).tiny)[..., np.newaxis]
    unchanged = questions - gained - lost
    logs = (
        np.expand_dims(gained, -1) * np.log1p(_FRACTIONS * (1 / mean - 1))
        + np.expand_dims(unchanged, -1) * np.log1p(_FRACTIONS * (0.5 / mean - 1))
        + np.expand_dims(lost, -1) * np.log1p(-_FRACTIONS)
    )
    return logsumexp(logs, axis=-1) - np.log(len(_FRACTIONS))
