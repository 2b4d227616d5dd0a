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


class Training(NamedTuple):
    """What methods that learn are trained on again, to see how much hangs on it."""

    name: str
    fit: Int[np.ndarray, " fit"]
    """Numbers of training questions."""
    held_out: Int[np.ndarray, " held_out"] | None
    """What is ranked: other training questions by number; None stands for the test questions."""


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


def trainings(questions: int, options: Selector) -> list[Training]:
    """Return what all is learnt from: all training questions, subsamples, and all but each fold.

    Subsamples are drawn without replacement; results on them tell how much hangs on the draw (see
    `headroom.sprint.evaluation.components`). Folds are disjoint, each question is in one.

    Args:
        questions: how many training questions there are.
        options: number of redraws, share held out, and the seed by which folds are dealt.

    Raises:
        ConfigError: there are fewer than two questions.
    """
    size = max(1, round(questions * REDRAWN))
    found = [Training(ALL, np.arange(questions), None)]
    for number in range(options.redraws):
        draw = np.random.default_rng([number, questions])
        rows = np.sort(draw.choice(questions, size, replace=False))
        found.append(Training(f"redraw {number}", rows, None))
    count = min(max(2, round(1 / options.validation)), questions)
    order = _shuffled(questions, options.seeds[0])
    for number in range(count):
        fold = np.sort(order[number::count])
        found.append(Training(f"without fold {number}", np.setdiff1d(order, fold), fold))
    return found


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
