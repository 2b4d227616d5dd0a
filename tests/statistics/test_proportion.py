import numpy as np
import pytest
from scipy import stats

from headroom.statistics.proportion import unpaired_difference, unpaired_ratio, wilson


def test_wilson_is_that_of_scipy():
    n = np.array([1, 7, 38, 124, 500, 61])
    correct = np.array([0, 7, 23, 1, 367, 60])
    low, high = wilson(correct, n)
    for index in range(len(n)):
        own = stats.binomtest(int(correct[index]), int(n[index])).proportion_ci(method="wilson")
        assert low[index] == pytest.approx(own.low, abs=1e-12)
        assert high[index] == pytest.approx(own.high, abs=1e-12)


def test_the_difference_is_that_of_newcombe():
    # Newcombe 1998, table II, contrast (a), method 10: 56/70 - 48/80.
    first, second = np.array([48 / 80]), np.array([56 / 70])
    ends = wilson(np.array([48]), np.array([80])), wilson(np.array([56]), np.array([70]))
    low, high = unpaired_difference(first, ends[0], second, ends[1])
    assert low[0] == pytest.approx(0.0524, abs=5e-5)
    assert high[0] == pytest.approx(0.3339, abs=5e-5)


def test_a_ratio_ends_where_the_difference_with_its_multiple_ends_at_zero():
    """By bisection on the interval of top − R · bottom, from which the formula is derived."""
    draw = np.random.default_rng(2)
    for _ in range(50):
        top, bottom = draw.uniform(-0.3, 0.3), draw.uniform(0.3, 0.7)
        tops = top - draw.uniform(0.01, 0.2), top + draw.uniform(0.01, 0.2)
        bottoms = bottom - draw.uniform(0.01, 0.2), bottom + draw.uniform(0.01, 0.2)
        found = unpaired_ratio(*(np.array(top), tops), *(np.array(bottom), bottoms))
        for ratio, side in zip(found, (0, 1), strict=True):
            scaled = sorted(float(ratio) * end for end in bottoms)
            middle = float(ratio) * bottom
            ends = unpaired_difference(
                np.array(middle), (scaled[0], scaled[1]), np.array(top), (tops[0], tops[1])
            )
            assert ends[side] == pytest.approx(0, abs=1e-9)
        assert found[0] < top / bottom < found[1]


def test_a_ratio_to_what_may_be_nothing_has_no_lower_end():
    low, high = unpaired_ratio(
        np.array(0.1), (np.array(0.0), np.array(0.2)), np.array(0.01), (0.002, 0.05)
    )
    assert low == -np.inf
    assert 0.1 / 0.01 < high < np.inf
