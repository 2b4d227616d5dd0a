from itertools import combinations

import numpy as np
import pytest
from simulated_heads import simulate

from headroom.config import Selector
from headroom.sprint.baselines import accuracy_order, choose_shortlist, greedy_cover, shortlists


def selector(**keys: object) -> Selector:
    return Selector(model="m", train="a", test="b", embedder="e", layers="all", **keys)


def test_greedy_cover_takes_what_adds_most_then_what_solves_most() -> None:
    z = np.array(
        [
            [1, 1, 0, 0, 0],
            [1, 1, 0, 0, 0],
            [1, 1, 0, 1, 0],
            [1, 0, 0, 1, 1],
            [0, 0, 1, 0, 0],
            [0, 0, 1, 0, 1],
        ],
        dtype=bool,
    )
    assert greedy_cover(z).tolist() == [0, 2, 1, 3, 4]
    assert accuracy_order(z).tolist() == [0, 1, 2, 3, 4]


def test_greedy_cover_equals_a_plain_loop_and_keeps_its_guarantee() -> None:
    for seed in range(20):
        z = np.random.default_rng(seed).random((29, 7)) < 0.25
        order = greedy_cover(z)
        assert sorted(order) == list(range(7))
        solved: set[int] = set()
        for place, head in enumerate(order):
            gains = [len(set(np.flatnonzero(z[:, j])) - solved) for j in order[place:]]
            assert gains[0] == max(gains)
            solved |= set(np.flatnonzero(z[:, head]))
        best = max(z[:, list(three)].any(axis=1).sum() for three in combinations(range(7), 3))
        assert z[:, order[:3]].any(axis=1).sum() >= (1 - 1 / np.e) * best


def test_a_shortlist_larger_than_the_pool_is_the_pool() -> None:
    z = simulate(30, pool=5).correct
    found = shortlists(z, (2, 5, 9))
    assert [(each.criterion, each.k) for each in found] == [
        ("joint cover", 2),
        ("joint cover", 5),
        ("individual accuracy", 2),
        ("individual accuracy", 5),
    ]
    assert found[2].heads == tuple(accuracy_order(z)[:2])


def test_shortlist_choice_sees_the_test_questions_in_no_way() -> None:
    train, test = simulate(100, pool=9).correct, simulate(50, pool=9, seed=1).correct
    options = selector(shortlist=(2, 4), max_n=6)
    chosen, sensitivity = choose_shortlist(train, test, options)
    same, other = choose_shortlist(train, ~test, options)
    assert chosen == same
    np.testing.assert_array_equal(sensitivity["held_out"], other["held_out"])
    assert (sensitivity["test"] != other["test"]).any()
    assert len(sensitivity) == 2 * 2 * 6
    means = sensitivity.groupby(["criterion", "k"])["held_out"].mean()
    assert means.idxmax() == (chosen.criterion, chosen.k)
    assert set(sensitivity.loc[sensitivity["chosen"], "k"]) == {chosen.k}


def test_expected_pass_of_random_heads_equals_simulated_draws() -> None:
    train, test = simulate(60, pool=8).correct, simulate(40, pool=8, seed=1).correct
    chosen, sensitivity = choose_shortlist(train, test, selector(shortlist=(5,), max_n=3))
    exact = sensitivity[sensitivity["chosen"] & (sensitivity["n"] == 3)]["test"].item()
    draw = np.random.default_rng(0)
    order = np.argsort(draw.random((4000, 40, 5)), axis=2)[:, :, :3]
    hits = np.take_along_axis(test[None, :, chosen.heads].repeat(4000, 0), order, axis=2).any(2)
    assert exact == pytest.approx(hits.mean(), abs=5 * hits.mean(axis=1).std() / 4000**0.5)
