"""Intervals of a share of right answers, and of the difference of two that are not paired."""

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri

from headroom.statistics import LEVEL

Interval = tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]
"""Lower and upper ends."""


def wilson(correct: Int[np.ndarray, "*shape"], n: Int[np.ndarray, "*shape"]) -> Interval:
    """Return Wilson's score interval of each share of right answers (Wilson 1927).

    Args:
        correct: right answers.
        n: questions, at least one.
    """
    z = ndtri((1 + LEVEL) / 2)
    share = correct / n
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return np.clip(middle - half, 0.0, share), np.clip(middle + half, share, 1.0)


def unpaired_difference(
    first: Float[np.ndarray, "*shape"],
    first_ends: Interval,
    second: Float[np.ndarray, "*shape"],
    second_ends: Interval,
) -> Interval:
    """Return the interval of `second` − `first` from the interval of each.

    Variance estimates recovered from the ends of each interval (Zou and Donner 2008); from Wilson's
    intervals it is Newcombe's (1998, method 10). Holds its level for independent values. Two
    measurements on the same questions agree more than independent ones do: for them it is too wide.

    Args:
        first: a value, and
        first_ends: its interval.
        second: the other value, and
        second_ends: its interval, of the same level.
    """
    difference = second - first
    below = np.hypot(second - second_ends[0], first_ends[1] - first)
    above = np.hypot(second_ends[1] - second, first - first_ends[0])
    return difference - below, difference + above
