"""Functions of N answers to a question: Pass@N, majority vote, distinct answers, agreement.

*Ordered*: a method ranks the answers and the first N count. *Drawn*: N of them are drawn at random
without replacement, and the result is the exact expectation over all draws. Applied to samples,
this is the unbiased Pass@k estimator of Chen et al. 2021 (arXiv 2107.03374, section 2.1); heads
drawn from a shortlist are treated alike.

Every function returns a row for each question and a column for each N = 1..max_n. Where N exceeds
the number of answers, all of them count: the row stays at its last value.

Equal answers to a question share a group label; ``-1`` marks an answer that could not be extracted.
It has no vote, is not counted as a distinct answer and agrees with no answer, not even with another
``-1``.
"""

from functools import lru_cache
from math import comb

import numpy as np
from jaxtyping import Bool, Float, Int

NO_ANSWER = -1
"""Label of an answer that could not be extracted."""

Right = Bool[np.ndarray, "questions answers"]
Groups = Int[np.ndarray, "questions answers"]
Values = Int[np.ndarray, "questions answers"] | Float[np.ndarray, "questions answers"]
PerN = Float[np.ndarray, "questions max_n"]


def largest_ordered(value: Right | Values, max_n: int) -> PerN:
    """Return the largest value, such as a length, of the first N answers."""
    return extend(np.maximum.accumulate(value, axis=1).astype(float), max_n)


def pass_at_n_ordered(correct: Right, max_n: int) -> PerN:
    """Return 1 where one of the first N answers is right, else 0."""
    return largest_ordered(correct, max_n)


def pass_at_n_drawn(correct: Right, max_n: int) -> PerN:
    """Return the probability that one of N drawn answers is right: 1 − C(n−c, N) / C(n, N)."""
    return 1.0 - miss_probability(correct.sum(axis=1), correct.shape[1], max_n)


def miss_probability(
    marked: Int[np.ndarray, "*shape"], total: int, max_n: int
) -> Float[np.ndarray, "*shape max_n"]:
    """Return the probability that N = 1..max_n draws without replacement hit no marked item.

    C(total−marked, N) / C(total, N), as a product of ratios of at most 1, which cannot overflow.
    """
    drawn = np.arange(min(max_n, total))
    left = np.maximum(total - marked[..., np.newaxis] - drawn, 0)
    return extend(np.cumprod(left / (total - drawn), axis=-1), max_n)


def extend(
    values: Float[np.ndarray, "*shape answers"], max_n: int
) -> Float[np.ndarray, "*shape max_n"]:
    """Cut the last axis to max_n columns, or repeat its last column up to max_n."""
    return np.take(values, np.minimum(np.arange(max_n), values.shape[-1] - 1), axis=-1)


def majority_ordered(group: Groups, correct: Right, max_n: int) -> PerN:
    """Return the accuracy of the answer with the most votes among the first N.

    Ties are broken uniformly at random among the leading groups, in expectation. Without any vote
    the majority is wrong.
    """
    same = same_answers(group[:, :max_n])
    columns = []
    for n in range(1, same.shape[1] + 1):
        votes = same[:, :n, :n].sum(axis=2)
        # Leading groups are of one size: a mean over their answers is one over the groups.
        leads = (votes == votes.max(axis=1, keepdims=True)) & (votes > 0)
        right = (leads & correct[:, :n]).sum(axis=1)
        columns.append(right / np.maximum(leads.sum(axis=1), 1))
    return extend(np.stack(columns, axis=1), max_n)


def majority_drawn(group: Groups, correct: Right, max_n: int) -> PerN:
    """Return the expected accuracy of the majority of N answers drawn without replacement.

    Ties are broken as in `majority_ordered`.
    """
    return np.stack([_majority_of_one(*row, max_n) for row in zip(group, correct, strict=True)])


def distinct_ordered(group: Groups, max_n: int) -> PerN:
    """Return the number of distinct answers among the first N."""
    earlier = np.tril(same_answers(group), k=-1).any(axis=2)
    new = ~earlier & (group != NO_ANSWER)
    return extend(new.cumsum(axis=1).astype(float), max_n)


def distinct_drawn(group: Groups, max_n: int) -> PerN:
    """Return the expected number of distinct answers among N drawn without replacement.

    Σ_g 1 − C(n−c_g, N) / C(n, N) over groups of c_g among n answers.
    """
    size = same_answers(group).sum(axis=2)  # size of each answer's group; 0 without an answer
    hit = 1.0 - miss_probability(size, group.shape[1], max_n)
    # Each of a group's c_g members counts 1/c_g.
    return (hit / np.maximum(size, 1)[..., np.newaxis]).sum(axis=1)


def agreement_ordered(group: Groups, max_n: int) -> PerN:
    """Return the share of pairs among the first N answers that agree; NaN at N = 1."""
    pairs = np.tril(same_answers(group), k=-1).sum(axis=2).cumsum(axis=1)
    n = np.arange(1, group.shape[1] + 1)
    possible = np.where(n > 1, n * (n - 1) / 2, np.nan)
    return extend(pairs / possible, max_n)


def agreement_drawn(group: Groups, max_n: int) -> PerN:
    """Return the share of agreeing pairs of all answers, as expected for any N; NaN at N = 1."""
    share = np.repeat(agreement_ordered(group, group.shape[1])[:, -1:], max_n, axis=1)
    share[:, 0] = np.nan
    return share


def largest_drawn(value: Values, max_n: int) -> PerN:
    """Return the expected largest value of N answers drawn without replacement.

    Of sorted values v_1 ≤ ... ≤ v_n, all draws are among the first k with probability
    C(k, N) / C(n, N).
    """
    count = value.shape[1]
    below = miss_probability(count - np.arange(1, count + 1), count, max_n)
    steps = np.diff(below, axis=0, prepend=np.zeros((1, max_n)))
    return np.sort(value, axis=1) @ steps


def same_answers(group: Groups) -> Bool[np.ndarray, "questions answers answers"]:
    """Return which answers are equal; a missing answer does not even equal itself."""
    answered = (group != NO_ANSWER)[:, :, np.newaxis]
    return (group[:, :, np.newaxis] == group[:, np.newaxis, :]) & answered


def _majority_of_one(
    group: Int[np.ndarray, " answers"], correct: Bool[np.ndarray, " answers"], max_n: int
) -> Float[np.ndarray, " max_n"]:
    answered = group != NO_ANSWER
    labels, member, sizes = np.unique(group[answered], return_inverse=True, return_counts=True)
    right = np.bincount(member, weights=correct[answered], minlength=len(labels)) / sizes
    silent = len(group) - int(answered.sum())
    accuracy = np.zeros(max_n)
    for index in np.flatnonzero(right):
        rivals = tuple(sorted(np.delete(sizes, index).tolist()))
        accuracy += right[index] * _winning_probability(int(sizes[index]), rivals, silent, max_n)
    return accuracy


@lru_cache(maxsize=4096)
def _winning_probability(
    size: int, rivals: tuple[int, ...], silent: int, max_n: int
) -> Float[np.ndarray, " max_n"]:
    """Return the probability that a group of `size` wins the vote of N drawn answers.

    A tie with r rivals counts 1/(r+1). For each number of votes v of the group, a generating
    function counts the draws of the others in which none has more votes: the coefficient of x^k y^r
    in Π_g (Σ_{j<v} C(c_g, j) x^j + C(c_g, v) x^v y) is the number of ways to draw k answers with
    r rivals at exactly v votes. All terms are positive, so there is no cancellation.
    """
    total = size + sum(rivals) + silent
    most = min(max_n, total)
    wins = np.zeros(most + 1)
    for votes in range(1, min(size, most) + 1):
        strong = [rival for rival in rivals if rival >= votes]
        free = silent + sum(rivals) - sum(strong)  # answers that can neither win nor tie
        ways = np.zeros((most - votes + 1, len(strong) + 1))
        ways[:, 0] = [comb(free, k) for k in range(len(ways))]
        for rival in strong:
            before = ways
            ways = np.zeros_like(ways)
            for j in range(min(votes, len(ways))):
                ways[j:] += comb(rival, j) * before[: len(ways) - j]
            if votes < len(ways):
                ways[votes:, 1:] += comb(rival, votes) * before[:-votes, :-1]
        wins[votes:] += comb(size, votes) * (ways / np.arange(1, len(strong) + 2)).sum(axis=1)
    draws = np.array([float(comb(total, k)) for k in range(1, most + 1)])
    return extend(wins[1:] / draws, max_n)


def loops(token_ids: Int[np.ndarray, " tokens"]) -> bool:
    """Return whether an answer ends in a loop: a phrase of whatever length, repeated.

    The last tokens are periodic for at least 4 periods and, as digits may repeat, 20 tokens.
    """
    backwards = token_ids[::-1]
    longest = len(token_ids) // 4
    like_the_last = np.flatnonzero(backwards[1 : longest + 1] == backwards[:1])
    for period in (1 + like_the_last).tolist():
        length = max(4 * period, 20)
        tail = token_ids[-length:]
        if len(tail) == length and np.array_equal(tail[period:], tail[:-period]):
            return True
    return False
