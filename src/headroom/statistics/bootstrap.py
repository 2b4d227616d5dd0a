"""Percentile bootstrap over questions.

A set of resamples is drawn once and used for every quantity, so that the difference of two methods
is resampled as a pair: its interval is that of the per-question differences.
"""

import numpy as np
from jaxtyping import Float

from headroom.statistics import LEVEL

_DECIMALS = 12
"""Of an interval's ends. Sums that cancel leave a residue of either sign in the last binary digits,
and whether an interval ends at zero or below it decides what is said of a difference."""


def interval_of(
    means: Float[np.ndarray, " resamples *columns"],
) -> tuple[Float[np.ndarray, "*columns"], Float[np.ndarray, "*columns"]]:
    """Return the lower and upper end of the percentile interval of each column of resamples."""
    ends = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    low, high = np.round(ends, _DECIMALS) + 0.0  # no zero is negative
    return low, high


class Bootstrap:
    """Resamples of a question set, with replacement, each as large as the set (Efron 1979).

    Args:
        questions: how many questions there are.
        resamples: how many resamples to draw.
        seed: decides the resamples.
    """

    def __init__(self, questions: int, resamples: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        chances = np.full(questions, 1 / questions)
        # How often each question is in each resample: a mean is then one matrix product.
        self._weights = draw.multinomial(questions, chances, size=resamples) / questions

    def interval(
        self, values: Float[np.ndarray, " questions *columns"]
    ) -> tuple[Float[np.ndarray, "*columns"], Float[np.ndarray, "*columns"]]:
        """Return the lower and upper end of the interval of each column's mean over questions.

        Args:
            values: one number a question, for any number of quantities.
        """
        return interval_of(self.means(values))

    def means(
        self, values: Float[np.ndarray, " questions *columns"]
    ) -> Float[np.ndarray, " resamples *columns"]:
        """Return each column's mean over the questions of each resample."""
        return np.tensordot(self._weights, values, axes=1)
