"""Joint tests of many means: against independent computation, and by their level in simulation."""

from itertools import product
from math import gamma

import numpy as np
import pytest
from scipy.stats import t as students
from scipy.stats import ttest_1samp

from headsweep.statistics import maxima
from headsweep.statistics.maxima import joint_means


def draws(questions, columns, seed, effects=()):
    """Correlated columns, as of heads that share their questions' luck."""
    draw = np.random.default_rng(seed)
    found = draw.normal(size=(questions, columns)) + 0.7 * draw.normal(size=(questions, 1))
    found[:, : len(effects)] += effects
    return found


def student(values):
    """Return t of each column's mean, over the last axis but one."""
    count = values.shape[-2]
    return values.mean(axis=-2) / values.std(axis=-2, ddof=1) * np.sqrt(count)


def test_means_intervals_and_t_are_students():
    values = draws(19, 5, 1, (0.8,))
    found = joint_means(values, 300, 0)
    expected = ttest_1samp(values, 0.0)
    low, high = expected.confidence_interval(0.95)
    stated = {"t": expected.statistic, "change": values.mean(axis=0), "low": low, "high": high}
    for column, value in stated.items():
        assert found[column].to_numpy() == pytest.approx(value)
    assert (found["band_low"] < found["low"]).all() and (found["band_high"] > found["high"]).all()


def test_corrected_p_values_are_those_of_all_draws_of_questions():
    values = draws(5, 4, 2, (6.0, 0.0, -0.9))
    observed = student(values)
    drawn = np.array([*product(range(5), repeat=5)])
    spread = (drawn != drawn[:, :1]).any(axis=1)
    centred = (values - values.mean(axis=0))[drawn]
    t = np.inf * np.sign(centred[:, 0])  # of one question five times, which has no spread
    t[spread] = student(centred[spread])
    above = (t.max(axis=1)[:, None] >= observed).mean(axis=0)
    below = (t.min(axis=1)[:, None] <= observed).mean(axis=0)
    exact = np.minimum(1, 2 * np.minimum(above, below))
    found = joint_means(values, 20_000, 5)
    assert found["adjusted"].to_numpy() == pytest.approx(exact, abs=0.015)
    assert 0 < exact.min() < 0.3 < np.median(exact) < 1  # the case tells some apart


def test_skewed_columns_without_an_effect_are_named_no_more_often():
    """Nearly all values a little above the mean and a few far below, as of log-probabilities."""
    named, flipped = [], []
    for seed in range(30):
        values = 1.0 - np.random.default_rng(seed).exponential(size=(46, 90)) ** 1.5 / gamma(2.5)
        named.append((joint_means(values, 400, seed)["adjusted"] < 0.05).any())
        signs = np.random.default_rng(seed).choice((-1, 1), size=(200, 46, 1))
        of_flips = np.abs(student(values * signs)).max(axis=1)
        flipped.append((of_flips >= np.abs(student(values)).max()).mean() < 0.05)
    assert np.mean(named) <= 0.1
    assert np.mean(flipped) > 0.4  # tests that take differences for symmetric name many


def test_no_column_without_an_effect_is_named_more_often_than_its_level():
    named = [
        (joint_means(draws(17, 23, seed), 400, seed)["adjusted"] < 0.05).any()
        for seed in range(200)
    ]
    assert np.mean(named) <= 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / 200)
    critical = students.ppf(0.975, 16)
    alone = [(np.abs(student(draws(17, 23, seed))) > critical).any() for seed in range(40)]
    assert np.mean(alone) > 0.3  # uncorrected, many would be


def test_bands_hold_for_all_columns_where_effects_are_strong():
    """Of 24 columns with effects of three deviations."""
    covered = 0
    for seed in range(150):
        values = draws(32, 24, seed, np.full(24, 3.0 * np.sqrt(1.49)))
        found = joint_means(values, 400, seed)
        truth = 3.0 * np.sqrt(1.49)
        covered += bool(((found["band_low"] <= truth) & (truth <= found["band_high"])).all())
    assert covered >= 0.88 * 150


def test_columns_that_never_differ_are_not_named_and_few_questions_are_refused():
    values = np.zeros((6, 3))
    values[:, 1] = [2, 3, 2, 4, 3, 2]
    found = joint_means(values, 500, 0)
    assert found["t"][0] == 0 and found["adjusted"][0] == 1
    assert np.isfinite(found["band_low"]).all()
    with pytest.raises(ValueError, match="3 questions: the test needs 4"):
        joint_means(values[:3], 10, 0)


def test_the_seed_does_not_decide_what_is_shown(monkeypatch):
    """One of 24 columns has a p-value near its level: one round names it or not, by its seed."""
    values = np.random.default_rng(3).normal(size=(30, 24))
    values[:, 0] += 0.44

    def named():
        return {joint_means(values, 300, seed)["adjusted"][0] < 0.05 for seed in range(12)}

    assert len(named()) == 1
    monkeypatch.setattr(maxima, "_ROUNDS", 1)
    assert len(named()) == 2
