"""The stated power is the achieved one, by enumeration and by simulation."""

import math
import os
from itertools import product

import numpy as np
import pytest

from headsweep.results import joint_tests
from headsweep.statistics.intervals import Bootstrap, simultaneous
from headsweep.statistics.power import POWER, power, questions_for, smallest_gain

CLOSE = 0.05  # the stated power may be off by so much


def enumerated(questions, changed, tests, gain):
    """Return the power by all numbers of gained and lost questions, one after the other."""
    found = 0.0
    share = changed + gain
    for gained, lost in product(range(questions + 1), repeat=2):
        both = gained + lost
        if both > questions or gained <= lost:
            continue
        tail = sum(math.comb(both, few) for few in range(lost + 1)) / 2**both
        if 2 * tail <= 0.05 / tests:
            ways = math.comb(questions, both) * math.comb(both, gained)
            chance = (changed / 2 + gain) ** gained * (changed / 2) ** lost
            found += ways * chance * (1 - share) ** (questions - both)
    return found


@pytest.mark.parametrize(("changed", "tests"), [(0.0, 1), (0.3, 1), (0.6, 4), (0.1, 12)])
def test_power_is_that_of_all_outcomes_enumerated(changed, tests):
    for share in (0.0, 0.2, 0.6, 1.0):
        gain = share * (1 - changed)
        expected = enumerated(18, changed, tests, gain)
        assert power(18, changed, tests, gain) == pytest.approx(expected, abs=1e-9)


SETTINGS = {
    # Heads, questions, share of outcomes that a head changes without a gain, share that is right.
    "word problems": (14, 200, 0.105, 0.695),
    "MATH-500": (12, 150, 0.163, 0.373),
    "the sabotaged model, first look": (14, 100, 0.205, 0.53),
    "the demo": (24, 200, 0.115, 0.64),
    "a first look": (14, 60, 0.105, 0.5),
    "the question stated in advance": (1, 500, 0.162, 0.37),
}
"""As in the demo and in the gallery's runs."""
NIGHTLY = "HEADSWEEP_NIGHTLY" in os.environ
RUNS = 400 if NIGHTLY else 60
BY_DAY = ("word problems", "the question stated in advance")


def planted(rng, heads, questions, changed, right, gain):
    """Return differences of heads from a base model, [questions, heads]: the first one gains."""
    base = rng.random((questions, 1)) < right
    gains = np.zeros(heads)
    gains[0] = gain
    toss = rng.random((questions, heads))
    won = ~base & (toss < (changed / 2 + gains) / (1 - right))
    lost = base & (toss < changed / 2 / right)
    return won.astype(int) - lost.astype(int)


@pytest.mark.parametrize("setting", SETTINGS if NIGHTLY else BY_DAY)
def test_a_planted_gain_of_the_printed_size_is_found_as_often_as_printed(setting):
    """By the run's own verdict: test and band over all heads."""
    heads, questions, changed, right = SETTINGS[setting]
    gain = smallest_gain(questions, changed, heads)
    rng = np.random.default_rng(5)
    found = 0
    for seed in range(RUNS):
        differences = planted(rng, heads, questions, changed, right, gain)
        wider = simultaneous(differences, Bootstrap(questions, 1000, seed))
        found += joint_tests.passes(joint_tests.tested(differences, wider), 1)[0]
    # The power is right to 5 points. Of fewer runs chance allows twice its standard error more.
    chance = 2 * np.sqrt(POWER * (1 - POWER) / RUNS) if RUNS < 400 else 0.0
    assert abs(found / RUNS - POWER) <= CLOSE + chance


@pytest.mark.parametrize(("gain", "changed", "tests"), [(0.02, 0.2, 24), (0.1, 0.05, 1)])
def test_so_many_questions_show_a_gain_and_clearly_fewer_do_not(gain, changed, tests):
    needed = questions_for(gain, changed, tests)
    assert power(needed, changed, tests, gain) >= POWER
    assert power(int(0.85 * needed), changed, tests, gain) < POWER


def test_more_questions_than_are_looked_at_are_no_number(monkeypatch):
    assert questions_for(0.02, 0.2, 1) == 4500
    monkeypatch.setattr("headsweep.statistics.power.MOST_QUESTIONS", 2**10)
    assert math.isnan(questions_for(0.02, 0.2, 1))


def test_few_questions_show_nothing_and_an_unchanged_head_a_gain_of_some():
    assert math.isnan(smallest_gain(5, 0.2, 2))
    # Nine gained and none lost are the fewest that pass; 0.8 of draws have them.
    least = smallest_gain(200, 0.0, 24)
    assert power(200, 0.0, 24, least) == pytest.approx(POWER, abs=0.005)
    assert power(200, 0.2, 24, 0.0) < 0.05 / 24


def test_what_changes_without_a_gain_makes_a_gain_harder_to_see():
    gains = [smallest_gain(200, changed, 14) for changed in (0.0, 0.05, 0.105, 0.2)]
    assert gains == sorted(gains)
    assert gains[2] == pytest.approx(0.129, abs=5e-4)
