"""Curves read off at numbers of tokens, held against plain loops and resamples."""

import numpy as np

from headsweep.statistics.budget import at_budgets, misses, reaches
from headsweep.statistics.intervals import Bootstrap

VALUES, TOKENS = np.array([[0.2, 0.5, 0.6]] * 2), np.array([[10.0, 30.0, 40.0]] * 2)
BASE = np.array([10.0, 10.0])


def test_values_at_a_budget_are_linear_and_end_where_the_curve_ends():
    budgets = (0.99, 1, 2, 3, 3.75, 4, 4.01)
    found = at_budgets(VALUES, TOKENS, BASE, budgets)
    wanted = [np.nan, 0.2, 0.35, 0.5, 0.575, 0.6, np.nan]
    np.testing.assert_allclose(found, [wanted] * 2)
    assert [reaches(TOKENS, BASE, budget) for budget in budgets] == [False, *[True] * 5, False]
    assert at_budgets(VALUES[:, :1], TOKENS[:, :1], BASE, [1]).tolist() == [[0.2], [0.2]]


def test_where_the_last_answers_have_no_tokens_the_curve_ends_with_all_of_them():
    tokens = np.array([[10.0, 30.0, 30.0]] * 2)
    found = at_budgets(VALUES, tokens, BASE, (2, 3, 3.01))
    np.testing.assert_allclose(found, [[0.35, 0.6, np.nan]] * 2)
    np.testing.assert_allclose(at_budgets(VALUES, 0 * TOKENS, 0 * BASE, [1]), [[0.6]] * 2)


def family(draw, questions=150, spread=0.2):
    """A family whose answers to a question are long or short together."""
    hardness = draw.beta(1, 1, (questions, 1))
    values = np.maximum.accumulate(draw.random((questions, 8)) > hardness, axis=1).astype(float)
    length = draw.lognormal(0, spread, (questions, 1))
    return values, (draw.integers(20, 60, (questions, 8)) * length).cumsum(axis=1)


def test_the_mean_is_the_curve_s_value_and_the_spread_that_of_resampled_curves():
    """Families whose tokens vary much: their places on the curves move with the questions."""
    draw = np.random.default_rng(3)
    families = [family(draw, spread=1.0), family(draw, spread=1.0)]
    base = draw.integers(20, 60, 150).astype(float)
    budgets = np.array([1.5, 2.2, 3])
    bootstrap = Bootstrap(150, 4000, seed=0)
    asked = np.multiply.outer(bootstrap.means(base), budgets)
    curves, numbers, unmoved = [], [], []
    for values, tokens in families:
        means = zip(asked, bootstrap.means(tokens), bootstrap.means(values), strict=True)
        curves.append(np.array([np.interp(*each) for each in means]))
        numbers.append(at_budgets(values, tokens, base, budgets.tolist()))
        at = budgets * base.mean()
        plain = np.interp(at, tokens.mean(axis=0), values.mean(axis=0))
        np.testing.assert_allclose(numbers[-1].mean(axis=0), plain)
        places = np.interp(at, tokens.mean(axis=0), np.arange(8))
        low = places.astype(int)
        mixed = values[:, low] + (places - low) * (values[:, low + 1] - values[:, low])
        unmoved.append(mixed)
    resampled = (curves[0] - curves[1]).std(axis=0)
    found = (numbers[0] - numbers[1]).std(axis=0) / np.sqrt(150)
    np.testing.assert_allclose(found, resampled, rtol=0.1)
    still = (unmoved[0] - unmoved[1]).std(axis=0) / np.sqrt(150)
    assert (np.abs(still / resampled - 1) > 0.15).any()  # where places stay, it is another


def test_a_curve_is_said_to_miss_a_budget_in_the_resamples_in_which_it_does():
    draw = np.random.default_rng(4)
    _, tokens = family(draw, 40)
    base = draw.integers(20, 60, 40).astype(float)
    bootstrap = Bootstrap(40, 300, seed=1)
    budgets = (1, 4, 7.5, 30)
    found = misses(tokens, base, budgets, bootstrap)
    weights = bootstrap.means(np.eye(40))
    for row, own in zip(found, weights, strict=True):
        first, last, asked = own @ tokens[:, 0], own @ tokens[:, -1], own @ base
        wanted = [not first <= budget * asked <= last for budget in budgets]
        assert row.tolist() == wanted
    assert 0 < found[:, 2].mean() < 1
    assert found[:, 3].all()
