"""Tests of many means at once: the largest of all, by joint sign flips.

Where all differences of a question flip together, the correlation between columns stays as it is;
the largest |t| over columns is held against its own distribution (maxT: Westfall and Young 1993,
Resampling-Based Multiple Testing, section 2.3). So the chance that any column without an effect is
named stays at its level.
"""

import numpy as np
import pandas as pd
from jaxtyping import Float

from headsweep.statistics import LEVEL
from headsweep.statistics.intervals import Interval, half_width
from headsweep.statistics.selection import sign_patterns


def joint_means(
    differences: Float[np.ndarray, "questions columns"], resamples: int, seed: int
) -> pd.DataFrame:
    """Test each column's mean against zero, corrected over all columns.

    Args:
        differences: of at least two questions.
        resamples: sign patterns.
        seed: of the sign patterns.

    Returns:
        A row for each column: its mean ``change``, and ``t``, that over its standard error (0 where
        nothing differs). ``low`` and ``high`` are the 95% interval of this column alone, by
        Student's quantile, ``band_low`` and ``band_high`` hold for all columns at once: their width
        is that of flips around the means, and at least Student's.
        ``adjusted`` is the two-sided p-value after correction over all columns.

    Raises:
        ValueError: there are fewer than two questions.
    """
    questions = len(differences)
    if questions < 2:
        raise ValueError(f"{questions} questions: a mean has an error from 2 on")
    mean = differences.mean(axis=0)
    observed = _t(mean, np.square(differences).sum(axis=0), questions)
    maxima = _largest(differences, resamples, seed)
    beyond = (maxima[:, np.newaxis] >= np.abs(observed) * (1 - 1e-9)).sum(axis=0)
    error = differences.std(axis=0, ddof=1) / np.sqrt(questions)
    low, high = mean_interval(differences)
    # Around the means: what columns have of an effect is no part of their spread.
    around = np.quantile(_largest(differences - mean, resamples, seed), LEVEL)
    wide = np.maximum(around * error, half_width(error, questions - 1))
    return pd.DataFrame(
        {
            "change": mean,
            "low": low,
            "high": high,
            "band_low": mean - wide,
            "band_high": mean + wide,
            "t": observed,
            "adjusted": (1 + beyond) / (1 + resamples),
        }
    )


def _largest(
    differences: Float[np.ndarray, "questions columns"], resamples: int, seed: int
) -> Float[np.ndarray, " resamples"]:
    """Return the largest |t| over columns of each sign pattern."""
    squares = np.square(differences).sum(axis=0)
    largest = []
    for block in sign_patterns(resamples, len(differences), seed):
        means = block.astype(float) @ differences / len(differences)
        largest.append(np.abs(_t(means, squares, len(differences))).max(axis=1))
    return np.concatenate(largest)


def mean_interval(differences: Float[np.ndarray, " questions *columns"]) -> Interval:
    """Return the 95% interval of each column's mean alone, by Student's quantile."""
    questions = len(differences)
    error = differences.std(axis=0, ddof=1) / np.sqrt(questions)
    half = half_width(error, questions - 1)
    mean = differences.mean(axis=0)
    return mean - half, mean + half


def _t(
    means: Float[np.ndarray, "*resamples columns"],
    squares: Float[np.ndarray, " columns"],
    questions: int,
) -> Float[np.ndarray, "*resamples columns"]:
    """Return means over their standard errors, from the sums of squares, which no flip changes."""
    variance = np.maximum(squares / questions - np.square(means), 0) / (questions - 1)
    least = np.finfo(float).eps * squares / questions  # a flip may leave no variance at all
    safe = np.sqrt(np.where(squares > 0, np.maximum(variance, least), 1.0))
    return means / safe
