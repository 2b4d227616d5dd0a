"""Curves of a mean value over N answers, read off at a number of tokens instead of answers.

A curve gives, for N = 1, 2, ..., the mean over questions of a value against the mean number of
tokens of the first N answers. It is linear between N and N + 1, which mixing the two achieves, and
not continued beyond its ends. Budgets are multiples of the base model's mean number of tokens.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from headsweep.statistics.intervals import Bootstrap

PerN = Float[np.ndarray, "questions n"]


def reaches(tokens: PerN, base: Float[np.ndarray, " questions"], budget: float) -> bool:
    """Return whether a curve has a value at a budget."""
    spent = tokens.mean(axis=0)
    return bool(spent[0] <= budget * base.mean() <= spent[-1])


def at_budgets(
    values: PerN,
    tokens: PerN,
    base: Float[np.ndarray, " questions"],
    budgets: Sequence[float],
) -> Float[np.ndarray, "questions budgets"]:
    """Return numbers for each question whose mean is the curve's value at each budget.

    With the questions, the place of a budget on the curve varies, too: a question on which a family
    spends more than the budget's share moves the place back by the excess, at the curve's slope
    there (the delta method). So two families can be compared question by question. NaN where the
    curve does not reach the budget.

    Args:
        values: of a family, for N = 1, 2, ...
        tokens: of its first N answers.
        base: tokens of the base model's answer.
        budgets: multiples of the mean of `base`.
    """
    interpolated = np.full((len(values), len(budgets)), np.nan)
    mean, spent = values.mean(axis=0), tokens.mean(axis=0)
    for place, budget in enumerate(budgets):
        if not reaches(tokens, base, budget):
            continue
        allowed_tokens = budget * base.mean()
        n = min(int(np.searchsorted(spent, allowed_tokens, side="right")) - 1, len(spent) - 2)
        width = spent[n + 1] - spent[n] if n >= 0 else 0.0
        if not width:  # the curve ends: it is one point, or its last answers have no tokens
            interpolated[:, place] = values[:, -1]
            continue
        share = (allowed_tokens - spent[n]) / width
        slope = (mean[n + 1] - mean[n]) / width
        reached = (1 - share) * values[:, n] + share * values[:, n + 1]
        used = (1 - share) * tokens[:, n] + share * tokens[:, n + 1]
        interpolated[:, place] = reached + slope * (budget * base - used)
    return interpolated


def misses(
    tokens: PerN,
    base: Float[np.ndarray, " questions"],
    budgets: Sequence[float],
    bootstrap: Bootstrap,
) -> Bool[np.ndarray, "resamples budgets"]:
    """Return in which resamples of the questions a curve does not reach each budget."""
    first, last = bootstrap.means(tokens[:, [0, -1]]).T
    allowed_tokens = np.multiply.outer(bootstrap.means(base), np.array(budgets))
    return (allowed_tokens < first[:, np.newaxis]) | (allowed_tokens > last[:, np.newaxis])
