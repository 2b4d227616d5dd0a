"""Parts of the training questions: held out to choose on, folds, redraws; what is compared there.

The score of a choice is its Pass@N on the held-out part, averaged over N = 1..max_n and over
splits. That average is the area under the curve; where large N saturates, every choice gains the
same there, and small N decide.
"""

from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from headroom.config import Selector
from headroom.config.experiments import Geometry
from headroom.errors import ConfigError
from headroom.statistics.answers import pass_at_n_ordered

ALL = "all"
"""Names a training on all training questions."""

REDRAWN = 2 / 3
"""Share of the training questions in each redraw."""


def drawn(number: int) -> str:
    """Return the name of a training on a redraw of the training questions."""
    return f"redraw {number}"


def without(number: int) -> str:
    """Return the name of a training on all but a fold of the training questions."""
    return f"without fold {number}"


def readings(options: Selector) -> dict[str, tuple[Geometry, float]]:
    """Return geometry and λ of every reading of the loss that a config asks for.

    By the name of a training on all questions with that reading.
    """
    pairs = product(options.geometry, options.diversity)
    return {f"{geometry}, λ = {value:g}": (geometry, value) for geometry, value in pairs}


class Split(NamedTuple):
    """Training questions, by row number, in two parts."""

    seed: int
    fit: Int[np.ndarray, " fit"]
    held_out: Int[np.ndarray, " held_out"]


def splits(questions: int, validation: float, seeds: tuple[int, ...]) -> list[Split]:
    """Return one random split for each seed.

    Args:
        questions: how many training questions there are.
        validation: the share held out; at least one question is, and at least one is not.
        seeds: one a split.

    Raises:
        ConfigError: there are fewer than two questions.
    """
    held_out = min(max(1, round(questions * validation)), questions - 1)
    return [
        Split(seed, np.sort(order[held_out:]), np.sort(order[:held_out]))
        for seed in seeds
        for order in [_shuffled(questions, seed)]
    ]


def folds(questions: int, validation: float, seed: int) -> list[Split]:
    """Return splits whose held-out parts are disjoint, each question in one.

    Args:
        questions: how many training questions there are.
        validation: the share held out by a split, about.
        seed: decides the order in which questions are dealt.

    Raises:
        ConfigError: there are fewer than two questions.
    """
    count = min(max(2, round(1 / validation)), questions)
    order = _shuffled(questions, seed)
    parts = [np.sort(order[number::count]) for number in range(count)]
    return [Split(seed, np.setdiff1d(order, part), part) for part in parts]


def redraws(questions: int, count: int) -> list[Int[np.ndarray, " drawn"]]:
    """Return subsamples of the training questions, by row number, drawn without replacement.

    Results on them tell how much hangs on the draw (see `headroom.sprint.evaluation.components`).
    """
    size = max(1, round(questions * REDRAWN))
    return [
        np.sort(np.random.default_rng([draw, questions]).choice(questions, size, replace=False))
        for draw in range(count)
    ]


def trainings(questions: int, count: int) -> dict[str, Int[np.ndarray, " drawn"]]:
    """Return the rows that all is learnt from, by name: all of them, then each redraw."""
    parts = {drawn(number): rows for number, rows in enumerate(redraws(questions, count))}
    return {ALL: np.arange(questions)} | parts


def ranked_pass(
    correct: Bool[np.ndarray, "questions pool"],
    order: Int[np.ndarray, "questions pool"],
    max_n: int,
) -> Float[np.ndarray, " max_n"]:
    """Return Pass@1..max_n, a mean over questions, of heads taken in each question's order."""
    ranked = np.take_along_axis(correct, order, axis=1)
    return pass_at_n_ordered(ranked, max_n).mean(axis=0)


def _shuffled(questions: int, seed: int) -> Int[np.ndarray, " questions"]:
    if questions < 2:
        raise ConfigError(f"{questions} training questions cannot be split; use at least 2")
    return np.random.default_rng(seed).permutation(questions)
