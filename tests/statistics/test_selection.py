import os

import numpy as np
import pytest

from headsweep.statistics.selection import (
    against_placebos,
    best_gain,
    head_variance,
    held_out_gain,
    surely_hurts,
)

NIGHTLY = "HEADSWEEP_NIGHTLY" in os.environ
SIMULATIONS = 1000 if NIGHTLY else 300


def outcomes(questions, effects, seed):
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


def best(differences, resamples, seed):
    return best_gain(differences, ~surely_hurts(differences), resamples, seed)


def test_the_null_is_calibrated_and_ruinous_heads_change_neither_level_nor_expectation():
    found, alone = (
        [best(outcomes(150, [0.0] * 9 + ruinous, s)[1], 199, s) for s in range(SIMULATIONS)]
        for ruinous in ([-0.95, -0.6], [])
    )
    p = np.array([one.p for one in alone])
    # Monte Carlo error: √(0.05 · 0.95 / 1000) is 0.007; ties make the test a little conservative.
    assert 0.035 < np.mean(p <= 0.05) < 0.065
    assert np.mean(p <= 0.5) == pytest.approx(0.5, abs=0.06)
    assert np.mean([one.p <= 0.05 for one in found]) < 0.07
    expected, reference = (np.mean([one.expected for one in runs]) for runs in (found, alone))
    assert expected == pytest.approx(reference, rel=0.03)
    ruined = best(outcomes(200, [-0.9, -0.5], seed=1)[1], 100, 0)
    assert np.isnan(ruined.expected) and ruined.p > 0.9


def test_all_sign_patterns_give_the_p_value_that_resampling_estimates():
    differences = outcomes(40, [0.0, 0.1, -0.1, 0.05, 0.0], seed=3)[1]
    informative = differences[differences.any(axis=1)]
    m = len(informative)
    assert 8 < m < 18
    signs = 1 - 2 * ((np.arange(2**m)[:, np.newaxis] >> np.arange(m)) & 1)
    scale = np.sqrt(np.maximum(np.abs(informative).sum(axis=0), 1))
    studentised = (signs @ informative / scale).max(axis=1)
    exact = np.mean(studentised >= (informative.sum(axis=0) / scale).max() - 1e-9)
    found = best(differences, 20_000, seed=2)
    assert found.p == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 20_000) + 1e-4)
    largest = (signs @ informative).max(axis=1).mean() / 40
    assert found.expected == pytest.approx(largest, abs=0.002)


@pytest.mark.parametrize(
    ("questions", "effects"),
    [(300, [0.0] * 8), (120, [0.0] * 12), (200, [0.15, 0.08, *[0.0] * 7, -0.3, -0.9])],
)
def test_the_held_out_interval_covers_the_true_gain_of_what_was_chosen(questions, effects):
    strata = np.arange(questions) % 7
    covered, low = 0, 0
    for seed in range(SIMULATIONS):
        _, differences, gain = outcomes(questions, effects, seed)
        held_out = held_out_gain(differences, strata, 50, seed)
        target = held_out.chosen @ gain
        covered += held_out.low <= target <= held_out.high
        low += held_out.low > target
    assert 0.935 <= covered / SIMULATIONS <= 0.965
    assert low / SIMULATIONS < 0.04  # it errs to both sides alike


def test_halves_share_each_stratum_evenly():
    """Then the gain of each half is that of all, where a stratum's questions are all alike."""
    strata = np.repeat([4, 7, 9], [10, 6, 20])
    differences = np.stack([strata == 4, strata == 9], axis=1).astype(np.int8)
    held_out = held_out_gain(differences, strata, 300, 0)
    assert held_out.gain == pytest.approx(20 / 36)
    assert held_out.chosen.tolist() == [0, 1]


def test_a_held_out_gain_of_nothing_is_uncertain():
    nothing = held_out_gain(np.zeros((40, 3), np.int8), np.zeros(40, int), 20, 0)
    assert nothing.gain == 0
    assert nothing.low == -nothing.high < -0.02


def test_all_swaps_give_the_p_value_that_resampling_estimates():
    heads, placebos = np.hsplit(outcomes(11, [0.1, 0.0, 0.3, 0.0, 0.0, 0.0], seed=3)[1], 2)
    gaps = []
    for pattern in range(2 ** len(heads)):
        swap = ((pattern >> np.arange(len(heads))) & 1).astype(bool)[:, np.newaxis]
        mine, its = np.where(swap, placebos, heads), np.where(swap, heads, placebos)
        gaps.append(mine.sum(axis=0).max() - its.sum(axis=0).max())
    exact = np.mean(np.array(gaps) >= gaps[0])
    assert 0.02 < exact < 0.98
    gain, p = against_placebos(heads, placebos, 20_000, seed=1)
    assert p == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 20_000) + 1e-4)
    assert gain == placebos.mean(axis=0).max()


def test_the_component_is_the_variance_of_the_true_gains_and_its_test_that_of_cochran():
    effects = [0.3, 0.1, 0.0, 0.0, -0.1, -0.2, -0.4]
    found, true = [], []
    for seed in range(400):
        z, _, gain = outcomes(250, effects, seed)
        found.append(head_variance(z[:, 1:]))
        true.append(gain.var(ddof=1))
    assert np.mean([f.component**2 for f in found]) == pytest.approx(np.mean(true), rel=0.05)
    for f in found:
        assert f.component**2 == pytest.approx(f.spread**2 - f.noise**2)
        assert f.p < 0.05
    # Cochran's Q by hand.
    z = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]])
    totals, rows = z.sum(axis=0), z.sum(axis=1)
    q = 2 * (3 * (totals**2).sum() - totals.sum() ** 2) / (3 * rows.sum() - (rows**2).sum())
    found = head_variance(z)
    assert found.p == pytest.approx(np.exp(-q / 2))  # chi-squared, 2 degrees
    # The noise of one head is half the variance of the difference of two.
    apart = [np.var(z[:, i] - z[:, j], ddof=1) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert found.noise**2 == pytest.approx(np.mean(apart) / 2 / len(z))
