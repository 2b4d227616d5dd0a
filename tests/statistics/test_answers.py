from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb

import numpy as np
import pytest

from headroom.statistics.answers import (
    agreement_drawn,
    agreement_ordered,
    distinct_drawn,
    distinct_ordered,
    largest_drawn,
    largest_ordered,
    loops,
    majority_drawn,
    majority_ordered,
    miss_probability,
    pass_at_n_drawn,
    pass_at_n_ordered,
)

QUESTIONS, ANSWERS = 11, 8


@pytest.fixture
def group() -> np.ndarray:
    draw = np.random.default_rng(1)
    group = draw.integers(-1, 4, size=(QUESTIONS, ANSWERS))
    group[0] = -1
    group[1] = 2
    group[2] = np.arange(ANSWERS)
    return group


@pytest.fixture
def correct(group: np.ndarray) -> np.ndarray:
    correct = group == 2
    correct[3] = group[3] >= 2  # two right answers that were not seen to be equal
    return correct


def majority(group: Sequence[int], correct: Sequence[bool]) -> float:
    votes = Counter(label for label in group if label != -1)
    if not votes:
        return 0.0
    top = [label for label, count in votes.items() if count == max(votes.values())]
    right = dict(zip(group, correct, strict=True))
    return float(np.mean([right[label] for label in top]))


def distinct(group: Sequence[int], correct: Sequence[bool]) -> float:
    return len(set(group) - {-1})


def agreement(group: Sequence[int], correct: Sequence[bool]) -> float:
    pairs = list(combinations(group, 2))
    return float(np.mean([a == b != -1 for a, b in pairs])) if pairs else float("nan")


REFERENCES = {
    "pass": lambda _, correct: any(correct),
    "majority": majority,
    "distinct": distinct,
    "agreement": agreement,
}

WAYS: dict[str, tuple[Callable[..., np.ndarray], Callable[..., np.ndarray]]] = {
    "pass": (
        lambda _, correct, n: pass_at_n_drawn(correct, n),
        lambda _, correct, n: pass_at_n_ordered(correct, n),
    ),
    "majority": (majority_drawn, majority_ordered),
    "distinct": (
        lambda group, _, n: distinct_drawn(group, n),
        lambda group, _, n: distinct_ordered(group, n),
    ),
    "agreement": (
        lambda group, _, n: agreement_drawn(group, n),
        lambda group, _, n: agreement_ordered(group, n),
    ),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_drawn_answers_are_the_mean_over_all_subsets_and_ordered_ones_the_first(
    name: str, group: np.ndarray, correct: np.ndarray
) -> None:
    drawn, ordered = (way(group, correct, ANSWERS + 4) for way in WAYS[name])
    for curve in (drawn, ordered):  # beyond the number of answers it stays flat
        np.testing.assert_array_equal(curve[:, ANSWERS:], np.repeat(curve[:, [ANSWERS - 1]], 4, 1))
    reference: Callable[..., float] = REFERENCES[name]
    for question in range(QUESTIONS):
        for n in range(1, ANSWERS + 1):
            every = [
                reference(group[question, list(subset)], correct[question, list(subset)])
                for subset in combinations(range(ANSWERS), n)
            ]
            np.testing.assert_allclose(drawn[question, n - 1], np.mean(every), atol=1e-12)
            np.testing.assert_allclose(ordered[question, n - 1], every[0], atol=1e-12)


@pytest.mark.parametrize(
    ("group", "weight"),
    [
        ([0, 1, 1], [0.5, 0.25, 0.25]),  # a tie of groups that are not equally large
        ([0, 0, 0, 1, 1, 1], [0.1, 0.2, 0.3, 0.3, 0.2, 0.1]),  # sums that differ by rounding
    ],
)
def test_weighted_votes_that_tie_are_broken_at_random(
    group: list[int], weight: list[float]
) -> None:
    labels = np.array([group])
    found = majority_ordered(labels, labels == 0, len(group), np.array([weight]))
    assert found[0, -1] == pytest.approx(0.5)


def test_the_largest_value_is_that_of_every_draw_on_average() -> None:
    value = np.random.default_rng(4).integers(3, 30, size=(QUESTIONS, ANSWERS))
    drawn, first = largest_drawn(value, ANSWERS + 2), largest_ordered(value, ANSWERS + 2)
    for n in range(1, ANSWERS + 1):
        subsets = [value[:, list(chosen)].max(axis=1) for chosen in combinations(range(ANSWERS), n)]
        np.testing.assert_allclose(drawn[:, n - 1], np.mean(subsets, axis=0))
        np.testing.assert_array_equal(first[:, n - 1], value[:, :n].max(axis=1))
    np.testing.assert_allclose(drawn[:, -1], value.max(axis=1))


def test_miss_probability_is_exact_for_thousands_of_items() -> None:
    marked, total, n = 37, 20_000, 300
    found = miss_probability(np.array([marked]), total, n)[0, -1]
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
        ([], False),
    ],
)
def test_a_loop_is_one_phrase_at_the_end_over_and_over(tokens, expected):
    assert loops(np.array(tokens, np.int32)) is expected
