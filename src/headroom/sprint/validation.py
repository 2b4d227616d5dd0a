"""Choices made on training questions: which part is held out, and what is compared on it.

The score of a choice is its Pass@N on the held-out part, averaged over N = 1..max_n and over
splits. That average is the area under the curve; where large N saturates, every choice gains the
same there, and small N decide.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from headroom.errors import ConfigError
from headroom.statistics.pass_at_n import pass_at_n_ordered


@dataclass(frozen=True)
class Split:
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
    if questions < 2:
        raise ConfigError(f"{questions} training questions cannot be split; use at least 2")
    held_out = min(max(1, round(questions * validation)), questions - 1)
    drawn = [np.random.default_rng(seed).permutation(questions) for seed in seeds]
    return [
        Split(seed, fit=np.sort(order[held_out:]), held_out=np.sort(order[:held_out]))
        for seed, order in zip(seeds, drawn, strict=True)
    ]


def ranked_pass(
    correct: Bool[np.ndarray, "questions pool"],
    order: Int[np.ndarray, "questions pool"],
    max_n: int,
) -> Float[np.ndarray, " max_n"]:
    """Return Pass@1..max_n, a mean over questions, of heads taken in each question's order."""
    ranked = np.take_along_axis(correct, order, axis=1)
    return pass_at_n_ordered(ranked, max_n).mean(axis=0)
