"""What luck makes of published tables, which lack the outcome of each question.

They give the accuracy of each pruned head on groups of questions. The simplest model of chance that
explains their spread has contested questions: base and pruned models agree on all others, and each
answers a contested question right with probability 1/2, independently. With m contested questions
the standard deviation between heads is √m / 2 questions, so the observed spread gives m.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

_LEAST = 0.25  # smallest variance of a count, for median heads with none or all right
_RUINOUS = 3.5  # binomial standard deviations below the median head


def noise_share(
    accuracy: Float[np.ndarray, "heads groups"], sizes: Int[np.ndarray, " groups"]
) -> tuple[float, Bool[np.ndarray, " heads"]]:
    """Estimate how much of the spread between the heads of a layer is noise.

    Heads that clearly hurt (3.5 binomial standard deviations below the median head over all groups)
    are left out. Groups have different questions, so their noise is independent: the mean product
    of a head's deviations in two groups is not noise. The rest is noise or an effect of a head on
    one group alone. These cannot be told apart; both count as noise, which is thus an upper bound.

    `accuracy` is NaN where unknown; each group, of `sizes` questions, has at least one head.

    Returns:
        The noise, as a share of the independent binomial variance, and which heads were kept.
    """
    median_head = np.nanmedian(accuracy, axis=0)
    variance = np.maximum(median_head * (1 - median_head) / sizes, _LEAST / sizes**2)
    binomial = np.sqrt(variance)
    kept = ~_ruinous((accuracy - median_head) * sizes, binomial * sizes)
    counted = ~np.isnan(accuracy) & kept[:, np.newaxis]
    heads_of_group = counted.sum(axis=0)
    groups_of_head = counted.sum(axis=1)
    means = np.where(counted, accuracy, 0).sum(axis=0) / np.maximum(heads_of_group, 1)
    deviation = np.where(counted, accuracy - means, 0) / binomial
    freedom = np.maximum(heads_of_group - 1, 0).sum()
    spread = (deviation**2).sum() / max(freedom, 1)
    # The sum of a head's products in two groups is the square of its sum, without the squares.
    products = (deviation.sum(axis=1) ** 2 - (deviation**2).sum(axis=1)).sum()
    pairs_of_groups = (groups_of_head * (groups_of_head - 1)).sum()
    effects = products / max(pairs_of_groups, 1)
    return float(np.clip(spread - max(effects, 0.0), 0.0, 1.0)), kept


def _ruinous(
    leads: Float[np.ndarray, "heads groups"], binomial: Float[np.ndarray, " groups"]
) -> Bool[np.ndarray, " heads"]:
    """Return which heads clearly hurt, by their leads over the median head, in questions."""
    known = ~np.isnan(leads)
    deviation = np.sqrt(np.maximum(((known * binomial) ** 2).sum(axis=1), 1e-12))
    return np.nansum(leads, axis=1) <= -_RUINOUS * deviation


def gains_by_chance(
    pairs: pd.DataFrame, resamples: int, seed: int
) -> Float[np.ndarray, "resamples pairs"]:
    """Simulate the gain of the best head over base if pruning has no effect.

    Arguments are those of `heads_by_chance`.
    """
    best = np.zeros((resamples, len(pairs)))
    for pair, gains in heads_by_chance(pairs, resamples, seed):
        best[:, pair] = gains.max(axis=0)
    return best


def heads_by_chance(
    pairs: pd.DataFrame, resamples: int, seed: int
) -> Iterator[tuple[int, Float[np.ndarray, "heads resamples"]]]:
    """Simulate the gains of all heads over base if pruning has no effect, pair by pair.

    Pairs of one subject share questions and base model: the contested questions of the layer with
    fewer are also contested in the other layers, and the base model answers each question once.

    Args:
        pairs: a row for each ``subject`` and layer: ``n`` questions, of which a number, not
            necessarily whole, is ``contested``, and so many ``ordinary`` heads.
        resamples: how often the gains are drawn.
        seed: of the draws.

    Yields:
        The place of a pair's row, and its gains.
    """
    draw = np.random.default_rng(seed)
    for _, of_subject in pairs.reset_index(drop=True).groupby("subject", sort=False):
        fraction = draw.random(resamples)  # for random rounding of numbers of questions
        answered = np.zeros(resamples, dtype=np.int64)  # contested questions, by the base model
        right_of_base = np.zeros(resamples, dtype=np.int64)
        layers = of_subject.sort_values("contested", kind="stable")
        columns = (layers[name] for name in ("n", "contested", "ordinary"))
        for place, n, expected, heads in zip(layers.index, *columns, strict=True):
            contested = np.floor(expected + fraction).astype(np.int64)
            # Those of the layers before are among them: the base model answers only the others.
            right_of_base += draw.binomial(contested - answered, 0.5)
            answered = contested
            right = draw.binomial(np.broadcast_to(contested, (heads, resamples)), 0.5)
            yield int(place), (right - right_of_base) / n
