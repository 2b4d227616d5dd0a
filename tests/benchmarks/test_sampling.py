import numpy as np
import pandas as pd
import pytest

from headroom.benchmarks.sampling import CLUSTERS, draw
from headroom.config import Questions
from headroom.errors import BenchmarkError
from headroom.tables import QUESTIONS

SIZES = (31, 29, 23, 19, 17, 11, 5)
"""Questions in each of seven well separated groups."""


@pytest.fixture
def split() -> pd.DataFrame:
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(len(SIZES)), SIZES))
    ids = [f"test/{index}" for index in range(len(groups))]
    rows = pd.DataFrame({"question_id": ids, "subject": groups.astype(str)})
    return rows.reindex(columns=QUESTIONS.names)


@pytest.fixture
def vectors(split) -> np.ndarray:
    """Embeddings [questions, 13]: a point for each group, and a little noise."""
    noise = np.random.default_rng(1).normal(scale=0.01, size=(len(split), 13))
    centres = 10 * np.eye(13)[: len(SIZES)]
    return (centres[split["subject"].astype(int)] + noise).astype(np.float32)


def asking(n: int | None, sampling: str = "uniform", seed: int = 0) -> Questions:
    embedder = "any" if sampling == "clusters" else None
    return Questions(
        benchmark="math500", split="test", n=n, sampling=sampling, seed=seed, embedder=embedder
    )


SAMPLINGS = pytest.mark.parametrize("sampling", ["first", "uniform", "clusters"])


@SAMPLINGS
def test_growing_n_keeps_the_questions_drawn_before(split, vectors, sampling):
    before: set[str] = set()
    for n in (1, 2, 7, 20, 61, len(split)):
        now = set(draw(split, asking(n, sampling), vectors)["question_id"])
        assert before < now
        before = now


@SAMPLINGS
def test_without_n_the_whole_split_is_drawn(split, sampling):
    pd.testing.assert_frame_equal(draw(split, asking(None, sampling), None), split)


@pytest.mark.parametrize("sampling", ["uniform", "clusters"])
def test_the_seed_decides_the_draw(split, vectors, sampling):
    draws = [
        frozenset(draw(split, asking(30, sampling, seed), vectors)["question_id"])
        for seed in (0, 0, 1, 2)
    ]
    assert draws[0] == draws[1]
    assert len(set(draws)) == 3


def test_a_uniform_draw_does_not_depend_on_the_order_of_the_source(split):
    other = split.iloc[::-1].reset_index(drop=True)
    mine = set(draw(split, asking(40), None)["question_id"])
    assert mine == set(draw(other, asking(40), None)["question_id"])


def test_clusters_give_the_same_number_until_they_run_out(split, vectors):
    drawn = draw(split, asking(7 * CLUSTERS, "clusters"), vectors)
    # Turns 1 to 5 take one from each of seven; the smallest is then empty, so 14 more come from
    # the six others: two from each, and two from the first two.
    taken = drawn["subject"].value_counts().sort_index()
    assert taken["6"] == 5
    assert sorted(taken[:6]) == [7, 7, 7, 7, 8, 8]


def test_more_questions_than_the_split_has_are_refused_with_both_numbers(split):
    with pytest.raises(BenchmarkError, match=r"136 questions .* has 135; lower n"):
        draw(split, asking(136), None)
