from collections import Counter
from itertools import combinations, product
from math import comb

import numpy as np
import pytest

from headsweep.statistics import answers

QUESTIONS, ANSWERS = 11, 8
GROUP = np.random.default_rng(1).integers(-1, 4, size=(QUESTIONS, ANSWERS))
GROUP[:3] = np.array([[-1], [2], [0]]) + np.arange(ANSWERS) * [[0], [0], [1]]
CORRECT = GROUP == 2
CORRECT[3] = GROUP[3] >= 2  # two right answers that were not seen to be equal


def majority(group, correct):
    votes = Counter(label for label in group if label != -1)
    top = [label for label, count in votes.items() if count == max(votes.values())]
    right = dict(zip(group, correct, strict=True))
    return np.mean([right[label] for label in top]) if top else 0.0


def agreement(group):
    pairs = list(combinations(group, 2))
    return np.mean([a == b != -1 for a, b in pairs]) if pairs else np.nan


MEASURES = {  # what it is of, and one question's value
    "pass_at_n": ([CORRECT], any),
    "majority": ([GROUP, CORRECT], majority),
    "distinct": ([GROUP], lambda group: len({*group} - {-1})),
    "agreement": ([GROUP], agreement),
    "largest": ([GROUP], max),
}


@pytest.mark.parametrize("name", MEASURES)
def test_drawn_answers_are_the_mean_over_all_subsets_and_ordered_ones_the_first(name):
    given, reference = MEASURES[name]
    drawn, ordered = (
        getattr(answers, f"{name}_{way}")(*given, ANSWERS + 4) for way in ("drawn", "ordered")
    )
    for curve in (drawn, ordered):  # beyond the number of answers it stays flat
        np.testing.assert_array_equal(curve[:, ANSWERS:], np.repeat(curve[:, [ANSWERS - 1]], 4, 1))
    for question, n in product(range(QUESTIONS), range(1, ANSWERS + 1)):
        every = [
            reference(*(part[question, list(subset)] for part in given))
            for subset in combinations(range(ANSWERS), n)
        ]
        np.testing.assert_allclose(drawn[question, n - 1], np.mean(every), atol=1e-12)
        np.testing.assert_allclose(ordered[question, n - 1], every[0], atol=1e-12)


def test_miss_probability_is_exact_for_thousands_of_items():
    marked, total, n = 37, 20_000, 300
    found = answers.miss_probability(np.array([marked]), total, n)[0, -1]
    assert found == pytest.approx(comb(total - marked, n) / comb(total, n), rel=1e-11)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([1, 2, 3] + [7, 8, 9, 5] * 5, True),
        ([1, 2, 3] + [7, 8, 9, 5] * 5 + [7, 8], True),  # cut inside the phrase
        ([1, 2, 3] + [7, 8, 9, 5] * 5 + [1], False),
        (list(range(40)) + [0] * 19, False),  # shorter than 20 tokens
        (list(range(90)) * 4, True),
        (list(range(90)) * 3, False),
        (list(range(400)) * 4, True),  # a paragraph
        ([5], False),
        ([], False),
    ],
)
def test_a_loop_is_one_phrase_at_the_end_over_and_over(tokens, expected):
    assert answers.loops(np.array(tokens, np.int32)) is expected
