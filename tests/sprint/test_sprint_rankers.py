from itertools import combinations

import numpy as np
import pytest
from simulated_heads import options, simulate
from sklearn.linear_model import LogisticRegression

from headroom.sprint import methods
from headroom.sprint.rankers import (
    CRITERIA,
    Questions,
    by_neighbours,
    by_regression,
    by_subject,
    choose_shortlist,
    greedy_cover,
    rankers,
)

KNOWN, ASKED, POOL = 83, 19, 7


@pytest.fixture(scope="module")
def sets():
    known, asked = (simulate(n, POOL, 3, 13, seed=n) for n in (KNOWN, ASKED))
    subjects = [["algebra", "geometry"][row % 3 == 0] for row in range(KNOWN)]
    return (
        Questions(range(KNOWN), {"e": known.embeddings}, subjects),
        known.correct,
        Questions(range(ASKED), {"e": asked.embeddings}, ["geometry"] * 4 + ["new"] * (ASKED - 4)),
    )


def test_neighbours_are_those_of_a_plain_loop(sets):
    known, correct, asked = sets
    found = by_neighbours("e", 5, known, correct, asked)
    fitted = known.embeddings["e"]
    centre, scale = fitted.mean(axis=0), fitted.std(axis=0)
    for row, vector in enumerate((asked.embeddings["e"] - centre) / scale):
        cosines = [
            vector @ other / np.linalg.norm(vector) / np.linalg.norm(other)
            for other in (fitted - centre) / scale
        ]
        nearest = sorted(range(KNOWN), key=lambda one: -cosines[one])[:5]
        share = correct[nearest].mean(axis=0)
        wanted = sorted(range(POOL), key=lambda head: (-share[head], -correct[:, head].mean()))
        assert found[row].tolist() == wanted


@pytest.mark.parametrize("penalty", [0.01, 0.3])
def test_regressions_are_those_of_scikit_learn(sets, penalty):
    known, correct, asked = sets
    found = by_regression("e", penalty, known, correct, asked)
    fitted = known.embeddings["e"]
    centre, scale = fitted.mean(axis=0), fitted.std(axis=0)
    fitted, others = ((one.embeddings["e"] - centre) / scale for one in (known, asked))
    chances = np.empty((ASKED, POOL))
    for head, column in enumerate(correct.T):
        model = LogisticRegression(C=1 / (2 * penalty * KNOWN), tol=1e-8, max_iter=2000)
        chances[:, head] = model.fit(fitted, column).decision_function(others)
    ordered = np.take_along_axis(chances, found, axis=1)
    assert (np.diff(ordered, axis=1) < 1e-2).all()  # near-ties may turn
    assert (found == np.argsort(-chances, axis=1)).mean() > 0.9


def test_a_subject_has_its_own_cover_and_a_new_one_that_of_all(sets):
    known, correct, asked = sets
    found = by_subject(known, correct, asked)
    geometry = np.array(known.subjects) == "geometry"
    assert (found[:4] == greedy_cover(correct[geometry])).all()
    assert (found[4:] == greedy_cover(correct)).all()
    given = options(max_n=4, seeds=(1, 2))
    assert set(rankers(known, correct, given)) == set(methods.RIVALS)
    nameless = known._replace(subjects=[None] * KNOWN)
    assert methods.BY_SUBJECT not in rankers(nameless, correct, given)


def test_greedy_cover_equals_a_plain_loop_and_keeps_its_guarantee():
    for seed in range(20):
        z = np.random.default_rng(seed).random((29, 7)) < 0.25
        order = greedy_cover(z)
        assert sorted(order) == list(range(7))
        solved = set()
        for place, head in enumerate(order):
            gains = [len(set(np.flatnonzero(z[:, j])) - solved) for j in order[place:]]
            assert gains[0] == max(gains)
            tied = [j for j, gain in zip(order[place:], gains, strict=True) if gain == gains[0]]
            assert max(tied, key=lambda j: (z[:, j].sum(), -j)) == head
            solved |= set(np.flatnonzero(z[:, head]))
        best = max(z[:, list(three)].any(axis=1).sum() for three in combinations(range(7), 3))
        assert z[:, order[:3]].any(axis=1).sum() >= (1 - 1 / np.e) * best


def test_shortlist_choice_sees_the_test_questions_in_no_way():
    train, test = simulate(100, pool=9).correct, simulate(50, pool=9, seed=1).correct
    given = options(shortlist=(4, 2, 9, 11), max_n=6)
    chosen, sensitivity = choose_shortlist(train, test, given)
    same, other = choose_shortlist(train, ~test, given)
    np.testing.assert_array_equal(chosen, same)
    np.testing.assert_array_equal(sensitivity["held_out"], other["held_out"])
    assert (sensitivity["test"] != other["test"]).any()
    assert len(sensitivity) == 2 * 3 * 6
    assert list(sensitivity["k"].unique()) == [2, 4, 9]  # the pool's size at most
    means = sensitivity.groupby(["criterion", "k"], sort=False)["held_out"].mean()
    criterion, k = means.idxmax()
    assert set(sensitivity.loc[sensitivity["chosen"], "criterion"]) == {criterion}
    assert chosen.tolist() == CRITERIA[criterion](train)[:k].tolist()
    at = sensitivity.set_index(["criterion", "k", "n"])["test"]
    best = np.argsort(-train.sum(axis=0), kind="stable")[:2]
    assert at["individual accuracy", 2, 1] == pytest.approx(test[:, best].mean())
    assert at["individual accuracy", 2, 5] == pytest.approx(test[:, best].any(axis=1).mean())
