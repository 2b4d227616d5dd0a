"""A variant against the base model on the same questions: interval, test, fragility.

Everything is a function of the paired differences d_ih = z_ih − z_i,base, which are −1 where
pruning head h loses question i, 1 where it gains it, 0 where nothing changes.
"""

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import bdtr, ndtri

from headroom.statistics import LEVEL


def paired_interval(
    differences: Int[np.ndarray, "questions heads"],
) -> tuple[Float[np.ndarray, " heads"], Float[np.ndarray, " heads"]]:
    """Return the lower and upper end of the interval of each head's gain.

    Bonett and Price 2012 (Adjusted Wald confidence interval for a difference of binomial
    proportions based on paired data): one is added to the questions gained and to those lost, so
    that the interval holds its level with few of either.
    """
    gained, lost = _discordant(differences)
    total = len(differences) + 2
    plus, minus = (gained + 1) / total, (lost + 1) / total
    half = ndtri((1 + LEVEL) / 2) * np.sqrt((plus + minus - (plus - minus) ** 2) / total)
    return np.maximum(plus - minus - half, -1.0), np.minimum(plus - minus + half, 1.0)


def mcnemar(
    differences: Int[np.ndarray, "questions heads"],
) -> Float[np.ndarray, " heads"]:
    """Return the two-sided p-value of the exact McNemar test of each head.

    Under the null the questions gained are Binomial(gained + lost, 1/2). Without any change p is 1.
    """
    gained, lost = _discordant(differences)
    tail = bdtr(np.minimum(gained, lost), gained + lost, 0.5)
    return np.minimum(2 * tail, 1.0)


def false_discovery(p: Float[np.ndarray, " tests"]) -> Float[np.ndarray, " tests"]:
    """Return Benjamini and Hochberg's adjusted p-values (q) of a family of tests."""
    from scipy.stats import false_discovery_control  # slow to import

    return false_discovery_control(p) if len(p) else p


def fragility(
    margin: Float[np.ndarray, "questions heads"],
    changed: Bool[np.ndarray, "questions heads"],
    noise: float,
) -> tuple[float, float]:
    """Return the share of cells, and of changed cells, whose margin is below numerical noise.

    Args:
        margin: the smallest gap between best and second-best logit along each answer.
        changed: whether the outcome differs from the base model's.
        noise: gaps below this can turn with batch composition, kernel or rounding.
    """
    fragile = margin < noise
    return float(fragile.mean()), float(fragile[changed].mean()) if changed.any() else 0.0


def _discordant(
    differences: Int[np.ndarray, "questions heads"],
) -> tuple[Int[np.ndarray, " heads"], Int[np.ndarray, " heads"]]:
    return (differences > 0).sum(axis=0), (differences < 0).sum(axis=0)
