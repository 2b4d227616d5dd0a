from itertools import combinations

import numpy as np
import pytest
from simulated_heads import made

from headroom.frontier import (
    Family,
    at_budget,
    choose,
    complement,
    curve,
    differences,
    primary_budget,
)
from headroom.sprint.evaluation import Answers, drawn, ordered
from headroom.sprint.experiment import costs_of
from headroom.sprint.rankers import greedy_cover
from headroom.statistics.intervals import Bootstrap, holm
from headroom.variants import Variant

QUESTIONS, MEMBERS, MAX_N = 7, 5, 4
SUBSETS = {n: [list(c) for c in combinations(range(MEMBERS), n)] for n in range(1, MAX_N + 1)}


def family(seed, name="head", scale="", test=100):
    members = [f"m{n}" for n in range(MEMBERS)]
    asked = made(11, MEMBERS, seed), made(QUESTIONS, MEMBERS, seed + test)
    return Family(name, scale, members, *asked)


@pytest.mark.parametrize("name", ["head", "sampling"])
def test_a_curve_is_that_of_the_cover_or_the_mean_of_draws(name):
    given = family(5, name)
    by_order = name == "head"
    order = greedy_cover(given.train.correct) if by_order else np.arange(MEMBERS)
    found = choose([given], MAX_N)
    assert found.members == [f"m{place}" for place in order]
    drawing = drawn(given.test, MAX_N)
    wanted = ordered(given.test.select(order), MAX_N) if by_order else drawing
    of = curve(found, 10.0, MAX_N, by_order=True)
    np.testing.assert_allclose(of["pass_at_n"], wanted["pass_at_n"])
    np.testing.assert_allclose(of["computed"], wanted["computed"] + 10 * wanted["prompts"])
    unordered = curve(found, 10.0, MAX_N, by_order=False)
    np.testing.assert_allclose(unordered["pass_at_n"], drawing["pass_at_n"])


def test_what_is_chosen_does_not_depend_on_test_questions():
    found, again = (
        choose([family(seed, scale=str(seed), test=test) for seed in (1, 2, 3)], MAX_N)
        for test in (100, 40)
    )
    assert (again.scale, again.members) == (found.scale, found.members)
    share = {}
    for seed in (1, 2, 3):
        right = family(seed).train.correct
        of_n = [np.mean([right[:, c].any(axis=1) for c in some]) for some in SUBSETS.values()]
        share[str(seed)] = np.mean(of_n)
    assert found.scale == max(share, key=share.get)


def test_a_variant_computes_the_layers_that_it_changes_and_those_above():
    costs = {"base": (1, 0), "L05H03": (0.25, 0.75), "W17S20": (0, 1), "L05K02": (0.25, 0.65)}
    for name, wanted in costs.items():
        assert costs_of(Variant.parse(name), 20) == pytest.approx(wanted)


def test_values_at_a_budget_are_linear_and_end_where_the_curve_ends():
    values, tokens = np.array([0.2, 0.5, 0.6]), np.array([10.0, 30.0, 40.0])
    found = at_budget(values, tokens, np.array([9.9, 10, 20, 30, 37.5, 40, 40.1]))
    np.testing.assert_allclose(found, [np.nan, 0.2, 0.35, 0.5, 0.575, 0.6, np.nan])
    assert at_budget(values[:1], tokens[:1], 10) == 0.2


def test_holms_correction():
    np.testing.assert_allclose(holm(np.array([0.04, 0.01, 0.9, 0.02])), [0.08, 0.04, 0.9, 0.06])
    np.testing.assert_allclose(holm(np.array([0.6, 0.7])), [1.0, 1.0])


def simulated(draw, better=0.0):
    """Families whose members solve a question with the same chance, which differs by question."""
    chance = draw.beta(1, 1, (90, 1))
    curves = {}
    for name in ("head", "scaled", "skip", "sampling"):
        lift = better * (name == "head")
        correct = draw.random((90, 8)) < chance + (1 - chance) * lift
        group = np.where(correct, 0, draw.choice([-1, 1, 2, 3], correct.shape))
        tokens = draw.integers(20, 60, correct.shape)
        both = Answers(correct, group, tokens, np.ones(tokens.shape), 0.0 * tokens)
        own = Family(name, "", list("abcdefgh"), both, both)
        curves[name] = curve(own, 5.0, 8, by_order=False)
    return curves


def told_apart(better, rounds):
    draw = np.random.default_rng(7)
    found, pairs = 0, [(name, "sampling") for name in ("head", "scaled", "skip")]
    for number in range(rounds):
        curves = simulated(draw, better)
        base = draw.integers(20, 60, 90).astype(float)
        table = differences(curves, base, Bootstrap(90, 300, number), pairs, 4)
        assert (table["adjusted"].notna() == (table["budget"] == 4)).all()
        found += bool((table["adjusted"] < 0.05).any())
    return found / rounds


def test_equal_families_are_told_apart_in_a_twentieth_at_most_and_unlike_ones_are():
    assert told_apart(0.0, 300) <= 0.05
    assert told_apart(0.3, 30) > 0.8


def test_the_primary_budget_is_the_largest_that_all_reach():
    curves = simulated(np.random.default_rng(3))
    assert primary_budget(curves, 40.0) in (4, 8)
    head = curves["head"]
    short = {**curves, "head": head | {"tokens": head["tokens"][:, :3]}}
    assert primary_budget(short, 40.0) == 2
    assert primary_budget(short, 1.0) is None


def test_two_families_at_half_each():
    families = [choose([family(*of)], MAX_N) for of in ((3,), (8, "skip"), (13, "sampling"))]
    curves = {each.name: curve(each, 5.0, MAX_N, by_order=True) for each in families}
    table = complement(families, curves, MAX_N, Bootstrap(QUESTIONS, 200, 0))
    assert len(table) == 3
    row = table.iloc[0]
    first, second = families[:2]
    both = first.test.correct[:, :2].any(axis=1) | second.test.correct[:, :2].any(axis=1)
    assert row["both"] == pytest.approx(both.mean())
    better = first if row["better"] == "head" else second
    assert row["alone"] == pytest.approx(better.test.correct[:, :MAX_N].any(axis=1).mean())
    assert row["low"] <= row["difference"] <= row["high"]
    mixed = table.iloc[1]  # drawn samples miss as independent draws do
    missed = 1 - first.test.correct[:, :2].any(axis=1)
    sampled = curves["sampling"]["pass_at_n"][:, 1]
    assert mixed["both"] == pytest.approx((1 - missed * (1 - sampled)).mean())
