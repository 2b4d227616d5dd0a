import numpy as np
import pytest
from simulated_outcomes import outcomes

from headroom.statistics.selection import against_placebos

SIMULATIONS = 2000
HEADS = 9


def simulated(questions, effects, seed, harm=0.0):
    """Return differences of heads with some effects, and of placebos that all do some harm."""
    others = [-harm] * len(effects)
    differences = outcomes(questions, [*effects, *others], seed)[1]
    return differences[:, : len(effects)], differences[:, len(effects) :]


@pytest.mark.parametrize("harm", [0.0, 0.1])
def test_the_null_is_calibrated_at_five_percent_whatever_harm_all_do(harm):
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


def test_there_must_be_as_many_placebos_as_heads():
    heads, placebos = simulated(20, [0.0] * 3, 1)
    with pytest.raises(ValueError, match="outcomes of heads"):
        against_placebos(heads, placebos[:, 1:], 9, 0)
