"""Percentile bootstrap over questions, and over seeds and examples.

The same resamples are used for every quantity, so that differences of two methods are paired: their
interval is that of the per-question differences. Where training was repeated with other seeds, all
seeds are tested on the same examples. The two factors are crossed: an outcome is the sum of an
effect of its seed, an effect of its example, and chance.
"""

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri, stdtrit

from headroom.statistics import LEVEL
from headroom.statistics.intervals import Interval

_TAILS = (1 - LEVEL) / 2, (1 + LEVEL) / 2  # probabilities at the ends of an interval
_DECIMALS = 12
"""Decimals of an interval's ends. Sums that cancel leave a residue of either sign in the last
digits, and conclusions depend on whether an interval ends at zero or below."""


def interval_of(means: Float[np.ndarray, " resamples *columns"]) -> Interval:
    """Return each column's percentile interval."""
    ends = np.quantile(means, _TAILS, axis=0)
    low, high = np.round(ends, _DECIMALS) + 0.0  # turns -0.0 into 0.0
    return low, high


class Bootstrap:
    """Resamples of a question set, with replacement, each as large as the set (Efron 1979).

    Values are arrays of a number for each question, for any number of quantities. The seed decides
    the resamples.
    """

    def __init__(self, questions: int, resamples: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        chances = np.full(questions, 1 / questions)
        # Each question's share of each resample, so that means are one matrix product.
        self._weights = draw.multinomial(questions, chances, size=resamples) / questions

    def interval(self, values: Float[np.ndarray, " questions *columns"]) -> Interval:
        """Return the interval of each column's mean."""
        return interval_of(self.means(values))

    def means(
        self, values: Float[np.ndarray, " questions *columns"]
    ) -> Float[np.ndarray, " resamples *columns"]:
        """Return each column's mean over the questions of each resample."""
        return np.tensordot(self._weights, values, axes=1)


class SeedBootstrap(Bootstrap):
    """Resamples of seeds and of examples, drawn once, so that all differences are paired.

    Resampling both in full would count chance twice: where seeds have no effect, intervals would be
    too wide by half (Owen 2007, The pigeonhole bootstrap). Deviations of resampled seeds are
    therefore scaled to the method of moments' estimate of the seed effects' spread (Davison and
    Hinkley 1997, section 3.8), and, as few seeds estimate it badly, by the ratio of Student's
    quantile to the normal one. In simulations with 3 to 10 seeds, 95% intervals covered 93 to 96%,
    whether seeds had no effect or a dominant one; with two seeds, 90 to 95%. With one seed the
    intervals are about that training alone.

    Values are arrays of a number for each seed and example, for any number of quantities.
    """

    def __init__(self, seeds: int, examples: int, resamples: int, seed: int) -> None:
        super().__init__(examples, resamples, seed)
        self._seeds = Bootstrap(seeds, resamples, seed + 1)

    def means(
        self, values: Float[np.ndarray, "seeds examples *columns"]
    ) -> Float[np.ndarray, " resamples *columns"]:
        """Return each column's mean over the seeds and examples of each resample."""
        by_seed = values.mean(axis=1)
        own = (by_seed - by_seed.mean(axis=0)) * _scale(values)
        return super().means(values.mean(axis=0)) + self._seeds.means(own)


def _scale(values: Float[np.ndarray, "seeds examples *columns"]) -> Float[np.ndarray, "*columns"]:
    """Return the factor by which deviations of the seeds' means are scaled before resampling."""
    seeds, examples = values.shape[:2]
    if seeds == 1:
        return np.zeros(values.shape[2:])
    by_seed, by_example = values.mean(axis=1), values.mean(axis=0)
    chance = values - by_seed[:, None] - by_example[None] + values.mean(axis=(0, 1))
    freedom = (seeds - 1) * max(1, examples - 1)
    effects = by_seed.var(axis=0, ddof=1) - (chance**2).sum(axis=(0, 1)) / freedom / examples
    seen = by_seed.var(axis=0)
    share = np.divide(effects.clip(0), seen, out=np.zeros_like(seen), where=seen > 0)
    few = stdtrit(seeds - 1, _TAILS[1]) / ndtri(_TAILS[1])
    return few * np.sqrt(share)
