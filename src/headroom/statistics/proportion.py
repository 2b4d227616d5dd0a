"""Intervals of a share of right answers, and of the difference of two unpaired values."""

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
