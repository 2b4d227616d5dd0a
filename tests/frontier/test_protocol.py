"""The comparison of families, held against brute force and simulation."""

from itertools import combinations

import numpy as np
import pytest

from headroom.frontier.protocol import (
    Answers,
    Candidate,
    Chosen,
    Curve,
    Member,
    at_budget,
    choose,
    compare,
    complement,
    curve,
    primary_budget,
)
from headroom.statistics.bootstrap import Bootstrap
from headroom.statistics.paired import holm

QUESTIONS, MEMBERS, MAX_N = 7, 5, 4


def answers(seed: int, questions: int = QUESTIONS, members: int = MEMBERS) -> Answers:
    draw = np.random.default_rng(seed)
    group = draw.integers(-1, 3, (questions, members))
    tokens = draw.integers(3, 40, (questions, members))
    return Answers(group == 0, group, tokens)


def candidate(seed: int, scale: str = "", members: int = MEMBERS) -> Candidate:
    own = [Member(f"m{n}", 1 - n / 8, n / 10, 1 - n / 9) for n in range(members)]
    return Candidate(scale, own, answers(seed, 11, members), answers(seed + 100, members=members))


def chosen(seed: int, family: str = "head", *, exchangeable: bool = False) -> Chosen:
    return choose(family, family, [candidate(seed)], MAX_N, exchangeable=exchangeable)


def test_a_drawn_curve_is_the_mean_over_all_draws() -> None:
    found = chosen(3, exchangeable=True)
    test, members = found.candidate.test, found.candidate.members
    of = curve(found, 10.0, MAX_N, ordered=False)
    for n in range(1, MAX_N + 1):
        draws = [list(each) for each in combinations(range(MEMBERS), n)]
        passed = np.mean([test.correct[:, each].any(axis=1) for each in draws], axis=0)
        tokens = np.mean([test.tokens[:, each].sum(axis=1) for each in draws], axis=0)
        computed = np.mean(
            [
                sum(members[m].work * test.tokens[:, m] for m in each)
                + 10 * max(members[m].shared for m in each)
                + 10 * sum(members[m].own for m in each)
                for each in draws
            ],
            axis=0,
        )
        np.testing.assert_allclose(of.values["pass"][:, n - 1], passed)
        np.testing.assert_allclose(of.tokens[:, n - 1], tokens)
        np.testing.assert_allclose(of.computed[:, n - 1], computed)


def test_an_ordered_curve_takes_the_first_of_the_order_that_training_questions_chose() -> None:
    found = chosen(5)
    train = found.candidate.train.correct
    solved, order = np.zeros(len(train), bool), []
    for _ in range(MEMBERS):  # each solves the most that none before it solves
        left = [m for m in range(MEMBERS) if m not in order]
        order.append(max(left, key=lambda m: ((train[:, m] & ~solved).sum(), train[:, m].sum())))
        solved |= train[:, order[-1]]
    assert found.order == order
    test = found.candidate.test
    of = curve(found, 10.0, MAX_N, ordered=True)
    for n in range(1, MAX_N + 1):
        first = order[:n]
        assert (of.values["pass"][:, n - 1] == test.correct[:, first].any(axis=1)).all()
        assert (of.tokens[:, n - 1] == test.tokens[:, first].sum(axis=1)).all()


def test_what_is_chosen_does_not_depend_on_test_questions() -> None:
    candidates = [candidate(seed, str(seed)) for seed in (1, 2, 3)]
    found = choose("scaled", "", candidates, MAX_N, exchangeable=False)
    share = [
        np.mean(
            [
                each.train.correct[:, list(c)].any(axis=1).mean()
                for n in range(1, MAX_N + 1)
                for c in combinations(range(MEMBERS), n)
                for _ in range(60 // len(list(combinations(range(MEMBERS), n))))
            ]
        )
        for each in candidates
    ]  # every N weighs 60
    assert found.candidate is candidates[int(np.argmax(share))]
    other = [
        Candidate(each.scale, each.members, each.train, answers(seed + 40))
        for seed, each in enumerate(candidates)
    ]
    again = choose("scaled", "", other, MAX_N, exchangeable=False)
    assert (again.candidate.scale, again.order) == (found.candidate.scale, found.order)


def test_values_at_a_budget_are_linear_and_end_where_the_curve_ends() -> None:
    values, tokens = np.array([0.2, 0.5, 0.6]), np.array([10.0, 30.0, 40.0])
    for budget, expected in ((10, 0.2), (20, 0.35), (30, 0.5), (37.5, 0.575), (40, 0.6)):
        assert at_budget(values, tokens, np.array(budget)) == pytest.approx(expected)
    for budget in (9.9, 40.1):
        assert np.isnan(at_budget(values, tokens, np.array(budget)))
    many = at_budget(np.tile(values, (4, 1)), np.tile(tokens, (4, 1)), np.array([20, 5, 35, 40]))
    np.testing.assert_allclose(many, [0.35, np.nan, 0.55, 0.6])
    assert at_budget(values[:1], tokens[:1], np.array(10.0)) == 0.2


def test_holms_correction() -> None:
    np.testing.assert_allclose(holm(np.array([0.04, 0.01, 0.9, 0.02])), [0.08, 0.04, 0.9, 0.06])
    np.testing.assert_allclose(holm(np.array([0.6, 0.7])), [1.0, 1.0])


def simulated(draw: np.random.Generator, better: float = 0.0) -> dict[str, Curve]:
    """Families whose members solve a question with the same chance, which differs by question."""
    questions = 90
    chance = draw.beta(1, 1, (questions, 1))
    curves = {}
    for family in ("head", "scaled", "skip", "sampling"):
        lift = better * (family == "head")
        correct = draw.random((questions, 8)) < chance + (1 - chance) * lift
        group = np.where(correct, 0, draw.integers(-1, 4, correct.shape))
        group[~correct & (group == 0)] = 1
        tokens = draw.integers(20, 60, correct.shape)
        members = [Member(str(n)) for n in range(8)]
        both = Answers(correct, group, tokens)
        own = Chosen(family, "", Candidate("", members, both, both), True, [*range(8)])
        curves[family] = curve(own, 5.0, 8, ordered=True)
    return curves


def told_apart(better: float, rounds: int) -> float:
    """Return how often a family is told from sampling at 5%, over families and outcomes."""
    draw = np.random.default_rng(7)
    found = 0
    for number in range(rounds):
        curves = simulated(draw, better)
        base = draw.integers(20, 60, 90).astype(float)
        pairs = [(family, "sampling") for family in ("head", "scaled", "skip")]
        table = compare(curves, base, Bootstrap(90, 300, number), pairs, 4)
        assert (table["adjusted"].notna() == (table["budget"] == 4)).all()
        found += bool((table["adjusted"] < 0.05).any())
    return found / rounds


def test_equal_families_are_told_apart_in_a_twentieth_at_most_and_unlike_ones_are() -> None:
    assert told_apart(0.0, 300) <= 0.05
    assert told_apart(0.3, 30) > 0.8


def test_the_primary_budget_is_the_largest_that_all_reach() -> None:
    draw = np.random.default_rng(3)
    curves = simulated(draw)
    assert primary_budget(curves, 40.0) in (4, 8)
    head = curves["head"]
    short = {**curves, "head": Curve(head.values, head.tokens[:, :3], head.computed)}
    assert primary_budget(short, 40.0) == 2
    assert primary_budget(short, 1.0) is None


def test_two_families_at_half_each() -> None:
    families = [chosen(3), chosen(8, "skip"), chosen(13, "sampling", exchangeable=True)]
    curves = {each.family: curve(each, 5.0, MAX_N, ordered=True) for each in families}
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
    sampled = curves["sampling"].values["pass"][:, 1]
    assert mixed["both"] == pytest.approx((1 - missed * (1 - sampled)).mean())
