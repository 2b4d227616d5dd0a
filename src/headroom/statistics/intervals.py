"""Intervals and tests of shares, and of differences between two methods.

Paired: both methods answered the same questions. For a variant and the base model the differences
are d_ih = z_ih − z_i,base: −1 where pruning head h loses question i, 1 where it gains it, 0 where
nothing changes. For methods that draw their answers they are numbers from −1 to 1.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Real
from scipy.special import bdtr, ndtri, stdtrit

from headroom.statistics import LEVEL

Values = Float[np.ndarray, "*shape"]
Interval = tuple[Values, Values]
"""Lower and upper ends."""


class Component(NamedTuple):
    """A source of variance other than the choice of questions."""

    variance: Float[np.ndarray, " columns"]
    """Variance of the mean difference."""
    freedom: int
    """Degrees of freedom of the variance's estimate."""


def paired_interval(
    differences: Real[np.ndarray, "questions columns"], components: Sequence[Component] = ()
) -> Interval:
    """Return the interval of each column's mean difference.

    Bonett and Price 2012 (Adjusted Wald confidence interval for a difference of binomial
    proportions based on paired data): a gained and a lost question are added, so that coverage is
    right even with few of either. In terms of the mean and the mean square, the formula also
    applies to differences between −1 and 1.

    Args:
        differences: a number for each question, from −1 to 1.
        components: other sources of variance. Variances are added; the quantile is Student's, with
            the degrees of freedom of their sum (Satterthwaite 1946).
    """
    total = len(differences) + 2
    mean = differences.sum(axis=0) / total
    variance = ((np.square(differences).sum(axis=0) + 2) / total - mean**2) / total
    quantile = ndtri((1 + LEVEL) / 2)
    if components:
        parts = [Component(variance, total - 1), *components]
        variance = sum(part.variance for part in parts)
        freedom = variance**2 / sum(part.variance**2 / part.freedom for part in parts)
        quantile = stdtrit(freedom, (1 + LEVEL) / 2)
    half = quantile * np.sqrt(variance)
    return np.maximum(mean - half, -1.0), np.minimum(mean + half, 1.0)


def mcnemar(differences: Int[np.ndarray, "questions heads"]) -> Float[np.ndarray, " heads"]:
    """Return the two-sided p-value of the exact McNemar test of each head.

    Under the null, the number gained is Binomial(gained + lost, 1/2). Without changes p is 1.
    """
    gained, lost = (differences > 0).sum(axis=0), (differences < 0).sum(axis=0)
    tail = bdtr(np.minimum(gained, lost), gained + lost, 0.5)
    return np.minimum(2 * tail, 1.0)


def false_discovery(p: Float[np.ndarray, " tests"]) -> Float[np.ndarray, " tests"]:
    """Return Benjamini and Hochberg's adjusted p-values (q) of a family of tests."""
    from scipy.stats import false_discovery_control  # slow to import

    return false_discovery_control(p) if len(p) else p


def holm(p: Float[np.ndarray, " tests"]) -> Float[np.ndarray, " tests"]:
    """Return Holm's adjusted p-values (1979): the chance of any false claim stays at its level."""
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def wilson(correct: Int[np.ndarray, "*shape"], n: Int[np.ndarray, "*shape"]) -> Interval:
    """Return Wilson's score interval (1927) of each share of `correct` among `n` > 0 questions."""
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
