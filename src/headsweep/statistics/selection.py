"""Is it more than noise? The gain of the best of many heads, and the spread between heads.

"Best head minus base" is a maximum of noisy numbers and positive even if pruning has no effect.
Its controls are functions of the paired differences d_ih = z_ih − z_i,base ∈ {−1, 0, 1}.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Real
from scipy.special import bdtr, chdtrc

from headsweep.statistics import SIGNIFICANCE
from headsweep.statistics.intervals import half_width

Differences = Real[np.ndarray, "questions heads"]
"""z_ih − z_i,base; of several samples a question, the difference of their means."""

RESAMPLES = 10_000
"""Sign patterns for each expectation and p-value by chance."""
SPLITS = 100
"""Random halves for each held-out gain."""
FEWEST = 4
"""Smallest number of questions to split into halves."""

_BLOCK = 1000  # resamples at once; bounds memory


class BestGain(NamedTuple):
    """The best head's gain and what selection alone would give, as fractions of the questions."""

    gain: float
    expected: float
    """Mean of the best gain under the null."""
    p: float


class HeldOutGain(NamedTuple):
    """The gain of the head chosen on one half of the questions, measured on the other."""

    gain: float
    low: float
    high: float
    chosen: Float[np.ndarray, " heads"]
    """How often each head was chosen; sums to 1."""


def surely_hurts(differences: Differences) -> Bool[np.ndarray, " heads"]:
    """Return which heads cannot be best by chance, because they lose significantly.

    One-sided exact binomial test of the changed questions at 5%, Bonferroni over heads.
    """
    gained, lost = (differences > 0).sum(axis=0), (differences < 0).sum(axis=0)
    return bdtr(gained, gained + lost, 0.5) < SIGNIFICANCE / differences.shape[1]


def best_gain(
    differences: Differences, candidates: Bool[np.ndarray, " heads"], resamples: int, seed: int
) -> BestGain:
    """Test the best head's gain against its null distribution, by joint sign flips.

    Under the null, a question is as likely gained as lost. All differences of a question flip
    together, which keeps the correlation between heads, above all from the base model's own luck.

    The p-value is that of the largest studentised gain, (gained − lost) / √(gained + lost), or of
    any differences their sum / √(sum of squares), over heads: without the denominator, the variance
    of heads that hurt would hide those that help. The expectation is that of the best plain gain of
    the candidates, NaN without any. Heads that clearly hurt should not be candidates: their losses,
    when flipped, look like large gains.
    """
    questions = len(differences)
    total = differences.sum(axis=0)
    squares = np.square(differences).sum(axis=0)
    scale = 1 / np.sqrt(np.where(squares > 0, squares, 1))
    observed = (total * scale).max()
    flipped = differences.astype(np.float32)  # sums of ±1 are exact in float32
    largest, studentised = [], []
    for signs in sign_patterns(resamples, questions, seed):
        sums = signs @ flipped
        studentised.append((sums * scale.astype(np.float32)).max(axis=1))
        largest.append(sums[:, candidates].max(axis=1, initial=-np.inf))
    best = np.concatenate(largest) / questions if candidates.any() else np.full(1, np.nan)
    beyond = np.concatenate(studentised) >= observed - 1e-5  # float32 against float64
    p = (1 + beyond.sum()) / (1 + resamples)
    return BestGain(float(total.max() / questions), float(best.mean()), float(p))


def against_placebos(
    heads: Differences, placebos: Differences, resamples: int, seed: int
) -> tuple[float, float]:
    """Return the best placebo's gain, and the p-value of the best head's lead over it.

    Under the null, heads and placebos are exchangeable on every question. The statistic is the best
    head's gain minus the best placebo's. Its null distribution comes from swapping heads and
    placebos on random questions, all variants of a question together, which keeps their
    correlation, above all from the question's fragility. Unlike in the test by sign flips, the
    average effect of any perturbation of that size does not count. There are as many placebos as
    heads.
    """
    # Half integers and their sums are exact in float32.
    shared = (heads.sum(axis=0) + placebos.sum(axis=0)).astype(np.float32) / 2
    apart = (heads - placebos).astype(np.float32) / 2
    varied = apart[apart.any(axis=1)]
    observed = heads.sum(axis=0).max() - placebos.sum(axis=0).max()
    beyond = 0
    for signs in sign_patterns(resamples, len(varied), seed):
        swapped = signs @ varied
        gap = (shared + swapped).max(axis=1) - (shared - swapped).max(axis=1)
        beyond += int((gap >= observed).sum())
    return float(placebos.mean(axis=0).max()), (1 + beyond) / (1 + resamples)


def held_out_gain(
    differences: Differences, strata: Int[np.ndarray, " questions"], splits: int, seed: int
) -> HeldOutGain:
    """Choose the best head on one half of the questions, and measure its gain on the other.

    The result is averaged over random splits and both directions; heads tied for best share the
    choice. The interval covers the true gain of the chosen heads, weighted by how often each was
    chosen.

    Its variance has two parts. The first is that of cross-validation (Bayle et al. 2020, arXiv
    2007.12671): the variance over questions of their mean held-out difference. The second is the
    covariance of the two directions, which that theory neglects because it vanishes where the
    choice is stable; here it is not. Let G_hk be the mean over halves of 1[h is chosen on a half] ×
    (gain of k on that half − gain of k on all). For independent halves the covariance is
    Σ_hk G_hk G_kh. Halves of one sample vary half as much, so this sum estimates half of it, which
    is its weight in the variance of a mean of two.

    `strata` are labels; halves differ by at most one question in each stratum. There are at least
    two questions.
    """
    questions, heads = differences.shape
    data = differences.astype(np.float32)
    overall = data.mean(axis=0)
    draw = np.random.default_rng(seed)
    held_out, measured = np.zeros(questions), np.zeros(questions)
    chosen = np.zeros(heads)
    follows = np.zeros((heads, heads))
    for half in _halves(strata, splits, draw):
        for train in (half, ~half):
            sums = train.astype(np.float32) @ data
            best = (sums == sums.max(axis=1, keepdims=True)).astype(np.float32)
            best /= best.sum(axis=1, keepdims=True)
            held_out += np.where(train, 0, best @ data.T).sum(axis=0)
            measured += (~train).sum(axis=0)
            chosen += ((~train).sum(axis=1) @ best) / questions
            follows += best.T @ (sums / train.sum(axis=1, keepdims=True) - overall)
    values = held_out / measured
    gain = float(values.mean())
    follows /= 2 * splits
    of_questions = values.var(ddof=1) / questions
    if np.ptp(values) == 0:  # nothing varied here, but a gained and a lost question might have come
        of_questions = 2 / (questions + 2) ** 2
    variance = of_questions + max(0.0, float((follows * follows.T).sum()))
    margin = float(half_width(np.sqrt(variance), questions - 1))
    low = max(gain - margin, -1.0)
    high = min(gain + margin, 1.0)
    return HeldOutGain(gain, low, high, chosen / splits)


def _halves(
    strata: Int[np.ndarray, " questions"], splits: int, draw: np.random.Generator
) -> Iterator[Bool[np.ndarray, "splits questions"]]:
    """Yield blocks of random halves, balanced within strata."""
    _, label = np.unique(strata, return_inverse=True)
    for start in range(0, splits, _BLOCK):
        count = min(_BLOCK, splits - start)
        order = np.argsort(label + draw.random((count, len(label))), axis=1)
        # Questions of a stratum go to the halves in turn, starting with a random one.
        place = np.arange(len(label)) + draw.integers(0, 2, (count, 1))
        half = np.empty(order.shape, dtype=bool)
        np.put_along_axis(half, order, place % 2 == 0, axis=1)
        yield half


def sign_patterns(
    resamples: int, questions: int, seed: int
) -> Iterator[Float[np.ndarray, "resamples questions"]]:
    """Yield blocks of fair signs, 1 or -1."""
    draw = np.random.default_rng(seed)
    for start in range(0, resamples, _BLOCK):
        yield fair_signs(draw, min(_BLOCK, resamples - start), questions)


def fair_signs(
    draw: np.random.Generator, resamples: int, questions: int
) -> Float[np.ndarray, "resamples questions"]:
    """Return fair signs, 1 or -1, in float32, where half integers and their sums are exact."""
    return draw.integers(0, 2, (resamples, questions), dtype=np.int8).astype(np.float32) * 2 - 1


class HeadVariance(NamedTuple):
    """The spread of accuracy between heads, as standard deviations of fractions."""

    spread: float
    """Observed between heads."""
    noise: float
    """Expected between heads of equal accuracy."""
    component: float
    """The rest: √max(0, spread² − noise²)."""
    p: float
    """Of Cochran's Q test: all heads have equal accuracy."""


def head_variance(z: Int[np.ndarray, "questions heads"]) -> HeadVariance:
    """Split the variance between heads into noise and a true component.

    In the two-way layout question × head without replication, the true component is the mean square
    between heads in excess of the residual mean square (Searle et al. 1992, chapter 4). All heads
    answer the same questions, so that the questions' difficulty does not count as noise. The test
    is Cochran's Q (1950), chi-squared with heads − 1 degrees of freedom. `z` holds 0 and 1, of at
    least two heads and two questions.
    """
    questions, heads = z.shape
    head, question = z.mean(axis=0), z.mean(axis=1)
    between = questions * np.sum((head - head.mean()) ** 2) / (heads - 1)
    total = np.sum((z - head - question[:, np.newaxis] + head.mean()) ** 2)
    residual = total / ((questions - 1) * (heads - 1))
    right = z.sum(axis=1)
    varied = np.sum(right * (heads - right))
    statistic = heads * (heads - 1) * questions**2 * np.sum((head - head.mean()) ** 2)
    spread, noise, component = (
        float(np.sqrt(max(0.0, square) / questions))
        for square in (between, residual, between - residual)
    )
    p = float(chdtrc(heads - 1, statistic / varied)) if varied else 1.0
    return HeadVariance(spread, noise, component, p)
