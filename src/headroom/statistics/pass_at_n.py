"""Pass@N: the chance that at least one of N answers to a question is right.

Answers to a question come in one of two ways. *Ordered*: a method ranks them and the first N count.
*Drawn*: N of them are drawn at random without replacement, and the expectation over all draws is
exact. The unbiased Pass@k estimator of Chen et al. 2021 (arXiv 2107.03374, section 2.1) is the
second way applied to samples; heads drawn from a shortlist are the same sum.

Every function returns one row a question and one column for each N = 1..max_n, so that means and
intervals over questions are taken in one place (`headroom.statistics.bootstrap`). Where there are
fewer answers than N, all of them count: the row stays at its last value.
"""

import numpy as np
from jaxtyping import Bool, Float, Int


def pass_at_n_ordered(
    correct: Bool[np.ndarray, "questions answers"], max_n: int
) -> Float[np.ndarray, "questions max_n"]:
    """Return 1 where one of the first N answers is right, else 0."""
    return extend(np.maximum.accumulate(correct, axis=1).astype(float), max_n)


def pass_at_n_drawn(
    correct: Bool[np.ndarray, "questions answers"], max_n: int
) -> Float[np.ndarray, "questions max_n"]:
    """Return the probability that one of N answers, drawn without replacement, is right.

    1 − C(n−c, N) / C(n, N) for c right answers among n.
    """
    return 1.0 - miss_probability(correct.sum(axis=1), correct.shape[1], max_n)


def miss_probability(
    marked: Int[np.ndarray, "*shape"], total: int, max_n: int
) -> Float[np.ndarray, "*shape max_n"]:
    """Return the probability that N = 1..max_n draws without replacement hit no marked item.

    C(total−marked, N) / C(total, N), as a product of ratios of at most 1: no large number arises.
    """
    drawn = np.arange(min(max_n, total))
    left = np.maximum(total - marked[..., np.newaxis] - drawn, 0)
    return extend(np.cumprod(left / (total - drawn), axis=-1), max_n)


def extend(
    values: Float[np.ndarray, "*shape answers"], max_n: int
) -> Float[np.ndarray, "*shape max_n"]:
    """Cut the last axis to max_n columns, or repeat its last column up to max_n."""
    missing = max(0, max_n - values.shape[-1])
    return np.concatenate(
        [values[..., :max_n], np.repeat(values[..., -1:], missing, axis=-1)], axis=-1
    )
