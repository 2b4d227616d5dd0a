"""Intervals that hold at any time: their coverage over all times, and the sequence bet by bet."""

import math
import os

import numpy as np
import pytest

from headsweep.statistics.anytime import anytime_interval
from headsweep.statistics.intervals import paired_interval

NIGHTLY = "HEADSWEEP_NIGHTLY" in os.environ
STREAMS, QUESTIONS = 200, 300 if NIGHTLY else 110
CHANCES = [(0.3, 0.4, 0.3), (0.0, 0.98, 0.02)]
if NIGHTLY:
    CHANCES += [(0.05, 0.9, 0.05), (0.02, 0.83, 0.15), (0.4, 0.4, 0.2)]


def streams(chances, seed):
    """Return how many questions each stream has gained and lost after each question."""
    drawn = np.random.default_rng(seed).choice([-1, 0, 1], (STREAMS, QUESTIONS), p=chances)
    return (drawn > 0).cumsum(axis=1), (drawn < 0).cumsum(axis=1)


def at_all_times(gained, lost, heads=1):
    """Return the ends of the intervals after each question, a row for each stream."""
    ends = np.empty((2, *gained.shape))
    for n in range(1, gained.shape[1] + 1):
        # Streams of equal counts have equal intervals.
        counts = np.stack([gained[:, n - 1], lost[:, n - 1]])
        (ups, downs), place = np.unique(counts, axis=1, return_inverse=True)
        ends[:, :, n - 1] = np.stack(anytime_interval(ups, downs, n, heads))[:, place.ravel()]
    return ends


@pytest.mark.parametrize("chances", CHANCES)
def test_the_true_gain_lies_within_at_all_times_together_in_95_of_100_streams(chances):
    truth = chances[2] - chances[0]
    gained, lost = streams(chances, seed=1)
    low, high = at_all_times(gained, lost)
    assert ((low > truth) | (high < truth)).any(axis=1).mean() <= 0.05


def test_an_interval_for_one_look_would_miss_in_far_more():
    gained, lost = streams((0.3, 0.4, 0.3), seed=1)
    missed = np.zeros(STREAMS, bool)
    for n in range(10, QUESTIONS + 1):
        rows = np.arange(n)[:, np.newaxis]
        own = (rows < gained[:, n - 1]).astype(int)
        own -= (rows >= n - lost[:, n - 1]).astype(int)
        low, high = paired_interval(own)
        missed |= (low > 0) | (high < 0)
    assert missed.mean() > 0.15


def test_several_heads_hold_together():
    """Seven heads a sweep, none of which gains: in one sweep of twenty any of them misses."""
    heads, sweeps = 7, STREAMS // 7
    gained, lost = streams((0.3, 0.4, 0.3), seed=2)
    low, high = at_all_times(gained[: heads * sweeps], lost[: heads * sweeps], heads)
    missed = ((low > 0) | (high < 0)).any(axis=1).reshape(sweeps, heads)
    assert missed.any(axis=1).mean() <= 0.05
    alone, _ = anytime_interval(
        gained[: heads * sweeps, -1], lost[: heads * sweeps, -1], QUESTIONS, 1
    )
    assert (low[:, -1] < alone).all()


def brute_force(differences, heads):
    """Return the interval by betting question by question against means on a fine grid."""
    mean = np.linspace(-1, 1, 4001)[1:-1]
    up, down = np.ones((2, 20, len(mean)))
    for difference in differences:
        for bet in range(20):
            fraction = (bet + 1) / 21
            # In units of the distance from the mean to the far end of [-1, 1].
            up[bet] *= 1 + fraction * (difference - mean) / (mean + 1)
            down[bet] *= 1 + fraction * (mean - difference) / (1 - mean)
    kept = mean[np.maximum(up.mean(axis=0), down.mean(axis=0)) < 2 * heads / 0.05]
    return kept[0], kept[-1], len(kept)


@pytest.mark.parametrize(
    ("gained", "lost", "none", "heads"),
    [(9, 2, 23, 5), (0, 4, 37, 3), (6, 0, 0, 2), (0, 0, 17, 1), (0, 8, 0, 1)],
)
def test_it_equals_bets_on_one_question_after_the_other_in_any_order(gained, lost, none, heads):
    differences = np.repeat([1, -1, 0], [gained, lost, none])
    np.random.default_rng(gained).shuffle(differences)
    low, high, count = brute_force(differences.tolist(), heads)
    found = anytime_interval(np.array([gained]), np.array([lost]), gained + lost + none, heads)
    np.testing.assert_allclose(np.ravel(found), [low, high], atol=5.01e-4)
    assert count == round((high - low) * 2000) + 1  # nothing is left out in between


def test_it_is_narrower_than_hoeffding_s_where_little_changes_and_shrinks_to_the_gain():
    for questions, gained, lost in ((60, 2, 1), (300, 12, 6), (1319, 60, 50)):
        low, high = anytime_interval(np.array([gained]), np.array([lost]), questions, 24)
        # For one look, which has to hold for less.
        hoeffding = 2 * math.sqrt(2 * math.log(2 * 24 / 0.05) / questions)
        assert low[0] < (gained - lost) / questions < high[0]
        assert high[0] - low[0] < 0.6 * hoeffding
    low, high = anytime_interval(np.array([700]), np.array([500]), 10_000, 1)
    assert 0.02 - 0.015 < low[0] < 0.02 < high[0] < 0.02 + 0.015


def test_before_the_first_question_nothing_is_known():
    low, high = anytime_interval(np.zeros(3, int), np.zeros(3, int), 0, 3)
    assert (low == -1).all()
    assert (high == 1).all()
