import numpy as np

from headsweep.results.excess import interval_around


def test_an_interval_takes_39_draws_and_has_the_lower_end_first():
    null = np.linspace(-1, 1, 39)
    assert interval_around(0.5, null, null) == (-0.5, 1.5)
    assert interval_around(0.5, null, null - 1) == (-0.5, 2.5)  # another chance reaches lower
