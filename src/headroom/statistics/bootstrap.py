"""Percentile bootstrap over questions, and over seeds and examples.

A set of resamples is drawn once and used for every quantity, so that the difference of two methods
is resampled as a pair: its interval is that of the per-question differences. Where training was
repeated with other seeds, every seed is tested on the same examples, so that both are crossed: an
outcome has a part of its seed, a part of its example, and chance.
"""

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri, stdtrit

from headroom.statistics import LEVEL

_TAIL = 0.025  # at either end of an interval
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


class SeedBootstrap:
    """Resamples of seeds and of examples, drawn once, so that all differences are paired.

    To resample both in full counts chance twice, and is half too wide where seeds have no effect of
    their own (Owen 2007, The pigeonhole bootstrap). So deviations of resampled seeds are scaled to
    the spread that the method of moments leaves to the seeds' own effects (Davison and Hinkley
    1997, section 3.8), times Student's quantile over the normal one: a spread of few seeds is a
    guess. In simulations with 3 to 10 seeds intervals of 95% held 93 to 96%, whether seeds had no
    effect or most of it; with two, which may differ too little to tell, 90 to 95%. With one seed
    they are about its training alone.

    Args:
        seeds: how many seeds there are.
        examples: how many examples each is tested on.
        resamples: how many resamples to draw.
        seed: decides the resamples.
    """

    def __init__(self, seeds: int, examples: int, resamples: int, seed: int) -> None:
        self._examples = Bootstrap(examples, resamples, seed)
        self._seeds = Bootstrap(seeds, resamples, seed + 1)

    def interval(
        self, values: Float[np.ndarray, "seeds examples *columns"]
    ) -> tuple[Float[np.ndarray, "*columns"], Float[np.ndarray, "*columns"]]:
        """Return the lower and upper end of the 95% interval of each column's mean.

        Args:
            values: a number for each seed and example, for any number of quantities.
        """
        return interval_of(self.means(values))

    def means(
        self, values: Float[np.ndarray, "seeds examples *columns"]
    ) -> Float[np.ndarray, " resamples *columns"]:
        """Return each column's mean over the seeds and examples of each resample."""
        by_seed = values.mean(axis=1)
        own = (by_seed - by_seed.mean(axis=0)) * _scale(values)
        return self._examples.means(values.mean(axis=0)) + self._seeds.means(own)


def spread(values: Float[np.ndarray, "seeds examples"]) -> float:
    """Return the standard deviation of the seeds' means; NaN for one seed."""
    by_seed = values.mean(axis=1)
    return float(by_seed.std(ddof=1)) if len(by_seed) > 1 else float("nan")


def _scale(
    values: Float[np.ndarray, "seeds examples *columns"],
) -> Float[np.ndarray, "*columns"]:
    """Return what the deviations of the seeds' means are multiplied with before they are drawn."""
    seeds, examples = values.shape[:2]
    if seeds == 1:
        return np.zeros(values.shape[2:])
    by_seed, by_example = values.mean(axis=1), values.mean(axis=0)
    chance = values - by_seed[:, None] - by_example[None] + values.mean(axis=(0, 1))
    freedom = (seeds - 1) * max(1, examples - 1)
    effects = by_seed.var(axis=0, ddof=1) - (chance**2).sum(axis=(0, 1)) / freedom / examples
    seen = by_seed.var(axis=0)
    share = np.divide(effects.clip(0), seen, out=np.zeros_like(seen), where=seen > 0)
    few = stdtrit(seeds - 1, _TAIL) / ndtri(_TAIL)
    return few * np.sqrt(share)
