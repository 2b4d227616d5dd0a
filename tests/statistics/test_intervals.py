"""Intervals and tests, held against closed forms and against simulation of what they promise."""

import numpy as np
import pytest
from scipy import stats

from headsweep.statistics.intervals import (
    Bootstrap,
    SeedBootstrap,
    false_discovery,
    holm,
    mcnemar,
    paired_interval,
    ratio_of_sums,
    simultaneous,
    unpaired_difference,
    wilson,
)


def test_an_interval_that_ends_at_zero_ends_there_exactly():
    """Held against counts in whole numbers, which leave no residue."""
    at_zero = 0
    for seed in range(40):
        values = np.repeat([-1, 1, 0], [25, 14 + seed % 5, 61 - seed % 5])
        np.random.default_rng(seed).shuffle(values)
        counts = np.random.default_rng(seed).multinomial(100, np.full(100, 0.01), size=199)
        sums = np.sort(counts @ values)
        low, high = Bootstrap(100, 199, seed).interval(values.astype(float))
        # 198 gaps: the quantiles of 2.5% and 97.5% lie 4.95 gaps from the ends.
        exact = np.array([sums[[4, 5]] @ [5, 95], sums[[-6, -5]] @ [95, 5]]) / 10_000
        np.testing.assert_allclose([low, high], exact, atol=1e-11)
        assert (np.sign([low, high]) == np.sign(exact)).all()
        assert not np.signbit([low, high])[exact == 0].any()
        at_zero += int((exact == 0).any())
    assert at_zero > 3


@pytest.mark.parametrize(
    ("seeds", "of_seed"), [(1, 0.0), (2, 0.0), (3, 0.05), (3, 0.3), (5, 0.0), (5, 0.3)]
)
def test_intervals_over_seeds_hold_the_true_mean_about_as_often_as_promised(seeds, of_seed):
    draw = np.random.default_rng(seeds)
    sizes = ((seeds, 1, 600), (1, 61, 600), (seeds, 61, 600))
    spreads = (of_seed, 0.4, 0.5)  # of an effect of the seed, of the example, and by chance
    values = sum(draw.normal(0, *each) for each in zip(spreads, sizes, strict=True))
    low, high = SeedBootstrap(seeds, 61, 400, seed=1).interval(values)
    assert 0.92 < np.mean((low <= 0) & (high >= 0)) < 0.975
    if seeds == 1:  # it is the bootstrap over examples
        np.testing.assert_allclose((low, high), Bootstrap(61, 400, seed=1).interval(values[0]))


def of_counts(*pairs, questions=60):
    differences = np.zeros((questions, len(pairs)), np.int8)
    for head, (gained, lost) in enumerate(pairs):
        differences[:gained, head] = 1
        differences[gained : gained + lost, head] = -1
    return differences


def test_mcnemar_is_the_exact_binomial_test_and_a_family_of_them_is_adjusted_as_by_scipy():
    pairs = [(0, 0), (1, 0), (7, 2), (2, 7), (5, 5), (0, 9), (21, 13)]
    found = mcnemar(of_counts(*pairs))
    for p, (gained, lost) in zip(found, pairs, strict=True):
        exact = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
        assert p == pytest.approx(exact)
    assert false_discovery(found) == pytest.approx(stats.false_discovery_control(found))
    assert len(false_discovery(found[:0])) == 0


def test_holms_correction():
    np.testing.assert_allclose(holm(np.array([0.04, 0.01, 0.9, 0.02])), [0.08, 0.04, 0.9, 0.06])
    np.testing.assert_allclose(holm(np.array([0.6, 0.7])), [1.0, 1.0])


@pytest.mark.parametrize(
    ("gained", "lost", "n"), [(0, 0, 40), (3, 1, 500), (20, 9, 61), (1, 0, 3), (0, 3, 3)]
)
def test_the_formula_with_means_is_that_of_bonett_and_price_within_bounds(gained, lost, n):
    low, high = paired_interval(of_counts((gained, lost), questions=n))
    plus, minus = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    half = stats.norm.ppf(0.975) * np.sqrt((plus + minus - (plus - minus) ** 2) / (n + 2))
    ends = max(plus - minus - half, -1), min(plus - minus + half, 1)
    assert (low[0], high[0]) == pytest.approx(ends)


@pytest.mark.parametrize(
    ("questions", "discordant", "answers"),
    [(500, 0.008, 1), (500, 0.03, 3), (200, 0.05, 8), (200, 0.3, 8), (1319, 0.01, 1)],
)
def test_the_interval_is_wrong_in_at_most_six_of_a_hundred(questions, discordant, answers):
    draw = np.random.default_rng(questions)
    gain = 0.4 * discordant  # 70% of the discordant questions are gained
    shape = (questions, 4000)
    sign = np.where(draw.random(shape) < 0.7, 1.0, -1.0)
    size = np.mean([draw.random(shape) < discordant for _ in range(answers)], axis=0)
    low, high = paired_interval(sign * size)
    assert np.mean((gain < low) | (high < gain)) <= 0.06


def test_an_interval_covers_what_else_varies():
    """A true gain of 0.1 that turns with a draw known from a few redraws."""
    draw = np.random.default_rng(0)
    shifts = draw.normal(0, 0.03, size=(6, 2000))
    differences = draw.choice([1, 0, -1], p=[0.2, 0.7, 0.1], size=(300, 2000)) + shifts[0]
    known = shifts[1:].var(axis=0, ddof=1), 4
    of_both, blind = (
        np.mean((low > 0.1) | (high < 0.1))
        for low, high in (paired_interval(differences, given) for given in ([known], []))
    )
    assert of_both <= 0.06
    assert blind > 0.1


def test_wilson_is_that_of_scipy_and_the_difference_that_of_newcombe():
    n, correct = np.array([1, 7, 38, 124, 500, 61]), np.array([0, 7, 23, 1, 367, 60])
    found = np.transpose(wilson(correct, n))
    for ends, each in zip(found, zip(correct, n, strict=True), strict=True):
        exact = stats.binomtest(*each).proportion_ci(method="wilson")
        assert ends == pytest.approx([exact.low, exact.high], abs=1e-12)
    # Newcombe 1998, table II, contrast (a), method 10: 56/70 - 48/80.
    first, second = (
        wilson(np.array([right]), np.array([of])) for right, of in ((48, 80), (56, 70))
    )
    found = unpaired_difference(np.array([48 / 80]), first, np.array([56 / 70]), second)
    assert np.ravel(found) == pytest.approx([0.0524, 0.3339], abs=5e-5)


def test_the_band_holds_at_all_n_at_once_where_intervals_do_not():
    draw = np.random.default_rng(1)
    outside = {"interval": 0, "band": 0}
    for trial in range(120):
        differences = draw.choice([-1.0, 0.0, 1.0], p=[0.1, 0.8, 0.1], size=(250, 16))
        low, high = paired_interval(differences)
        ratio = simultaneous(differences, Bootstrap(250, 400, seed=trial))
        middle, half = (low + high) / 2, (high - low) / 2
        outside["interval"] += bool((np.abs(middle) > half).any())
        outside["band"] += bool((np.abs(middle) > ratio * half).any())
    assert outside["interval"] > 0.3 * 120
    assert outside["band"] < 0.09 * 120
    assert simultaneous(np.zeros((9, 4)), Bootstrap(9, 20, seed=0)) == 1.0


def test_a_ratio_of_sums_over_equal_denominators_is_a_mean_with_students_interval():
    values = np.random.default_rng(3).normal(2.0, 0.7, size=6)
    found = ratio_of_sums(4 * values, np.full(6, 4))
    low, high = stats.t.interval(0.95, 5, values.mean(), stats.sem(values))
    assert found == pytest.approx((values.mean(), low, high))
    with pytest.raises(ValueError, match="1 numbers have no interval"):
        ratio_of_sums(values[:1], np.array([4]))


@pytest.mark.parametrize("texts", [2, 3, 30])
def test_a_ratio_of_sums_is_covered_even_with_few_texts(texts):
    """Texts of 8 to 60 tokens with losses of 1.4 nats a token; resamples cover half with two."""
    draw = np.random.default_rng(texts)
    covered = 0
    for _ in range(1000):
        tokens = draw.integers(8, 61, size=texts)
        _, low, high = ratio_of_sums(tokens * draw.normal(1.4, 0.3, size=texts), tokens)
        covered += low <= 1.4 <= high
    assert covered > 900
