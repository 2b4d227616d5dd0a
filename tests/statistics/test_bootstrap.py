import numpy as np
import pytest

from headroom.statistics.bootstrap import Bootstrap, SeedBootstrap


def test_intervals_hold_the_true_mean_about_as_often_as_promised() -> None:
    draw = np.random.default_rng(3)
    accuracy, questions, experiments = 0.7, 120, 1500
    values = (draw.random((questions, experiments)) < accuracy).astype(float)
    low, high = Bootstrap(questions, resamples=600, seed=4).interval(values)
    coverage = np.mean((low <= accuracy) & (accuracy <= high))
    assert 0.92 < coverage < 0.97  # 0.95, less what 120 zeros and ones cost; 4 sigma is 0.02


def test_an_interval_that_ends_at_zero_ends_there_exactly() -> None:
    """Held against counts in whole numbers, which leave no residue."""
    questions, resamples, at_zero = 100, 199, 0
    for seed in range(40):
        draw = np.random.default_rng(seed)
        bootstrap = Bootstrap(questions, resamples, seed)
        values = np.repeat([-1.0, 1.0, 0.0], [25, 14 + seed % 5, 61 - seed % 5])
        draw.shuffle(values)
        chances = np.full(questions, 1 / questions)
        counts = np.random.default_rng(seed).multinomial(questions, chances, size=resamples)
        sums = np.sort(counts @ values.astype(int))
        low, high = bootstrap.interval(values)
        # 198 gaps: the quantiles of 2.5% and 97.5% lie 4.95 gaps from the ends.
        exact = np.array([sums[[4, 5]] @ [5, 95], sums[[-6, -5]] @ [95, 5]]) / 10_000
        np.testing.assert_allclose([low, high], exact, atol=1e-11)
        assert (np.sign([low, high]) == np.sign(exact)).all()
        assert not np.signbit([low, high])[exact == 0].any()
        at_zero += int((exact == 0).any())
    assert at_zero > 3


def crossed(draw, seeds, examples, experiments, of_seed, of_example, chance):
    """Draw outcomes whose true mean is 0, [seeds, examples, experiments]."""
    return (
        of_seed * draw.normal(size=(seeds, 1, experiments))
        + of_example * draw.normal(size=(1, examples, experiments))
        + chance * draw.normal(size=(seeds, examples, experiments))
    )


def coverage(values, seed):
    low, high = SeedBootstrap(*values.shape[:2], resamples=400, seed=seed).interval(values)
    return np.mean((low <= 0) & (high >= 0))


@pytest.mark.parametrize(("seeds", "of_seed"), [(2, 0.0), (3, 0.05), (3, 0.3), (5, 0.0), (5, 0.3)])
def test_intervals_over_seeds_hold_the_true_mean_about_as_often_as_promised(seeds, of_seed):
    values = crossed(np.random.default_rng(seeds), seeds, 61, 600, of_seed, 0.4, 0.5)
    assert 0.92 < coverage(values, seed=1) < 0.975


def test_seeds_that_differ_widen_the_interval_as_a_random_effect_does():
    values = crossed(np.random.default_rng(4), 12, 83, 200, 0.5, 0.4, 0.5)
    low, high = SeedBootstrap(12, 83, 1000, seed=5).interval(values)
    student, normal = 2.201, 1.960  # quantiles, 11 degrees of freedom
    wanted = 2 * np.hypot(student * 0.5 / 12**0.5, normal * np.sqrt(0.16 / 83 + 0.25 / (12 * 83)))
    assert (high - low).mean() == pytest.approx(wanted, rel=0.05)


def test_one_seed_is_the_bootstrap_over_examples():
    values = np.random.default_rng(6).random((1, 41, 3))
    found = SeedBootstrap(1, 41, 300, seed=7).interval(values)
    np.testing.assert_allclose(found, Bootstrap(41, 300, seed=7).interval(values[0]))
