import numpy as np
import pytest
from simulated_outcomes import outcomes

from headroom.statistics.selection import best_gain, held_out_gain, surely_hurts

SIMULATIONS = 2000


def best(differences, resamples, seed):
    return best_gain(differences, ~surely_hurts(differences), resamples, seed)


def test_the_null_is_calibrated_at_five_percent():
    p = np.array([best(outcomes(300, [0.0] * 11, s)[1], 199, s).p for s in range(SIMULATIONS)])
    # Monte Carlo error: √(0.05 · 0.95 / 2000) is 0.005; ties make the test a little conservative.
    assert 0.035 < np.mean(p <= 0.05) < 0.065
    assert np.mean(p <= 0.5) == pytest.approx(0.5, abs=0.06)


def test_a_few_ruinous_heads_change_neither_level_nor_expectation():
    effects = [0.0] * 9 + [-0.95, -0.6]
    found = [best(outcomes(150, effects, s)[1], 199, s) for s in range(1000)]
    alone = [best(outcomes(150, [0.0] * 9, s)[1], 199, s) for s in range(1000)]
    assert np.mean([one.p <= 0.05 for one in found]) < 0.07
    expected, reference = (np.mean([one.expected for one in runs]) for runs in (found, alone))
    assert expected == pytest.approx(reference, rel=0.03)


def test_a_planted_head_is_found():
    differences = outcomes(400, [0.0] * 6 + [0.2] + [0.0] * 4, seed=5)[1]
    found = best(differences, 1999, seed=1)
    assert found.p < 0.01
    assert found.gain > found.expected + 0.02
    held_out = held_out_gain(differences, np.arange(400) % 7, 50, seed=1)
    assert held_out.low > 0
    assert held_out.chosen.argmax() == 6
    assert held_out.chosen.sum() == pytest.approx(1)


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
    assert not surely_hurts(differences).any()
    largest = (signs @ informative).max(axis=1).mean() / 40
    assert found.expected == pytest.approx(largest, abs=4 * found.expected_error)


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


def test_the_winners_curse_is_what_the_best_head_loses_when_held_out():
    differences = outcomes(90, [0.0] * 17, seed=8)[1]
    held_out = held_out_gain(differences, np.zeros(90, int), 40, seed=1)
    highest = differences.mean(axis=0).max()
    assert held_out.curse == pytest.approx(highest - held_out.gain)
    curses = [
        held_out_gain(outcomes(90, [0.0] * 17, s)[1], np.zeros(90, int), 10, s).curse
        for s in range(200)
    ]
    expected = np.mean([best(outcomes(90, [0.0] * 17, s)[1], 99, s).gain for s in range(200)])
    assert np.mean(curses) == pytest.approx(expected, rel=0.1)  # without effect all of it


def test_halves_share_each_stratum_evenly():
    from headroom.statistics.selection import _halves

    strata = np.repeat([4, 7, 9], [11, 6, 20])
    (half,) = _halves(strata, 300, np.random.default_rng(0))
    for stratum, size in ((4, 11), (7, 6), (9, 20)):
        inside = half[:, strata == stratum].sum(axis=1)
        assert set(inside) <= {size // 2, size - size // 2}
    assert half.mean(axis=0) == pytest.approx(0.5, abs=0.15)
    assert len(np.unique(half, axis=0)) > 290


def test_the_seed_decides():
    differences = outcomes(60, [0.0] * 5, seed=2)[1]
    strata = np.zeros(60, int)
    assert best(differences, 500, 3) == best(differences, 500, 3)
    assert best(differences, 500, 3) != best(differences, 500, 4)
    first, again, other = (held_out_gain(differences, strata, 9, s).gain for s in (3, 3, 4))
    assert first == again != other


def test_where_every_head_hurts_nothing_is_expected_by_chance():
    differences = outcomes(200, [-0.9, -0.5], seed=1)[1]
    assert surely_hurts(differences).all()
    found = best(differences, 100, 0)
    assert np.isnan(found.expected)
    assert found.p > 0.9
