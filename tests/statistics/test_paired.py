import numpy as np
import pytest
from scipy import stats

from headroom.statistics.paired import (
    Component,
    false_discovery,
    mcnemar,
    paired_interval,
)


def of_counts(*pairs, questions=60):
    """Return differences in which head h gains and loses the given numbers of questions."""
    differences = np.zeros((questions, len(pairs)), np.int8)
    for head, (gained, lost) in enumerate(pairs):
        differences[:gained, head] = 1
        differences[gained : gained + lost, head] = -1
    return differences


def test_mcnemar_is_the_exact_binomial_test_of_the_changed_questions():
    pairs = [(0, 0), (1, 0), (7, 2), (2, 7), (5, 5), (0, 9), (21, 13)]
    found = mcnemar(of_counts(*pairs))
    for p, (gained, lost) in zip(found, pairs, strict=True):
        exact = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
        assert p == pytest.approx(exact)


def test_false_discovery_is_the_step_up_rule_of_benjamini_and_hochberg():
    p = np.array([0.01, 0.04, 0.03, 0.9, 0.002])
    ranked = np.sort(p) * 5 / np.arange(1, 6)
    by_hand = [min(ranked[np.sort(p).searchsorted(value) :]) for value in p]
    assert false_discovery(p) == pytest.approx(by_hand)
    assert len(false_discovery(np.array([]))) == 0


def test_the_formula_with_means_is_that_of_bonett_and_price():
    for gained, lost, n in ((0, 0, 40), (3, 1, 500), (20, 9, 61)):
        low, high = paired_interval(of_counts((gained, lost), questions=n))
        plus, minus = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
        half = stats.norm.ppf(0.975) * np.sqrt((plus + minus - (plus - minus) ** 2) / (n + 2))
        assert (low[0], high[0]) == pytest.approx((plus - minus - half, plus - minus + half))


@pytest.mark.parametrize(
    ("questions", "discordant", "answers"),
    [(500, 0.008, 1), (500, 0.03, 3), (200, 0.05, 8), (200, 0.3, 8), (1319, 0.01, 1)],
)
def test_the_interval_is_wrong_in_at_most_six_of_a_hundred(questions, discordant, answers):
    """Also where few questions tell two methods apart, and where outcomes are means over draws."""
    draw = np.random.default_rng(questions)
    gain = 0.4 * discordant  # 70% of the discordant questions are gained
    shape = (questions, 4000)
    sign = np.where(draw.random(shape) < 0.7, 1.0, -1.0)
    size = np.mean([draw.random(shape) < discordant for _ in range(answers)], axis=0)
    low, high = paired_interval(sign * size)
    assert np.mean((gain < low) | (high < gain)) <= 0.06


def test_an_interval_covers_what_else_varies():
    """A true gain of 0.1 that turns with a draw known from a few redraws."""
    draw = np.random.default_rng(0)
    wrong, blind = [], []
    for _ in range(2000):
        shifts = draw.normal(0, 0.03, size=6)
        differences = draw.choice([1, 0, -1], p=[0.2, 0.7, 0.1], size=(300, 1)) + shifts[0]
        known = Component(np.array([shifts[1:].var(ddof=1)]), 4)
        for found, components in ((wrong, [known]), (blind, [])):
            low, high = paired_interval(differences, components=components)
            found.append(not low[0] <= 0.1 <= high[0])
    assert np.mean(wrong) <= 0.06
    assert np.mean(blind) > 0.1


def test_the_paired_interval_of_one_change_in_few_questions_stays_within_bounds():
    low, high = paired_interval(of_counts((1, 0), (0, 3), (0, 0), questions=3))
    assert (low >= -1).all()
    assert (high <= 1).all()
    assert (low < 0).all()
