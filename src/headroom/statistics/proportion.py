"""Intervals of a share of right answers, and of the ratio or difference of two unpaired values."""

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri

from headroom.statistics import LEVEL

Values = Float[np.ndarray, "*shape"]
Interval = tuple[Values, Values]
"""Lower and upper ends."""


def wilson(correct: Int[np.ndarray, "*shape"], n: Int[np.ndarray, "*shape"]) -> Interval:
    """Return Wilson's score interval of each share of right answers (Wilson 1927).

    Args:
        correct: number of right answers.
        n: number of questions, at least 1.
    """
    z = ndtri((1 + LEVEL) / 2)
    share = correct / n
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return np.clip(middle - half, 0.0, share), np.clip(middle + half, share, 1.0)


def unpaired_ratio(
    top: Values, top_ends: Interval, bottom: Values, bottom_ends: Interval
) -> Interval:
    """Return the interval of `top` / `bottom` from the interval of each, as if independent.

    Variance estimates recovered from the ends of each interval (Donner and Zou 2012, Closed-form
    confidence intervals for functions of the normal mean and standard deviation, section 2): each
    end is a ratio R at which the interval of top − R · bottom ends at 0. An end is infinite where
    the interval of `bottom`, a value of at least 0, is too wide to bound it.
    """

    def end(own: Values, side: int) -> Values:
        upper = (own >= 0) == (side < 0)  # which end of `bottom` makes the ratio more extreme
        other = np.where(upper, bottom_ends[1], bottom_ends[0])
        square = bottom**2 - (other - bottom) ** 2
        rest = top**2 - (own - top) ** 2
        root = np.sqrt(np.maximum((top * bottom) ** 2 - square * rest, 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(square > 0, (top * bottom + side * root) / square, side * np.inf)

    return end(top_ends[0], -1), end(top_ends[1], 1)


def unpaired_difference(
    first: Values, first_ends: Interval, second: Values, second_ends: Interval
) -> Interval:
    """Return the interval of `second` − `first` from the interval of each.

    Variance estimates recovered from the ends of each interval (Zou and Donner 2008); with Wilson's
    intervals this is Newcombe's (1998, method 10). Coverage is right for independent values. Two
    measurements on the same questions are positively correlated: for them it is too wide.
    """
    difference = second - first
    below = np.hypot(second - second_ends[0], first_ends[1] - first)
    above = np.hypot(second_ends[1] - second, first - first_ends[0])
    return difference - below, difference + above
