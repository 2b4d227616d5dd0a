import numpy as np
import pytest

from headroom.statistics.contested import contested, gains_by_chance

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
