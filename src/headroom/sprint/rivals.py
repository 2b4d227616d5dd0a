"""Is contrastive learning needed? Simpler ways to rank heads by a question's embedding or subject.

Each learns from the same training questions and ranks the heads for each question asked:

- ``nearest questions``: by how many of the k training questions with the nearest embeddings a head
  solves.
- ``logistic regression``: by the chance that it solves the question, one regression a head.
- ``cover by subject``: the greedy cover of the training questions of the question's subject; there
  is no embedding in it.

Embedder, k and the regressions' penalty are chosen on held-out training questions, as SPRINT's
setting is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize
from scipy.special import expit

from headroom.config import Selector
from headroom.sprint.baselines import greedy_cover
from headroom.sprint.methods import BY_SUBJECT, NEAREST, REGRESSION
from headroom.sprint.validation import ranked_pass, splits

_NEIGHBOURS = (4, 8, 16, 32, 64)
_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)

Order = Int[np.ndarray, "asked pool"]


@dataclass(frozen=True)
class Questions:
    """Questions as the rivals know them."""

    embeddings: Mapping[str, Float[np.ndarray, "questions embedding_dim"]]
    """By embedder."""
    subjects: Sequence[str | None]

    def of(self, rows: Int[np.ndarray, " chosen"]) -> "Questions":
        """Return some of the questions, by row number."""
        embeddings = {name: vectors[rows] for name, vectors in self.embeddings.items()}
        return Questions(embeddings, [self.subjects[row] for row in rows])


Ranker = Callable[[Questions, Bool[np.ndarray, "questions pool"], Questions], Order]
"""Learns from questions and their Z; ranks the heads for others, best first."""


def rankers(
    known: Questions, correct: Bool[np.ndarray, "questions pool"], options: Selector
) -> dict[str, Ranker]:
    """Return the rivals by method, their settings chosen on held-out parts of training questions.

    Args:
        known: the training questions. Without subjects there is no ``cover by subject``.
        correct: their Z over the pool.
        options: of the selector: held-out share, seeds, largest N.
    """
    max_n = min(options.max_n, correct.shape[1])
    parts = splits(len(correct), options.validation, options.seeds)

    def best(candidates: Sequence[Ranker]) -> Ranker:
        def score(ranker: Ranker) -> float:
            curves = [
                ranked_pass(
                    correct[part.held_out],
                    ranker(known.of(part.fit), correct[part.fit], known.of(part.held_out)),
                    max_n,
                )
                for part in parts
            ]
            return float(np.mean(curves))

        return max(candidates, key=score)  # of equals the first

    found = {
        NEAREST: best([by_neighbours(*each) for each in product(known.embeddings, _NEIGHBOURS)]),
        REGRESSION: best([by_regression(*each) for each in product(known.embeddings, _PENALTIES)]),
    }
    if None not in known.subjects:
        found[BY_SUBJECT] = by_subject
    return found


def by_neighbours(embedder: str, k: int) -> Ranker:
    """Return the ranker by the k training questions of the largest cosine."""

    def ranker(
        known: Questions, correct: Bool[np.ndarray, "questions pool"], asked: Questions
    ) -> Order:
        fitted, others = _standardised(known, asked, embedder)
        fitted, others = (
            part / np.linalg.norm(part, axis=1, keepdims=True).clip(1e-12)
            for part in (fitted, others)
        )
        nearest = np.argsort(-others @ fitted.T, axis=1, kind="stable")[:, :k]
        return _ranked(correct[nearest].mean(axis=1), correct)

    return ranker


def by_regression(embedder: str, penalty: float) -> Ranker:
    """Return the ranker by logistic regressions, one a head, with an L2 penalty on the weights."""

    def ranker(
        known: Questions, correct: Bool[np.ndarray, "questions pool"], asked: Questions
    ) -> Order:
        fitted, others = _standardised(known, asked, embedder)
        shape = fitted.shape[1], correct.shape[1]

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            """Return the mean cross-entropy with the penalty, and its gradient."""
            weights, bias = flat[: -shape[1]].reshape(shape), flat[-shape[1] :]
            logits = fitted @ weights + bias
            wrong = (np.logaddexp(0, logits) - correct * logits).mean()
            slope = (expit(logits) - correct) / logits.size
            gradient = fitted.T @ slope + 2 * penalty / shape[1] * weights
            total = wrong + penalty / shape[1] * np.square(weights).sum()
            return float(total), np.append(gradient.ravel(), slope.sum(axis=0))

        start = np.zeros(shape[0] * shape[1] + shape[1])
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x
        scores = others @ found[: -shape[1]].reshape(shape) + found[-shape[1] :]
        return _ranked(scores, correct)

    return ranker


def by_subject(
    known: Questions, correct: Bool[np.ndarray, "questions pool"], asked: Questions
) -> Order:
    """Rank by the greedy cover of a subject's questions; of all where a subject is new."""
    names = np.array(known.subjects)
    covers = {name: greedy_cover(correct[names == name]) for name in set(known.subjects)}
    whole = greedy_cover(correct)
    return np.stack([covers.get(subject, whole) for subject in asked.subjects])


def _standardised(
    known: Questions, asked: Questions, embedder: str
) -> Iterator[Float[np.ndarray, "questions embedding_dim"]]:
    """Give every feature of an embedder mean 0 and deviation 1 over the known questions."""
    fitted = known.embeddings[embedder]
    centre, scale = fitted.mean(axis=0), fitted.std(axis=0)
    scale = np.where(scale <= 1e-6 * np.abs(fitted).max(axis=0), 1.0, scale)
    return ((part - centre) / scale for part in (fitted, asked.embeddings[embedder]))


def _ranked(
    scores: Float[np.ndarray, "asked pool"], correct: Bool[np.ndarray, "questions pool"]
) -> Order:
    """Sort heads by score; of equals the more accurate on training questions comes first."""
    accuracy = np.broadcast_to(correct.mean(axis=0), scores.shape)
    return np.lexsort((-accuracy, -scores), axis=1)
