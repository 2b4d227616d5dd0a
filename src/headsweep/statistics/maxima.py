"""Tests of many means at once: the largest and the smallest t of all, by resampled questions.

Where questions are drawn anew, all differences of a question come together, so the correlation
between columns stays as it is. Each t is held against the distribution of the largest one, and of
the smallest one, of columns whose means are zero (maxT: Westfall and Young 1993, Resampling-Based
Multiple Testing, section 2.3; bootstrap-t: Efron and Tibshirani 1993, An Introduction to the
Bootstrap, chapter 12). So the chance that any column without an effect is named stays near its
level, also where differences are skewed. Sign flips would need symmetric ones: changes of
log-probabilities are not.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from headsweep.statistics import TAILS
from headsweep.statistics.intervals import Interval, half_width

FEWEST = 4
"""Questions that the test needs: of fewer, too many draws are of one question alone."""

_BLOCK = 1000  # resamples at once; bounds memory
_ROUNDS = 20  # most rounds of resamples
_CERTAIN = 4.0  # standard errors between a p-value and its level after which no round is added


def joint_means(
    differences: Float[np.ndarray, "questions columns"], resamples: int, seed: int
) -> pd.DataFrame:
    """Test each column's mean against zero, corrected over all columns.

    Args:
        differences: of at least `FEWEST` questions.
        resamples: draws of as many questions, with replacement, in a round. So that the seed does
            not decide what is shown, rounds are added, up to 20, until chance leaves open of no
            column whether its p-value is below `SIGNIFICANCE` (Gandy 2009, Sequential
            implementation of Monte Carlo tests with uniformly bounded resampling risk).
        seed: of the draws.

    Returns:
        A row for each column: its mean ``change``, and ``t``, that over its standard error (0 where
        nothing differs). ``low`` and ``high`` are the 95% interval of this column alone, by
        Student's quantile; ``band_low`` and ``band_high`` hold for all columns at once, and are at
        least as wide. ``adjusted`` is the two-sided p-value after correction over all columns.

    Raises:
        ValueError: there are fewer questions.
    """
    questions = len(differences)
    if questions < FEWEST:
        raise ValueError(f"{questions} questions: the test needs {FEWEST}")
    mean = differences.mean(axis=0)
    error = differences.std(axis=0, ddof=1) / np.sqrt(questions)
    observed = _ratio(mean, error)
    draw = np.random.default_rng(seed)
    smallest = largest = np.empty(0)
    above = below = np.zeros(len(mean))
    for _ in range(_ROUNDS):
        least, most = _extremes(differences - mean, resamples, draw)
        smallest = np.concatenate([smallest, least])
        largest = np.concatenate([largest, most])
        above = above + (most[:, np.newaxis] >= observed).sum(axis=0)
        below = below + (least[:, np.newaxis] <= observed).sum(axis=0)
        tail = (1 + np.minimum(above, below)) / (1 + len(largest))
        error_of_tail = np.sqrt(tail * (1 - tail) / len(largest))
        if (np.abs(tail - TAILS[0]) > _CERTAIN * error_of_tail).all():
            break
    low, high = mean_interval(differences)
    # A mean that came out too high lies above its truth: the largest t gives the lower end.
    alone = half_width(error, questions - 1)
    downwards = np.maximum(np.quantile(largest, TAILS[1]) * error, alone)
    upwards = np.maximum(-np.quantile(smallest, TAILS[0]) * error, alone)
    return pd.DataFrame(
        {
            "change": mean,
            "low": low,
            "high": high,
            "band_low": mean - downwards,
            "band_high": mean + upwards,
            "t": observed,
            "adjusted": np.minimum(2 * tail, 1.0),
        }
    )


def _extremes(
    centred: Float[np.ndarray, "questions columns"], resamples: int, draw: np.random.Generator
) -> tuple[Float[np.ndarray, " resamples"], Float[np.ndarray, " resamples"]]:
    """Return the smallest and the largest t over columns of each draw of questions."""
    questions = len(centred)
    squares = np.square(centred)
    smallest, largest = [], []
    for counts in _draws(questions, resamples, draw):
        means = counts @ centred / questions
        variances = np.maximum(counts @ squares / questions - np.square(means), 0)
        # A draw of one question alone has no spread, only what rounding leaves of it.
        variances[variances < 1e-12 * squares.mean(axis=0)] = 0
        ratios = _ratio(means, np.sqrt(variances / (questions - 1)))
        smallest.append(ratios.min(axis=1))
        largest.append(ratios.max(axis=1))
    return np.concatenate(smallest), np.concatenate(largest)


def _draws(
    questions: int, resamples: int, draw: np.random.Generator
) -> Iterator[Float[np.ndarray, "block questions"]]:
    """Yield how often each draw has each question, in blocks."""
    for start in range(0, resamples, _BLOCK):
        block = min(_BLOCK, resamples - start)
        counts: Int[np.ndarray, "block questions"]
        counts = draw.multinomial(questions, np.full(questions, 1 / questions), size=block)
        yield counts.astype(float)


def _ratio(
    means: Float[np.ndarray, "*draws columns"], errors: Float[np.ndarray, "*draws columns"]
) -> Float[np.ndarray, "*draws columns"]:
    """Return means over their standard errors; 0 where nothing differs."""
    with np.errstate(divide="ignore"):
        return np.divide(means, errors, out=np.zeros_like(means), where=means != 0)


def mean_interval(differences: Float[np.ndarray, " questions *columns"]) -> Interval:
    """Return the 95% interval of each column's mean alone, by Student's quantile."""
    questions = len(differences)
    error = differences.std(axis=0, ddof=1) / np.sqrt(questions)
    half = half_width(error, questions - 1)
    mean = differences.mean(axis=0)
    return mean - half, mean + half
