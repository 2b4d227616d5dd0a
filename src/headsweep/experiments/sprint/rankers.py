"""Head selection without contrastive learning, from the training questions' Z.

Three methods take the same heads for every question: the greedy cover, the most accurate head, and
a shortlist to draw from. Three rank the heads for each question, in simpler ways than SPRINT:

- ``nearest questions``: by how many of the k training questions with the nearest embeddings a head
  solves.
- ``logistic regression``: by the probability that a head solves the question, from one regression
  for each head.
- ``cover by subject``: the greedy cover of the training questions of the same subject; it uses no
  embedding.

The shortlist's criterion and K, the embedder, k and the regressions' penalty are chosen on held-out
training questions, as SPRINT's setting is.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize
from scipy.special import expit

from headsweep.config import Selector
from headsweep.experiments.sprint.methods import BY_SUBJECT, NEAREST, REGRESSION
from headsweep.experiments.sprint.validation import Order, Rows, Z, ranked_pass, splits
from headsweep.statistics.answers import pass_at_n_drawn

_NEIGHBOURS = (4, 8, 16, 32, 64)
_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)


def greedy_cover(correct: Z) -> Int[np.ndarray, " pool"]:
    """Order heads so that each solves the most questions that no earlier one solves.

    Ties, and heads that add nothing, are ordered by the number of questions solved, then by the
    order of the pool. This is the greedy solution of maximum coverage: N heads cover at least
    1 − 1/e of what the best N cover (Nemhauser, Wolsey and Fisher 1978).
    """
    solved = correct.sum(axis=0)
    unsolved = np.ones(len(correct), dtype=bool)
    left = np.ones(correct.shape[1], dtype=bool)
    order = []
    while left.any():
        gain = np.where(left, correct[unsolved].sum(axis=0), -1)
        best = np.lexsort((-solved, -gain))[0]  # stable: ties go to the first
        order.append(best)
        left[best] = False
        unsolved &= ~correct[:, best]
    return np.array(order)


def accuracy_order(correct: Z) -> Int[np.ndarray, " pool"]:
    """Order heads by the number of questions solved, then by the order of the pool."""
    return np.argsort(-correct.sum(axis=0), kind="stable")


CRITERIA: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "joint cover": greedy_cover,
    "individual accuracy": accuracy_order,
}
"""Readings of the paper's "greedy approach" to find "the heads that solve the most samples"."""


class Shortlist(NamedTuple):
    """The heads that random ones are drawn from: the first K by a criterion."""

    criterion: str
    k: int


def shortlists(train: Z, options: Selector) -> dict[Shortlist, Int[np.ndarray, " heads"]]:
    """Return the first K heads, at most the pool's size, by each of `CRITERIA`."""
    pool = train.shape[1]
    sizes = sorted({min(k, pool) for k in options.shortlist})
    heads = {}
    for name, order in CRITERIA.items():
        ordered = order(train)
        for k in sizes:
            heads[Shortlist(name, k)] = ordered[:k]
    return heads


def weigh_shortlists(
    train: Z, options: Selector
) -> tuple[Shortlist, dict[Shortlist, Float[np.ndarray, " max_n"]]]:
    """Choose from which heads the random-heads baseline draws, as SPRINT's setting is chosen.

    Pass@N is the exact expectation where each question draws N of the heads without replacement; it
    stays at its last value where N exceeds their number.

    Returns:
        The shortlist that is best on held-out training questions; and Pass@N of each there.
    """
    max_n = min(options.max_n, train.shape[1])
    of_splits = defaultdict[Shortlist, list[Float[np.ndarray, " max_n"]]](list)
    for fit_rows, test_rows in splits(len(train), options):
        for shortlist, heads in shortlists(train[fit_rows], options).items():
            passed = pass_at_n_drawn(train[test_rows][:, heads], max_n)
            of_splits[shortlist].append(passed.mean(axis=0))
    held_out = {shortlist: np.mean(curves, axis=0) for shortlist, curves in of_splits.items()}
    # `max` takes the first of equals.
    return max(held_out, key=lambda shortlist: float(held_out[shortlist].mean())), held_out


class EmbeddedQuestions(NamedTuple):
    """What rankers use of some questions."""

    ids: Sequence[str]
    embeddings: Mapping[str, Float[np.ndarray, "questions embedding_dim"]]
    """By embedder."""
    subjects: Sequence[str | None]

    def of(self, rows: Rows) -> "EmbeddedQuestions":
        """Return the questions with these row numbers."""
        return EmbeddedQuestions(
            [self.ids[row] for row in rows],
            {name: vectors[rows] for name, vectors in self.embeddings.items()},
            [self.subjects[row] for row in rows],
        )


Ranker = Callable[[EmbeddedQuestions, Z, EmbeddedQuestions], Order]
"""Takes training questions with their Z, and test questions; ranks the heads for the latter, best
first."""


def rankers(train: EmbeddedQuestions, correct: Z, options: Selector) -> dict[str, Ranker]:
    """Return rankers by method, with settings chosen on held-out training questions.

    ``cover by subject`` is left out if the subject of a training question is missing.
    """
    max_n = min(options.max_n, correct.shape[1])

    def score(ranker: Ranker) -> float:
        curves = []
        for fit_rows, test_rows in splits(len(correct), options):
            order = ranker(train.of(fit_rows), correct[fit_rows], train.of(test_rows))
            curves.append(ranked_pass(correct[test_rows], order, max_n))
        return float(np.mean(curves))

    kinds: dict[str, list[Ranker]] = {
        NEAREST: [
            partial(by_neighbours, embedder, k)
            for embedder, k in product(train.embeddings, _NEIGHBOURS)
        ],
        REGRESSION: [
            partial(by_regression, embedder, penalty)
            for embedder, penalty in product(train.embeddings, _PENALTIES)
        ],
    }
    # `max` takes the first of equals.
    best = {method: max(tried, key=score) for method, tried in kinds.items()}
    return best if None in train.subjects else best | {BY_SUBJECT: by_subject}


def by_neighbours(
    embedder: str, k: int, train: EmbeddedQuestions, correct: Z, test: EmbeddedQuestions
) -> Order:
    """Rank by the k training questions of the largest cosine similarity."""
    fitted, others = (
        part / np.linalg.norm(part, axis=1, keepdims=True).clip(1e-12)
        for part in _standardised(train, test, embedder)
    )
    nearest = np.argsort(-others @ fitted.T, axis=1, kind="stable")[:, :k]
    return _ranked(correct[nearest].mean(axis=1), correct)


def by_regression(
    embedder: str, penalty: float, train: EmbeddedQuestions, correct: Z, test: EmbeddedQuestions
) -> Order:
    """Rank by one logistic regression for each head, with an L2 penalty on the weights."""
    fitted, others = _standardised(train, test, embedder)
    width, pool = fitted.shape[1], correct.shape[1]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the mean cross-entropy with the penalty, and its gradient."""
        weights = flat[:-pool].reshape(width, pool)
        bias = flat[-pool:]
        logits = fitted @ weights + bias
        wrong = (np.logaddexp(0, logits) - correct * logits).mean()
        slope = (expit(logits) - correct) / logits.size
        gradient = fitted.T @ slope + 2 * penalty / pool * weights
        total = wrong + penalty / pool * np.square(weights).sum()
        return float(total), np.append(gradient.ravel(), slope.sum(axis=0))

    start = np.zeros(width * pool + pool)
    solution = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x
    return _ranked(others @ solution[:-pool].reshape(width, pool) + solution[-pool:], correct)


def by_subject(train: EmbeddedQuestions, correct: Z, test: EmbeddedQuestions) -> Order:
    """Rank by the greedy cover of the subject's questions, or of all if the subject is new."""
    names = np.array(train.subjects)
    covers = {name: greedy_cover(correct[names == name]) for name in set(train.subjects)}
    whole = greedy_cover(correct)
    return np.stack([covers.get(subject, whole) for subject in test.subjects])


def _standardised(
    train: EmbeddedQuestions, test: EmbeddedQuestions, embedder: str
) -> list[np.ndarray]:
    """Scale every feature to mean 0 and standard deviation 1 over the training questions."""
    fitted = train.embeddings[embedder]
    centre, scale = fitted.mean(axis=0), fitted.std(axis=0)
    scale = np.where(scale <= 1e-6 * np.abs(fitted).max(axis=0), 1.0, scale)
    return [(part - centre) / scale for part in (fitted, test.embeddings[embedder])]


def _ranked(scores: Float[np.ndarray, "test pool"], correct: Z) -> Order:
    """Sort heads by score; ties go to the head more accurate on training questions."""
    accuracy = np.broadcast_to(correct.mean(axis=0), scores.shape)
    return np.lexsort((-accuracy, -scores), axis=1)
