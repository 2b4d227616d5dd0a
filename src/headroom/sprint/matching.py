"""Does the question embedding matter? SPRINT compared with methods that ignore the question.

A selector that ranks heads by the question's embedding is compared with three that do not use the
question: itself with the questions' embeddings shuffled and all else equal; the greedy cover, which
takes the same heads for every question; and heads drawn from the pool. Each comparison is made on
all heads, and on those whose training accuracy is within noise of the base model's, where avoiding
bad heads gains nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from headroom.sprint.evaluation import estimated, points
from headroom.sprint.methods import COVER
from headroom.sprint.rankers import greedy_cover
from headroom.statistics.answers import pass_at_n_drawn, pass_at_n_ordered
from headroom.statistics.bootstrap import Bootstrap
from headroom.statistics.paired import mcnemar

COLUMNS = ["method", "questions", "pool", "heads", "against", "n", "sprint", "other"]
COLUMNS += ["difference", "low", "high", "p"]
"""Columns of the table: Pass@N of the method and of the other, their paired difference with its 95%
interval, and, against shuffled questions, the p-value. `n` is 1, 2, 4, ... or `MEAN`."""

MEAN = "mean"
"""The mean of Pass@1..max_n, the area under the curve."""

SHUFFLED, DRAWN = "shuffled questions", "heads drawn from the pool"
ALL, EQUAL = "all heads", "heads as accurate as base"

_PERMUTATIONS = 10_000
_LEVEL = 0.05  # significance level of the test of a head's accuracy against base
_BLOCK = 500  # permutations at once; bounds memory


class Ranked(NamedTuple):
    """Questions that a selector was not trained on, its rankings, and its training data."""

    questions: Int[np.ndarray, " questions"]
    """Question numbers; several parts may share some."""
    correct: Bool[np.ndarray, "questions pool"]
    order: Int[np.ndarray, "questions pool"]
    """Heads, nearest first."""
    train: Bool[np.ndarray, "train pool"]
    train_base: Bool[np.ndarray, " train"]

    def equal(self) -> "Ranked":
        """Keep heads that an exact McNemar test on training questions does not tell from base."""
        kept = mcnemar(self.train.astype(np.int8) - self.train_base[:, np.newaxis]) >= _LEVEL
        number = np.cumsum(kept) - 1
        order = number[self.order[kept[self.order]]].reshape(len(self.order), -1)
        return self._replace(correct=self.correct[:, kept], order=order, train=self.train[:, kept])


def first_right(
    correct: Bool[np.ndarray, "questions pool"], order: Int[np.ndarray, "rankings pool"]
) -> Int[np.ndarray, "questions rankings"]:
    """Return the position of the first right head under each ranking; the pool's size if none is.

    Rankings may be those of other questions. Pass@N is 1 where the position is below N.
    """
    place = np.argsort(order, axis=1).astype(np.int16)
    first = np.full((len(correct), len(order)), order.shape[1], np.int16)
    for head, solved in enumerate(correct.T):
        first[solved] = np.minimum(first[solved], place[:, head])
    return first


def compare(
    method: str, parts: Sequence[Ranked], questions: str, max_n: int, resamples: int, seed: int
) -> pd.DataFrame:
    """Compare a method with those that do not use the question: columns `COLUMNS`.

    If a question is in several parts, its values are averaged, so that the bootstrap draws whole
    questions.

    Args:
        method: SPRINT or a simpler method.
        parts: questions, each part ranked by a selector trained without it.
        questions: their name in the table.
        max_n: largest N.
        resamples: number of bootstrap resamples of the questions.
        seed: decides resamples and permutations.
    """
    tables = []
    for pool, chosen in ((ALL, parts), (EQUAL, [part.equal() for part in parts])):
        if chosen := [part for part in chosen if part.correct.shape[1]]:
            tables.append(_compare(chosen, max_n, resamples, seed).assign(pool=pool))
    return pd.concat(tables, ignore_index=True).assign(method=method, questions=questions)[COLUMNS]


def _compare(parts: Sequence[Ranked], max_n: int, resamples: int, seed: int) -> pd.DataFrame:
    numbers, row_of = np.unique(
        np.concatenate([part.questions for part in parts]), return_inverse=True
    )
    shown = points(max_n)
    # Row: position of a ranking's first right head. Column: Pass@N of that ranking.
    worth = np.array([np.arange(1, max_n + 1) > place for place in range(max_n + 1)], float)

    def at_points(passes: np.ndarray) -> Float[np.ndarray, "*rankings points"]:
        return np.concatenate([passes[..., shown - 1], passes.mean(axis=-1)[..., None]], axis=-1)

    def by_question(passes: list[np.ndarray]) -> Float[np.ndarray, "questions points"]:
        total = np.zeros((len(numbers), len(shown) + 1))
        np.add.at(total, row_of, at_points(np.concatenate(passes)))
        return total / np.bincount(row_of)[:, np.newaxis]

    # All positions from max_n on count the same.
    first = [np.minimum(first_right(part.correct, part.order), max_n) for part in parts]
    own = by_question([worth[np.diagonal(each)] for each in first])
    p = permutation_p(first, at_points(worth), seed)
    others = {
        # The mean over all rankings is the exact expectation over permutations.
        SHUFFLED: [worth[each].mean(axis=1) for each in first],
        COVER: [
            pass_at_n_ordered(part.correct[:, greedy_cover(part.train)], max_n) for part in parts
        ],
        DRAWN: [pass_at_n_drawn(part.correct, max_n) for part in parts],
    }
    bootstrap = Bootstrap(len(numbers), resamples, seed)
    tables = []
    for against, passes in others.items():
        other = by_question(passes)
        table = pd.DataFrame({"n": [*map(str, shown), MEAN], "against": against})
        table = table.assign(**estimated(own - other, bootstrap, "difference", "low", "high"))
        table["sprint"], table["other"] = own.mean(axis=0), other.mean(axis=0)
        table["heads"] = round(np.mean([part.correct.shape[1] for part in parts]))
        tables.append(table.assign(p=p if against == SHUFFLED else np.nan))
    return pd.concat(tables, ignore_index=True)


def permutation_p(
    first: Sequence[Int[np.ndarray, "questions questions"]],
    worth: Float[np.ndarray, "places points"],
    seed: int,
) -> Float[np.ndarray, " points"]:
    """Return the one-sided p-value: the share of permutations of the questions that score as well.

    Args:
        first: position of the first right head of each question under each question's ranking.
        worth: score of each position.
        seed: decides the permutations.
    """
    observed = sum(worth[np.diagonal(each)].sum(axis=0) for each in first)
    draw = np.random.default_rng(seed)
    beyond = np.zeros(worth.shape[1])
    for start in range(0, _PERMUTATIONS, _BLOCK):
        score = np.zeros((min(_BLOCK, _PERMUTATIONS - start), worth.shape[1]))
        for each in first:
            rows = np.arange(len(each))
            shuffled = draw.permuted(np.broadcast_to(rows, (len(score), len(rows))), axis=1)
            score += worth[each[rows, shuffled]].sum(axis=1)
        beyond += (score >= observed - 1e-9).sum(axis=0)
    return (1 + beyond) / (1 + _PERMUTATIONS)
