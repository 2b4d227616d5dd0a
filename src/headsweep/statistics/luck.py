"""The luck of the best of many tries, exactly.

Chance is that of `headsweep.statistics.published_luck.heads_by_chance`: base and tries agree on all
but the contested questions, and each answers a contested one right with probability 1/2. With m of
them, base has B and try k has X_k right, all Binomial(m, 1/2) and independent; the best of K gains
max X_k − B questions. So P(best gain ≤ d) = Σ_b P(B = b) F(b + d)^K, where F is the distribution of
one count.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.special import bdtr

from headsweep.statistics import LEVEL
from headsweep.statistics.published_luck import noise_share

_UNLIKELY = 1e-16  # counts of the base that add nothing
_TOLERANCE = 1e-9  # of gains, which are quotients of whole numbers, and of their probabilities


class Luck(NamedTuple):
    """The distribution of the best gain if no try has an effect."""

    gains: Float[np.ndarray, " values"]
    """All possible gains, as fractions of the questions, ascending."""
    chances: Float[np.ndarray, " values"]
    """Their probabilities."""

    @property
    def expected(self) -> float:
        """The mean of the best gain."""
        return float(self.gains @ self.chances)

    @property
    def most(self) -> float:
        """The gain that luck exceeds in at most one of 20 draws."""
        reached = np.cumsum(self.chances)
        return float(self.gains[np.searchsorted(reached, LEVEL - _TOLERANCE)])

    def p(self, gain: float) -> float:
        """Return the probability of a best gain at least as large."""
        return float(self.chances[self.gains >= gain - _TOLERANCE].sum())


def best_by_luck(questions: int, contested_questions: float, tries: int) -> Luck:
    """Return the distribution of the best gain of so many tries.

    Args:
        questions: their number.
        contested_questions: how many of them are contested; if not a whole number, one of both
            neighbours is, with probabilities that give this mean.
        tries: at least one.
    """
    fewer = int(np.floor(contested_questions))
    share = contested_questions - fewer
    counts = np.arange(-fewer - 1, fewer + 2)
    at_most = (1 - share) * _at_most(counts, fewer, tries)
    at_most += share * _at_most(counts, fewer + 1, tries)
    return Luck(counts / questions, np.diff(at_most, prepend=0.0))


def _at_most(
    gains: Int[np.ndarray, " gains"], tossed: int, tries: int
) -> Float[np.ndarray, " gains"]:
    """Return the probability that the best of `tries` gains at most so many of `tossed` coins."""
    right = np.arange(tossed + 1)
    reached = bdtr(right, tossed, 0.5)
    of_base = np.diff(reached, prepend=0.0)
    # F is 0 below and 1 above what a count can be.
    of_all = np.concatenate([np.zeros(1), reached, np.ones(1)]) ** tries
    probability = np.zeros(len(gains))
    likely = of_base > _UNLIKELY
    for count, chance in zip(right[likely], of_base[likely], strict=True):
        probability += chance * of_all[np.clip(count + gains, -1, tossed + 1) + 1]
    return probability / of_base[likely].sum()


def changed_by_chance(base: float) -> float:
    """Return the share of outcomes that change if each answer is drawn anew, right as often."""
    return 2 * base * (1 - base)


def of_table(
    accuracy: Float[np.ndarray, "tries groups"],
    base: Float[np.ndarray, " groups"],
    sizes: Int[np.ndarray, " groups"],
) -> pd.DataFrame:
    """Return the best gain of each group of questions, and what luck alone would give.

    How many questions are contested follows from the spread between tries
    (`headsweep.statistics.published_luck.noise_share`). Tries that clearly hurt are no candidates.

    Args:
        accuracy: fractions, NaN where unknown; each group has at least one.
        base: likewise, of what the tries are compared with; a group without it has no gain.
        sizes: numbers of questions.

    Returns:
        A row for each group: n, tries (known ones), base, gain, median_try (the gain of the median
        try), ordinary (candidates), contested (questions), by_chance (the mean of the best gain),
        most (see `Luck`) and p.
    """
    noise, kept = noise_share(accuracy, sizes)
    rows = []
    for group, n in enumerate(sizes):
        of_group = accuracy[:, group]
        legible = of_group[~np.isnan(of_group)]
        ordinary = of_group[kept & ~np.isnan(of_group)]
        mean = ordinary.mean() if len(ordinary) else np.nan
        row = {
            "n": n,
            "tries": len(legible),
            "base": base[group],
            "gain": legible.max() - base[group],
            "median_try": np.median(legible) - base[group],
            "ordinary": len(ordinary),
            "contested": 4 * mean * (1 - mean) * noise * n,
            "by_chance": np.nan,
            "most": np.nan,
            "p": np.nan,
        }
        if len(ordinary) and not np.isnan(row["gain"]):
            luck = best_by_luck(int(n), row["contested"], len(ordinary))
            row |= {"by_chance": luck.expected, "most": luck.most, "p": luck.p(row["gain"])}
        rows.append(row)
    return pd.DataFrame(rows)
