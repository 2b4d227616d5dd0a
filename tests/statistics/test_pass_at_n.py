from itertools import combinations
from math import comb

import numpy as np
import pytest

from headroom.statistics.pass_at_n import miss_probability, pass_at_n_drawn, pass_at_n_ordered

QUESTIONS, ANSWERS = 5, 7


@pytest.fixture
def correct() -> np.ndarray:
    draw = np.random.default_rng(0)
    correct = draw.random((QUESTIONS, ANSWERS)) < 0.4
    correct[0] = False
    correct[1] = True
    return correct


def test_drawn_pass_at_n_equals_the_mean_over_all_subsets(correct: np.ndarray) -> None:
    found = pass_at_n_drawn(correct, ANSWERS)
    for n in range(1, ANSWERS + 1):
        subsets = combinations(range(ANSWERS), n)
        wanted = np.mean([correct[:, list(subset)].any(axis=1) for subset in subsets], axis=0)
        np.testing.assert_allclose(found[:, n - 1], wanted, atol=1e-12)


def test_ordered_pass_at_n_equals_a_plain_loop(correct: np.ndarray) -> None:
    found = pass_at_n_ordered(correct, 6)
    assert found.shape == (QUESTIONS, 6)
    for question in range(QUESTIONS):
        for n in range(1, 7):
            assert found[question, n - 1] == any(correct[question, :n])


def test_beyond_the_number_of_answers_the_curve_stays_flat(correct: np.ndarray) -> None:
    for curve in (pass_at_n_drawn, pass_at_n_ordered):
        long = curve(correct, ANSWERS + 4)
        np.testing.assert_array_equal(long[:, :ANSWERS], curve(correct, ANSWERS))
        np.testing.assert_array_equal(long[:, ANSWERS:], np.repeat(long[:, [ANSWERS - 1]], 4, 1))
        np.testing.assert_array_equal(long[:, -1], correct.any(axis=1))


def test_miss_probability_is_exact_for_thousands_of_items() -> None:
    marked, total, n = 37, 20_000, 300
    found = miss_probability(np.array([marked]), total, n)[0, -1]
    assert found == pytest.approx(comb(total - marked, n) / comb(total, n), rel=1e-11)
