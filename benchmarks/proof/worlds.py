"""Outcomes of simulated models: heads that know a subject, heads that only toss coins.

The base model has half of the questions right, drawn at random, so that a flipped outcome is as
likely gained as lost. Outcomes are booleans [questions, 1 + heads], the base model's first.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool

Outcomes = Bool[np.ndarray, "questions variants"]

FLIPPED = 0.1
"""Share of the base model's outcomes that each head turns over by chance."""


def coins(draw: np.random.Generator, questions: int, heads: int, flipped: float) -> Outcomes:
    """Return heads that are the base model, with some of its outcomes flipped at random."""
    base = draw.permutation(np.arange(questions) % 2 == 0)[:, None]
    flips = draw.random((questions, heads)) < flipped
    return np.hstack([base, base ^ flips])


def experts(
    draw: np.random.Generator, subjects: Sequence[str], heads: int, knows: Mapping[str, int]
) -> Outcomes:
    """Return coins, but for one head a subject that has every question of it right.

    `subjects` are those of the questions; `knows` has, for each subject, the number of its head.
    """
    outcomes = coins(draw, len(subjects), heads, FLIPPED)
    for subject, head in knows.items():
        outcomes[np.array(subjects) == subject, 1 + head] = True
    return outcomes
