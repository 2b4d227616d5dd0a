"""What chance gives where only accuracies are known: contested questions.

Published tables hold the accuracy of each pruned head on groups of questions, not the outcome of
each question. The model here is the least that explains their spread: base and pruned models agree
on all questions but the contested ones, which each answers like a fair coin of its own. Heads then
differ by √m / 2 questions, m being the number of contested ones: chance is set by the spread.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

_SURELY = 3.5  # standard deviations of the independent binomial below the median head
_LEAST = 0.25  # variance of a count of right answers, where the median head has none or all right


@dataclass(frozen=True)
class Contested:
    """The spread between the heads of a layer, as shares of the independent binomial variance."""

    noise: float  # what is left as noise, at most 1
    spread: float  # all of it
    common: float  # what heads keep from one group of questions to the next: no noise
    ordinary: Bool[np.ndarray, " heads"]  # heads that do not surely hurt


def contested(
    accuracy: Float[np.ndarray, "heads groups"], sizes: Int[np.ndarray, " groups"]
) -> Contested:
    """Estimate what of the spread between the heads of a layer is noise.

    A head that surely hurts (3.5 binomial standard deviations below the median head over all
    groups) is left out. Groups have different questions, so that noise in one says nothing about
    another: what two groups say alike about a head, the mean product of its deviations, is no
    noise. What is left is noise, or an effect of that head on that group alone: the two cannot be
    told apart, and counting both as noise makes it an upper bound.

    Args:
        accuracy: NaN where it is not known; each group has a head at least.
        sizes: how many questions each group has.
    """
    middle = np.nanmedian(accuracy, axis=0)
    scale = np.sqrt(np.maximum(middle * (1 - middle) / sizes, _LEAST / sizes**2))
    known = ~np.isnan(accuracy)
    weight = known * scale * sizes
    below = np.nansum((accuracy - middle) * sizes, axis=1)
    ordinary = below > -_SURELY * np.sqrt(np.maximum((weight**2).sum(axis=1), 1e-12))
    known &= ordinary[:, np.newaxis]
    kept = np.where(known, accuracy, 0)
    count = known.sum(axis=0)
    deviation = np.where(known, kept - kept.sum(axis=0) / np.maximum(count, 1), 0) / scale
    freedom = np.maximum(count - 1, 0).sum()
    spread = float((deviation**2).sum() / freedom) if freedom else 0.0
    groups = known.sum(axis=1)
    pairs = (groups * (groups - 1)).sum()
    products = (deviation.sum(axis=1) ** 2 - (deviation**2).sum(axis=1)).sum()
    common = float(products / pairs) if pairs else 0.0
    return Contested(
        noise=float(np.clip(spread - max(common, 0.0), 0.0, 1.0)),
        spread=spread,
        common=common,
        ordinary=ordinary,
    )


def gains_by_chance(
    sizes: Int[np.ndarray, " pairs"],
    contested_questions: Float[np.ndarray, " pairs"],
    heads: Int[np.ndarray, " pairs"],
    groups: Int[np.ndarray, " pairs"],
    resamples: int,
    seed: int,
) -> tuple[Float[np.ndarray, "resamples pairs"], Float[np.ndarray, "resamples pairs"]]:
    """Simulate what the best and the mean head gain over base where pruning does nothing.

    Pairs of one group have the same questions and the same base model: of two layers, what is
    contested where less is contested is contested in the other as well, and the base model answers
    each question once.

    Args:
        sizes: questions of each (group, layer) pair.
        contested_questions: how many of them are contested; need not be whole.
        heads: how many heads are compared.
        groups: label of each pair's group of questions.
        resamples: how many times all pairs are simulated.
        seed: decides the draws.

    Returns:
        The gain of the best head, and that of the mean head.
    """
    draw = np.random.default_rng(seed)
    best, mean = np.zeros((2, resamples, len(sizes)))
    for group in np.unique(groups):
        fraction = draw.random(resamples)  # rounds numbers of questions up or down
        base, tossed = np.zeros((2, resamples), dtype=np.int64)
        members = np.flatnonzero(groups == group)
        for pair in members[np.argsort(contested_questions[members], kind="stable")]:
            number = np.floor(contested_questions[pair] + fraction).astype(np.int64)
            base += draw.binomial(number - tossed, 0.5)
            tossed = number
            shape = (heads[pair], resamples)
            right = draw.binomial(np.broadcast_to(number, shape), 0.5)
            best[:, pair] = (right.max(axis=0) - base) / sizes[pair]
            mean[:, pair] = (right.mean(axis=0) - base) / sizes[pair]
    return best, mean
