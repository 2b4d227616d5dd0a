"""Intervals and tests, written again from their sources.

What has a closed form is held to the last digit that an account prints. What a run draws at random
is drawn here in `REPEATS` sets as large as the run's: the mean of the sets stands for the number,
and a run's own set lies further from it than `luck` once in ten thousand times.
"""

from itertools import cycle, islice
from typing import NamedTuple

import numpy as np
from scipy.stats import t

LEVEL = 0.05
REPEATS = 20
SELDOM = 1e-4


class Difference(NamedTuple):
    """A mean paired difference, its 95% interval and two-sided p-value.

    The degrees of freedom are Student's, infinite for the normal quantile.
    """

    mean: float
    low: float
    high: float
    p: float
    freedom: float = np.inf


def paired(first, second=None):
    """Return the difference of what two methods reached on the same questions.

    Bonett and Price 2012: a gained and a lost question are added. Variances of other sources come
    on top, and Student's t with Satterthwaite's degrees of freedom in place of the normal.

    Args:
        first, second: arrays of a number for each question, by draw of the training questions (all
            of them, then redraws of two thirds) and by seed; a list of one is held against all.
    """
    leads = [
        [mine - its for mine, its in _side_by_side(*draws)]
        for draws in _side_by_side(first, second or [[0.0]])
    ]
    added = np.append(np.mean(leads[0], axis=0), [1, -1])
    parts = [(added.var() / len(added), len(added) - 1)]
    means = [[lead.mean() for lead in seeds] for seeds in leads]
    seeds, redraws, noise = len(means[0]), len(means) - 1, 0.0
    if seeds > 1:
        noise = np.mean([np.var(own, ddof=1) for own in means]) / seeds
        parts.append((noise, len(means) * (seeds - 1)))
    if redraws > 1:  # Shao and Wu 1989: m of n vary (n - m) / m times as much as n fresh ones
        between = np.var([np.mean(own) for own in means[1:]], ddof=1)
        parts.append((2 * max(between - noise, 0.0), redraws - 1))
    total = sum(part for part, _ in parts)
    freedom = total**2 / sum(part**2 / own for part, own in parts)
    freedom = freedom if len(parts) > 1 else np.inf
    of = t(freedom)
    middle, error = added.mean(), np.sqrt(total)
    half = of.ppf(1 - LEVEL / 2) * error
    mean = float(np.mean(leads[0]))
    low, high = max(middle - half, -1.0), min(middle + half, 1.0)
    return Difference(mean, low, high, 2 * of.sf(abs(middle) / error), freedom)


def _side_by_side(first, second):
    longest = max(len(first), len(second))
    return [*zip(islice(cycle(first), longest), islice(cycle(second), longest), strict=True)]


def jointly(found, entries):
    """Return an interval that holds for so many entries at once (Bonferroni)."""
    wider = t.isf(LEVEL / 2 / entries, found.freedom) / t.isf(LEVEL / 2, found.freedom)
    middle, half = (found.low + found.high) / 2, (found.high - found.low) / 2 * wider
    return found._replace(low=middle - half, high=middle + half)


def sign(found):
    """Return 1 for a difference whose interval is above zero, -1 for one below, or else 0."""
    if found.low > 0:
        return 1
    return -1 if found.high < 0 else 0


def holm(values):
    """Return adjusted p-values: the smallest is taken times all, the next times the others ..."""
    adjusted, largest = [0.0] * len(values), 0.0
    ranked = sorted(range(len(values)), key=lambda place: values[place])
    for done, place in enumerate(ranked):
        largest = max(largest, (len(values) - done) * values[place])
        adjusted[place] = min(largest, 1.0)
    return adjusted


def resampled(values, statistic, resamples, step=0.0):
    """Return a statistic of resamples of the questions, and its luck.

    Args:
        values: a row for each question.
        statistic: takes the means of each resample, a row each, and returns numbers.
        resamples: so many as the run draws.
        step: as of `repeated`.
    """
    draw, count = np.random.default_rng(1), len(values)
    chances = np.full(count, 1 / count)
    return repeated(
        lambda: statistic(draw.multinomial(count, chances, resamples) @ values / count), step
    )


def repeated(drawn, step=0.0):
    """Return the mean of what `REPEATS` calls draw, and how far another one seldom is.

    Of numbers that go by steps all calls may draw the same: another may be a step away.
    """
    found = np.array([drawn() for _ in range(REPEATS)], dtype=float)
    far = t.isf(SELDOM / 2, REPEATS - 1) * np.sqrt(1 + 1 / REPEATS)
    return found.mean(axis=0), np.maximum(far * found.std(axis=0, ddof=1), step)
