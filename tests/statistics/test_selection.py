import numpy as np
import pytest
from simulated_outcomes import outcomes

from headroom.statistics.selection import (
    against_placebos,
    best_gain,
    contested,
    gains_by_chance,
    head_variance,
    held_out_gain,
    surely_hurts,
)

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


def test_where_every_head_hurts_nothing_is_expected_by_chance():
    differences = outcomes(200, [-0.9, -0.5], seed=1)[1]
    assert surely_hurts(differences).all()
    found = best(differences, 100, 0)
    assert np.isnan(found.expected)
    assert found.p > 0.9


HEADS = 9


def simulated(questions, effects, seed, harm=0.0):
    """Return differences of heads with some effects, and of placebos that all do some harm."""
    others = [-harm] * len(effects)
    differences = outcomes(questions, [*effects, *others], seed)[1]
    return differences[:, : len(effects)], differences[:, len(effects) :]


@pytest.mark.parametrize("harm", [0.0, 0.1])
def test_the_null_of_swaps_is_calibrated_whatever_harm_all_do(harm):
    p = np.array(
        [
            against_placebos(*simulated(200, [-harm] * HEADS, s, harm), 199, s).p
            for s in range(SIMULATIONS)
        ]
    )
    # Monte Carlo error: √(0.05 · 0.95 / 2000) is 0.005; ties make the test a little conservative.
    assert 0.03 < np.mean(p <= 0.05) < 0.06
    assert 0.15 < np.mean(p <= 0.2) < 0.22


def test_all_swaps_give_the_p_value_that_resampling_estimates():
    heads, placebos = simulated(11, [0.1, 0.0, 0.3], seed=3)
    differ = 2 ** len(heads)
    gaps = []
    for pattern in range(differ):
        swap = ((pattern >> np.arange(len(heads))) & 1).astype(bool)[:, np.newaxis]
        mine, its = np.where(swap, placebos, heads), np.where(swap, heads, placebos)
        gaps.append(mine.sum(axis=0).max() - its.sum(axis=0).max())
    exact = np.mean(np.array(gaps) >= gaps[0])
    assert 0.02 < exact < 0.98
    found = against_placebos(heads, placebos, 20_000, seed=1)
    assert found.p == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 20_000) + 1e-4)
    assert found.gain == placebos.mean(axis=0).max()


def test_the_component_is_the_variance_of_the_true_gains():
    effects = [0.3, 0.1, 0.0, 0.0, -0.1, -0.2, -0.4]
    found, true = [], []
    for seed in range(400):
        z, _, gain = outcomes(250, effects, seed)
        found.append(head_variance(z[:, 1:]))
        true.append(gain.var(ddof=1))
    squares = [f.spread**2 - f.noise**2 for f in found]
    assert np.mean(squares) == pytest.approx(np.mean(true), rel=0.05)
    assert all(f.p < 0.05 for f in found)
    assert all(0.8 < f.share < 1 for f in found)


def test_cochrans_q_by_hand():
    z = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]])
    totals, rows = z.sum(axis=0), z.sum(axis=1)
    q = 2 * (3 * (totals**2).sum() - totals.sum() ** 2) / (3 * rows.sum() - (rows**2).sum())
    assert head_variance(z).p == pytest.approx(np.exp(-q / 2))  # chi-squared, 2 degrees


SIZES = np.array([124, 38, 41, 97, 62, 82, 56])


def accuracies(draw, effects, tossed):
    """Return accuracies of heads that toss a coin on a share of the questions of each group."""
    number = np.round(tossed * SIZES).astype(int)
    right = draw.binomial(number, 0.5, (len(effects), len(SIZES)))
    return (right + np.round(0.6 * SIZES) - number // 2) / SIZES + effects[:, np.newaxis]


def test_noise_is_found_where_heads_differ_by_coins_alone():
    draw = np.random.default_rng(0)
    found = [contested(accuracies(draw, np.zeros(23), 0.2), SIZES) for _ in range(300)]
    # A coin has variance 1/4, a question of accuracy 0.6 has 0.24.
    assert np.mean([one.spread for one in found]) == pytest.approx(0.2 * 0.25 / 0.24, rel=0.03)
    assert np.mean([one.common for one in found]) == pytest.approx(0, abs=0.004)
    assert all(one.ordinary.all() for one in found)


def test_what_heads_keep_from_group_to_group_is_no_noise():
    draw = np.random.default_rng(1)
    effects = draw.normal(0, 0.03, 31)
    found = [contested(accuracies(draw, effects, 0.2), SIZES) for _ in range(200)]
    noise, spread = (np.mean([getattr(one, k) for one in found]) for k in ("noise", "spread"))
    # An effect weighs more in a large group, so a little of it is left: an upper bound.
    assert 0.205 < noise < 0.225
    assert spread > 1.3 * noise


def test_ruinous_heads_are_named_and_left_out():
    draw = np.random.default_rng(2)
    effects = np.zeros(17)
    effects[[3, 11]] = -0.5, -0.2
    table = accuracies(draw, effects, 0.2)
    table[5, 2] = table[8, :4] = np.nan
    found = contested(table, SIZES)
    assert list(np.flatnonzero(~found.ordinary)) == [3, 11]
    assert found.spread < 0.4


def test_the_best_of_two_coins_gains_what_arithmetic_says():
    # One question, contested, one layer with two heads: best − base has mean 3/4 − 1/2.
    one = np.ones(1, int)
    best, mean = gains_by_chance(one, np.ones(1), 2 * one, 0 * one, 40_000, seed=0)
    assert best.mean() == pytest.approx(0.25, abs=0.015)
    assert mean.mean() == pytest.approx(0, abs=0.015)
    assert best.var() == pytest.approx(3 / 16 + 1 / 4, abs=0.01)


def test_layers_share_the_base_model_of_a_group():
    pairs = np.array([70, 70, 70])
    numbers, heads = np.array([9.5, 20.0, 20.0]), np.array([400, 400, 400])
    _, mean = gains_by_chance(pairs, numbers, heads, np.array([0, 0, 1]), 8000, seed=0)
    # The mean of many heads leaves base: its coins of the smaller layer are in the larger, too.
    correlation = np.corrcoef(mean.T)
    assert correlation[0, 1] == pytest.approx((9.5 / 20) ** 0.5, abs=0.04)
    assert correlation[0, 2] == pytest.approx(0, abs=0.04)
    assert mean[:, 0].std() == pytest.approx(9.5**0.5 / 2 / 70, rel=0.06)
