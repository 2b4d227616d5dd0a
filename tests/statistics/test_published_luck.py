import numpy as np
import pandas as pd
import pytest

from headsweep.statistics.published_luck import gains_by_chance, noise_share

SIZES = np.array([124, 38, 41, 97, 62, 82, 56])


def accuracies(draw, effects, tossed):
    """Return accuracies of heads that toss a coin on a share of the questions of each group."""
    number = np.round(tossed * SIZES).astype(int)
    right = draw.binomial(number, 0.5, (len(effects), len(SIZES)))
    return (right + np.round(0.6 * SIZES) - number // 2) / SIZES + effects[:, np.newaxis]


def test_noise_is_what_coins_give_and_not_what_heads_keep_from_group_to_group():
    draw = np.random.default_rng(0)
    coin = 0.2 * 0.25 / 0.24  # a coin has variance 1/4, a question of accuracy 0.6 has 0.24
    for effects, most in ((np.zeros(23), 1.0), (draw.normal(0, 0.03, 31), 1.08)):
        found = [noise_share(accuracies(draw, effects, 0.2), SIZES) for _ in range(300)]
        noise = np.mean([noise for noise, _ in found])
        # What is common in one draw is cut off; an effect weighs more in a large group.
        assert 0.97 * coin < noise < most * coin * 1.01
        assert effects.any() or all(kept.all() for _, kept in found)
    alike = accuracies(draw, np.zeros(23), 0.2)[:, :1]
    assert noise_share(np.tile(alike, 7), SIZES)[0] < 0.02


def test_ruinous_heads_are_named_and_left_out():
    draw = np.random.default_rng(2)
    effects = np.zeros(17)
    effects[[3, 11]] = -0.5, -0.2
    table = accuracies(draw, effects, 0.2)
    table[5, 2] = table[8, :4] = np.nan
    noise, kept = noise_share(table, SIZES)
    assert list(np.flatnonzero(~kept)) == [3, 11]
    assert 0 < noise < 0.4


def test_gains_by_chance_are_those_of_coins_and_layers_share_the_base_model_of_a_group():
    # One question, contested, one layer with two heads: best − base has mean 3/4 − 1/2.
    pair = {"subject": ["a"], "n": [1], "contested": [1.0], "ordinary": [2]}
    best = gains_by_chance(pd.DataFrame(pair), 40_000, seed=0)
    assert best.mean() == pytest.approx(0.25, abs=0.015)
    assert best.var() == pytest.approx(3 / 16 + 1 / 4, abs=0.01)
    pairs = {"subject": ["a", "a", "b"], "contested": [9.5, 20.0, 20.0]}
    gain = gains_by_chance(pd.DataFrame(pairs | {"n": 70, "ordinary": 1}), 20_000, seed=0)
    # Two layers have the base model's coins of the smaller one in common, half of their variance.
    correlation = np.corrcoef(gain.T)
    assert correlation[0, 1] == pytest.approx(0.5 * (9.5 / 20) ** 0.5, abs=0.03)
    assert correlation[0, 2] == pytest.approx(0, abs=0.03)
    assert gain[:, 0].std() == pytest.approx((9.5 / 2) ** 0.5 / 70, rel=0.06)
