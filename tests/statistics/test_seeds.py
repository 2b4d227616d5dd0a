import numpy as np
import pytest

from headroom.statistics.bootstrap import Bootstrap
from headroom.statistics.seeds import SeedBootstrap, spread


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
def test_intervals_hold_the_true_mean_about_as_often_as_promised(seeds, of_seed):
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
    assert np.isnan(spread(values[0, None, :, 0]))


def test_columns_are_resampled_together():
    draw = np.random.default_rng(8)
    first, second = draw.random((2, 3, 37))
    bootstrap = SeedBootstrap(3, 37, 200, seed=9)
    means = bootstrap.means(np.stack([first, first + 2.0], axis=-1))
    np.testing.assert_allclose(means[:, 1] - means[:, 0], 2.0)
    assert means.shape == (200, 2)
    assert not np.allclose(means[:, 0], bootstrap.means(second))


def test_spread_is_that_of_the_seeds_means():
    values = np.array([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]])
    assert spread(values) == pytest.approx(0.25)
