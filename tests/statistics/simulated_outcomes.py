"""Accuracy matrices with known effects: what the controls are held against."""

import numpy as np


def outcomes(
    questions: int, effects: list[float], seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Z (base first), paired differences, and the true gain of each head.

    Most questions are settled, the rest are contested: base and heads answer each with the same
    chance. A head of effect e > 0 also solves a share e of everything it would have missed, one of
    effect e < 0 misses a share −e of what it would have solved.
    """
    draw = np.random.default_rng(seed)
    contested = draw.random(questions) < 0.3
    chance = np.where(contested, draw.beta(2, 1, questions), draw.random(questions) < 0.6)
    z = draw.random((questions, len(effects) + 1)) < chance[:, np.newaxis]
    turned = draw.random((questions, len(effects))) < np.abs(effects)
    helps = np.array(effects) > 0
    z[:, 1:] = np.where(turned, helps, z[:, 1:])
    gain = np.where(helps, (1 - chance.mean()), chance.mean()) * np.array(effects)
    z = z.astype(np.int8)
    return z, z[:, 1:] - z[:, :1], gain
