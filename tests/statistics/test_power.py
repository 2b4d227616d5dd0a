"""The stated power is the achieved one, by enumeration and by simulation."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.special import stdtrit

from headsweep.statistics.intervals import holm, mcnemar, paired_interval
from headsweep.statistics.power import (
    POWER,
    power,
    questions_for,
    smallest_difference,
    smallest_gain,
)

CLOSE = 0.05  # the stated power may be off by so much
DRAWS = 2000


def enumerated(questions, changed, tests, gain):
    """Return the power by all numbers of gained and lost questions, one after the other."""
    found, share = 0.0, max(changed, gain)
    for gained, lost in product(range(questions + 1), repeat=2):
        both = gained + lost
        if both > questions or gained <= lost:
            continue
        tail = sum(math.comb(both, few) for few in range(lost + 1)) / 2**both
        if 2 * tail <= 0.05 / tests:
            ways = math.comb(questions, both) * math.comb(both, gained)
            chance = ((share + gain) / 2) ** gained * ((share - gain) / 2) ** lost
            found += ways * chance * (1 - share) ** (questions - both)
    return found


@pytest.mark.parametrize(("changed", "tests"), [(0.0, 1), (0.3, 1), (0.6, 4), (1.0, 12)])
def test_power_is_that_of_all_outcomes_enumerated(changed, tests):
    for gain in (0.0, 0.2, 0.5, 0.9):
        expected = enumerated(18, changed, tests, gain)
        assert power(18, changed, tests, gain) == pytest.approx(expected, abs=1e-9)


def drawn(rng, questions, changed, gain, columns):
    """Return differences of heads from the base model, [questions, columns]."""
    toss = rng.random((questions, columns))
    gained, lost = toss < (changed + gain) / 2, toss > 1 - (changed - gain) / 2
    return gained.astype(np.int8) - lost.astype(np.int8)


@pytest.mark.parametrize(("questions", "changed", "heads"), [(200, 0.15, 24), (500, 0.2, 12)])
def test_the_corrected_test_achieves_the_stated_power(questions, changed, heads):
    rng, gain = np.random.default_rng(7), smallest_gain(questions, changed, heads)
    p = np.empty((DRAWS, heads))
    p[:, 0] = mcnemar(drawn(rng, questions, changed, gain, DRAWS))
    for head in range(1, heads):
        p[:, head] = mcnemar(drawn(rng, questions, changed, 0.0, DRAWS))
    shown = [holm(row)[0] < 0.05 for row in p]
    assert abs(np.mean(shown) - POWER) < CLOSE
    assert abs(power(questions, changed, heads, gain) - POWER) < 0.01


@pytest.mark.parametrize(("questions", "changed"), [(100, 0.3), (400, 0.1)])
def test_an_interval_leaves_out_zero_as_often_as_stated(questions, changed):
    rng = np.random.default_rng(11)
    ends = paired_interval(drawn(rng, questions, changed, 0.0, DRAWS))
    typical = smallest_difference(*(float(np.median(end)) for end in ends))
    low, _ = paired_interval(drawn(rng, questions, changed, typical, DRAWS))
    assert abs(np.mean(low > 0) - POWER) < CLOSE


@pytest.mark.parametrize(("freedom", "tests"), [(3, 1), (5, 4), (8, 12), (100, 4)])
def test_few_degrees_of_freedom_ask_for_another_difference(freedom, tests):
    rng = np.random.default_rng(3)
    half = 0.05 * stdtrit(freedom, 0.975)
    least = smallest_difference(-half, half, tests, freedom)
    measured = rng.normal(least, 0.05, 10 * DRAWS)
    error = 0.05 * np.sqrt(rng.chisquare(freedom, 10 * DRAWS) / freedom)
    shown = measured > stdtrit(freedom, 1 - 0.025 / tests) * error
    assert abs(np.mean(shown) - POWER) < 0.01


def test_a_correction_over_more_comparisons_asks_for_a_larger_difference():
    alone, among = (smallest_difference(-0.1, 0.1, tests) for tests in (1, 10))
    assert alone == pytest.approx(0.1 / 1.959964 * (1.959964 + 0.841621), rel=1e-6)
    assert among == pytest.approx(0.1 / 1.959964 * (2.807034 + 0.841621), rel=1e-6)


def test_a_difference_above_one_is_none_that_a_test_could_show():
    assert smallest_difference(-0.6, 0.6) == pytest.approx(0.857644, rel=1e-5)
    assert np.isnan(smallest_difference(-0.8, 0.8))


@pytest.mark.parametrize(("gain", "changed", "tests"), [(0.02, 0.2, 24), (0.1, 0.05, 1)])
def test_so_many_questions_show_a_gain_and_clearly_fewer_do_not(gain, changed, tests):
    needed = questions_for(gain, changed, tests)
    assert power(needed, changed, tests, gain) >= POWER
    assert power(int(0.85 * needed), changed, tests, gain) < POWER


def test_more_questions_than_are_looked_at_are_no_number(monkeypatch):
    assert questions_for(0.02, 0.2, 1) == 4100
    monkeypatch.setattr("headsweep.statistics.power.MOST_QUESTIONS", 2**10)
    assert math.isnan(questions_for(0.02, 0.2, 1))


def test_few_questions_show_nothing_and_an_unchanged_head_a_gain_of_some():
    assert math.isnan(smallest_gain(5, 0.2, 2))
    # Nine gained and none lost are the fewest that pass; 0.8 of draws have them.
    least = smallest_gain(200, 0.0, 24)
    assert power(200, 0.0, 24, least) == pytest.approx(POWER, abs=0.005)
    assert power(200, 0.2, 24, 0.0) < 0.05 / 24
