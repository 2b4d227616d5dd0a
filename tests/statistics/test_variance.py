import numpy as np
import pytest
from simulated_outcomes import outcomes

from headroom.statistics.variance import head_variance


def test_heads_without_effect_differ_by_noise_alone():
    found = [head_variance(outcomes(200, [0.0] * 9, s)[0][:, 1:]) for s in range(1000)]
    assert np.mean([one.p <= 0.05 for one in found]) == pytest.approx(0.05, abs=0.021)
    spread, noise = (np.mean([getattr(f, k) ** 2 for f in found]) for k in ("spread", "noise"))
    assert spread == pytest.approx(noise, rel=0.05)


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


def test_heads_that_agree_everywhere_have_no_spread():
    z = np.repeat(np.array([[1], [0], [1], [1]]), 5, axis=1)
    found = head_variance(z)
    assert (found.spread, found.component, found.share, found.p) == (0, 0, 0, 1)
