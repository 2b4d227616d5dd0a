"""Does the question embedding matter? SPRINT against itself without knowing the question.

A selector that ranks heads by the question's embedding is held against three that do not know the
question: itself with the embeddings of the questions shuffled, which keeps all else; the greedy
cover, the same heads for every question; and heads drawn from the pool. Each on all heads, and on
those whose training accuracy is within noise of the base model's, where avoiding bad heads gains
nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from headroom.sprint.baselines import greedy_cover
from headroom.sprint.methods import COVER
from headroom.statistics.bootstrap import Bootstrap
from headroom.statistics.paired import mcnemar
from headroom.statistics.pass_at_n import pass_at_n_drawn, pass_at_n_ordered

COLUMNS = ["method", "questions", "pool", "heads", "against", "n", "sprint", "other"]
COLUMNS += ["difference", "low", "high", "p"]
"""Columns of the table: Pass@N of the method and of the other, their paired difference with its 95%
interval, and, against shuffled questions, the p-value. `n` is 1, 2, 4, ... or `MEAN`."""

MEAN = "mean"
"""The mean of Pass@1..max_n, the area under the curve."""

SHUFFLED, DRAWN = "shuffled questions", "heads drawn from the pool"
ALL, EQUAL = "all heads", "heads as accurate as base"

_PERMUTATIONS = 10_000
_LEVEL = 0.05  # of the test that takes a head for less accurate than base, or more
_BLOCK = 500  # permutations at once: bounds the memory


@dataclass(frozen=True)
class Ranked:
    """Questions that a selector has not seen, ranked by it, and what it was trained on."""

    questions: Int[np.ndarray, " questions"]
    """Numbers; those of several parts may overlap."""
    correct: Bool[np.ndarray, "questions pool"]
    order: Int[np.ndarray, "questions pool"]
    """Heads, nearest first."""
    train: Bool[np.ndarray, "train pool"]
    train_base: Bool[np.ndarray, " train"]

    def equal(self) -> "Ranked":
        """Keep the heads that the exact McNemar test on training questions leaves equal to base."""
        differences = self.train.astype(np.int8) - self.train_base[:, np.newaxis]
        kept = mcnemar(differences) >= _LEVEL
        number = np.cumsum(kept) - 1
        order = number[self.order[kept[self.order]]].reshape(len(self.order), -1)
        return Ranked(
            self.questions, self.correct[:, kept], order, self.train[:, kept], self.train_base
        )


def first_right(
    correct: Bool[np.ndarray, "questions pool"], order: Int[np.ndarray, "rankings pool"]
) -> Int[np.ndarray, "questions rankings"]:
    """Return at which place each ranking has its first head that is right; pool size if none is.

    Pass@N of a question under another question's ranking is 1 where this is below N.
    """
    place = np.argsort(order, axis=1).astype(np.int16)
    first = np.full((len(correct), len(order)), order.shape[1], np.int16)
    for head, solved in enumerate(correct.T):
        first[solved] = np.minimum(first[solved], place[:, head])
    return first


def compare(
    method: str, parts: Sequence[Ranked], questions: str, max_n: int, resamples: int, seed: int
) -> pd.DataFrame:
    """Hold a method against what does not know the question.

    Values of a question in several parts are averaged, so that the bootstrap draws questions.

    Args:
        method: SPRINT, or a simpler one.
        parts: each ranked by what was trained without it.
        questions: what to call them in the table.
        max_n: largest N.
        resamples: of the bootstrap over questions.
        seed: decides resamples and permutations.

    Returns:
        Columns `COLUMNS`.
    """
    tables = []
    for pool, chosen in ((ALL, list(parts)), (EQUAL, [part.equal() for part in parts])):
        chosen = [part for part in chosen if part.correct.shape[1]]
        if chosen:
            tables.append(_compare(chosen, max_n, resamples, seed).assign(pool=pool))
    return pd.concat(tables, ignore_index=True).assign(method=method, questions=questions)[COLUMNS]


def _compare(parts: Sequence[Ranked], max_n: int, resamples: int, seed: int) -> pd.DataFrame:
    numbers, row_of = np.unique(
        np.concatenate([part.questions for part in parts]), return_inverse=True
    )
    points = [str(n) for n in (1, 2, 4, 8, 16) if n <= max_n] + [MEAN]

    def by_question(values: list[np.ndarray]) -> np.ndarray:
        total = np.zeros((len(numbers), len(points)))
        np.add.at(total, row_of, np.concatenate([_at_points(each, points) for each in values]))
        return total / np.bincount(row_of)[:, np.newaxis]

    first = [first_right(part.correct, part.order) for part in parts]
    own = by_question([_passes(np.diagonal(each)[:, np.newaxis], max_n) for each in first])
    p = _permutation_p(first, points, max_n, seed)
    others = {
        SHUFFLED: [_passes(each, max_n) for each in first],
        COVER: [
            pass_at_n_ordered(part.correct[:, greedy_cover(part.train)], max_n) for part in parts
        ],
        DRAWN: [pass_at_n_drawn(part.correct, max_n) for part in parts],
    }
    bootstrap = Bootstrap(len(numbers), resamples, seed)
    tables = []
    for against, values in others.items():
        other = by_question(values)
        low, high = bootstrap.interval(own - other)
        table = pd.DataFrame({"n": points, "low": low, "high": high}).assign(
            heads=round(np.mean([part.correct.shape[1] for part in parts])),
            against=against,
            sprint=own.mean(axis=0),
            other=other.mean(axis=0),
            difference=(own - other).mean(axis=0),
            p=p if against == SHUFFLED else np.nan,
        )
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _passes(
    first: Int[np.ndarray, "questions rankings"], max_n: int
) -> Float[np.ndarray, "questions max_n"]:
    """Return each question's Pass@1..max_n, a mean over rankings.

    Over all rankings of the same questions it is the exact expectation over permutations.
    """
    return np.stack([(first < n).mean(axis=1) for n in range(1, max_n + 1)], axis=1)


def _at_points(
    values: Float[np.ndarray, "questions max_n"], points: Sequence[str]
) -> Float[np.ndarray, "questions points"]:
    """Return the values at some N, and their mean over all N last."""
    chosen = [int(n) - 1 for n in points[:-1]]
    return np.column_stack([values[:, chosen], values.mean(axis=1)])


def _permutation_p(
    first: Sequence[Int[np.ndarray, "questions questions"]],
    points: Sequence[str],
    max_n: int,
    seed: int,
) -> Float[np.ndarray, " points"]:
    """Return the share of permutations of the questions that do at least as well, one-sided."""
    rows = [np.arange(len(each)) for each in first]
    observed = sum(
        _score(each[row, row][np.newaxis], points, max_n)
        for each, row in zip(first, rows, strict=True)
    )
    draw = np.random.default_rng(seed)
    beyond = np.zeros(len(points))
    for size in _blocks():
        score = np.zeros((size, len(points)))
        for each, row in zip(first, rows, strict=True):
            shuffled = draw.permuted(np.broadcast_to(row, (size, len(row))), axis=1)
            score += _score(each[row, shuffled], points, max_n)
        beyond += (score >= observed - 1e-9).sum(axis=0)
    return (1 + beyond) / (1 + _PERMUTATIONS)


def _score(
    places: Int[np.ndarray, "permutations questions"], points: Sequence[str], max_n: int
) -> Float[np.ndarray, "permutations points"]:
    """Return the number of questions passed at some N, and its mean over all N last."""
    columns = [(places < int(n)).sum(axis=1) for n in points[:-1]]
    # Σ over N = 1..max_n of 1[place < N] is max_n − place, at least 0.
    columns.append(np.maximum(max_n - places, 0).sum(axis=1) / max_n)
    return np.stack(columns, axis=1)


def _blocks() -> Iterator[int]:
    for start in range(0, _PERMUTATIONS, _BLOCK):
        yield min(_BLOCK, _PERMUTATIONS - start)
