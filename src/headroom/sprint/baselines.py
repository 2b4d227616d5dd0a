"""Head selection without question embeddings, learned from the training questions' Z."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int

from headroom.config import Selector
from headroom.sprint import methods
from headroom.sprint.evaluation import Answers, Scores, drawn, ordered
from headroom.sprint.validation import splits
from headroom.statistics.pass_at_n import pass_at_n_drawn


def greedy_cover(correct: Bool[np.ndarray, "questions pool"]) -> Int[np.ndarray, " pool"]:
    """Order heads so that each next one solves the most questions that no earlier one solves.

    Ties, and everything once nothing is left to gain, go by the number of questions solved, then
    by the order of the pool. This is the greedy solution of maximum coverage, within 1 − 1/e of
    the best N heads (Nemhauser, Wolsey and Fisher 1978).
    """
    solved = correct.sum(axis=0)
    open_questions = np.ones(len(correct), dtype=bool)
    left = np.ones(correct.shape[1], dtype=bool)
    order = []
    while left.any():
        gain = np.where(left, correct[open_questions].sum(axis=0), -1)
        best = np.lexsort((-solved, -gain))[0]  # stable: the first of equals
        order.append(best)
        left[best] = False
        open_questions &= ~correct[:, best]
    return np.array(order)


def accuracy_order(correct: Bool[np.ndarray, "questions pool"]) -> Int[np.ndarray, " pool"]:
    """Order heads by the number of questions solved, then by the order of the pool."""
    return np.argsort(-correct.sum(axis=0), kind="stable")


CRITERIA: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "joint cover": greedy_cover,
    "individual accuracy": accuracy_order,
}
"""Readings of the paper's "greedy approach" to find "the heads that solve the most samples"."""


@dataclass(frozen=True)
class Shortlist:
    """The heads from which the random-heads baseline draws."""

    criterion: str
    k: int
    heads: tuple[int, ...]
    """Numbers in the pool."""


def shortlists(
    correct: Bool[np.ndarray, "questions pool"], sizes: tuple[int, ...]
) -> list[Shortlist]:
    """Return the first K heads of each criterion; K is cut to the pool's size."""
    cut = sorted({min(k, correct.shape[1]) for k in sizes})
    orders = {name: order(correct) for name, order in CRITERIA.items()}
    return [
        Shortlist(name, k, tuple(order[:k].tolist())) for name, order in orders.items() for k in cut
    ]


@dataclass(frozen=True)
class Learnt:
    """The baselines that learn from training questions, scored on the test questions."""

    shortlist: Shortlist
    sensitivity: pd.DataFrame
    """To the choice of the shortlist, see `choose_shortlist`."""
    best: int
    """Number in the pool of the best single head."""
    scores: dict[str, Scores]
    """By method."""


def learn(
    train: Bool[np.ndarray, "train pool"], answers: Answers, options: Selector, max_n: int
) -> Learnt:
    """Learn every baseline from the training questions' Z.

    Args:
        train: Z of the training questions.
        answers: of the pool to the test questions.
        options: of the selector.
        max_n: largest N.
    """
    shortlist, sensitivity = choose_shortlist(train, answers.correct, options)
    best = accuracy_order(train)[:1]
    scores = {
        methods.RANDOM: drawn(answers.select(np.array(shortlist.heads)), max_n),
        methods.COVER: ordered(answers.select(greedy_cover(train)), max_n),
        methods.SINGLE: ordered(answers.select(best), max_n),
    }
    return Learnt(shortlist, sensitivity, int(best[0]), scores)


def choose_shortlist(
    train: Bool[np.ndarray, "train pool"], test: Bool[np.ndarray, "test pool"], options: Selector
) -> tuple[Shortlist, pd.DataFrame]:
    """Choose criterion and K on held-out training questions, as SPRINT's setting is chosen.

    The expectation is exact: N heads drawn without replacement for each question, all K where N is
    larger.

    Returns:
        The shortlist, made again from all training questions, and the sensitivity to the choice:
        Pass@N of every criterion and K, held out and on the test questions. The latter is shown
        and takes no part in the choice.
    """
    max_n = min(options.max_n, train.shape[1])
    held_out = np.mean(
        [
            [
                _mean_pass(train[split.held_out], candidate, max_n)
                for candidate in shortlists(train[split.fit], options.shortlist)
            ]
            for split in splits(len(train), options.validation, options.seeds)
        ],
        axis=0,
    )
    candidates = shortlists(train, options.shortlist)
    chosen = candidates[int(held_out.mean(axis=1).argmax())]
    sensitivity = pd.DataFrame(
        {
            "criterion": candidate.criterion,
            "k": candidate.k,
            "n": n,
            "held_out": curve[n - 1],
            "test": on_test[n - 1],
            "chosen": candidate == chosen,
        }
        for candidate, curve in zip(candidates, held_out, strict=True)
        for on_test in [_mean_pass(test, candidate, max_n)]
        for n in range(1, max_n + 1)
    )
    return chosen, sensitivity


def _mean_pass(correct: np.ndarray, shortlist: Shortlist, max_n: int) -> np.ndarray:
    mean: np.ndarray = pass_at_n_drawn(correct[:, list(shortlist.heads)], max_n).mean(axis=0)
    return mean
