import numpy as np
import pytest
from scipy import stats

from headroom.statistics.proportion import unpaired_difference, wilson


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
