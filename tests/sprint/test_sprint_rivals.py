"""Rankers against loops and scikit-learn; what is planted is found."""

import numpy as np
import pytest
from simulated_heads import simulate
from sklearn.linear_model import LogisticRegression

from headroom.config import Selector
from headroom.sprint import methods
from headroom.sprint.baselines import greedy_cover
from headroom.sprint.rivals import Questions, by_neighbours, by_regression, by_subject, rankers
from headroom.sprint.validation import ranked_pass

KNOWN, ASKED, POOL = 83, 19, 7


@pytest.fixture(scope="module")
def sets() -> tuple[Questions, np.ndarray, Questions, np.ndarray]:
    known, asked = (simulate(n, POOL, 3, 13, seed=n) for n in (KNOWN, ASKED))
    subjects = [["algebra", "geometry"][row % 3 == 0] for row in range(KNOWN)]
    return (
        Questions({"e": known.embeddings}, subjects),
        known.correct,
        Questions({"e": asked.embeddings}, ["geometry"] * 4 + ["new"] * (ASKED - 4)),
        asked.correct,
    )


def test_neighbours_are_those_of_a_plain_loop(sets) -> None:
    known, correct, asked, _ = sets
    found = by_neighbours("e", 5)(known, correct, asked)
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
def test_regressions_are_those_of_scikit_learn(sets, penalty: float) -> None:
    known, correct, asked, _ = sets
    found = by_regression("e", penalty)(known, correct, asked)
    fitted = known.embeddings["e"]
    centre, scale = fitted.mean(axis=0), fitted.std(axis=0)
    fitted, others = ((one.embeddings["e"] - centre) / scale for one in (known, asked))
    chances = np.stack(
        [
            LogisticRegression(C=1 / (2 * penalty * KNOWN), tol=1e-8, max_iter=2000)
            .fit(fitted, column)
            .decision_function(others)
            for column in correct.T
        ],
        axis=1,
    )
    ordered = np.take_along_axis(chances, found, axis=1)
    assert (np.diff(ordered, axis=1) < 1e-2).all()  # near-ties may turn
    assert (found == np.argsort(-chances, axis=1)).mean() > 0.9


def test_a_subject_has_its_own_cover_and_a_new_one_that_of_all(sets) -> None:
    known, correct, asked, _ = sets
    found = by_subject(known, correct, asked)
    geometry = np.array(known.subjects) == "geometry"
    assert (found[:4] == greedy_cover(correct[geometry])).all()
    assert (found[4:] == greedy_cover(correct)).all()


def test_rivals_find_what_embeddings_reveal(sets) -> None:
    known, correct, asked, truth = sets
    options = Selector(
        model="m", train="a", test="b", embedder="e", layers="all", max_n=4, seeds=(1, 2)
    )
    found = rankers(known, correct, options)
    assert set(found) == set(methods.RIVALS)
    cover = np.broadcast_to(greedy_cover(correct), truth.shape)
    blind = ranked_pass(truth, cover, 1)[0]
    for method in (methods.NEAREST, methods.REGRESSION):
        order = found[method](known, correct, asked)
        assert (np.sort(order, axis=1) == np.arange(POOL)).all()
        assert ranked_pass(truth, order, 1)[0] > blind + 0.2
    nameless = Questions(known.embeddings, [None] * KNOWN)
    assert methods.BY_SUBJECT not in rankers(nameless, correct, options)
