"""Which questions are drawn, and which test questions resemble training questions."""

import numpy as np
import pandas as pd
import pytest

from headroom.benchmarks.overlap import COLUMNS, overlap
from headroom.benchmarks.sources import CLUSTERS, draw
from headroom.config import Questions
from headroom.errors import BenchmarkError

SIZES = (31, 29, 23, 19, 17, 11, 5)
"""Questions in each of seven well separated groups."""


@pytest.fixture
def split():
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(len(SIZES)), SIZES))
    ids = [f"test/{index}" for index in range(len(groups))]
    return pd.DataFrame({"question_id": ids, "subject": groups.astype(str)})


@pytest.fixture
def vectors(split):
    """Embeddings [questions, 13]: a point for each group, and a little noise."""
    noise = np.random.default_rng(1).normal(scale=0.01, size=(len(split), 13))
    return (10 * np.eye(13)[split["subject"].astype(int)] + noise).astype(np.float32)


def asking(n, sampling="uniform", seed=0):
    how = {"n": n, "sampling": sampling, "seed": seed}
    how |= {"embedder": "any"} if sampling == "clusters" else {}
    return Questions(benchmark="math500", split="test", **how)


@pytest.mark.parametrize("sampling", ["first", "uniform", "clusters"])
def test_growing_n_keeps_the_questions_drawn_before(split, vectors, sampling):
    pd.testing.assert_frame_equal(draw(split, asking(None, sampling), None), split)
    before = set()
    for n in (1, 2, 7, 20, 61, len(split)):
        now = set(draw(split, asking(n, sampling), vectors)["question_id"])
        assert before < now
        before = now
    with pytest.raises(BenchmarkError, match=r"136 questions .* has 135; lower n"):
        draw(split, asking(136, sampling), vectors)


def test_the_seed_decides_the_draw_and_not_the_order_of_the_source(split, vectors):
    for sampling in ("uniform", "clusters"):
        drawn = [draw(split, asking(30, sampling, seed), vectors) for seed in (0, 0, 1, 2)]
        first, again, *others = (frozenset(rows["question_id"]) for rows in drawn)
        assert first == again and len({first, *others}) == 3
    drawn = draw(split.iloc[::-1], asking(40), None)
    assert set(drawn["question_id"]) == set(draw(split, asking(40), None)["question_id"])


def test_clusters_give_the_same_number_until_they_run_out(split, vectors):
    drawn = draw(split, asking(7 * CLUSTERS, "clusters"), vectors)
    # Turns 1 to 5 take one from each of seven; the smallest is then empty, so 14 more come from
    # the six others: two from each, and two from the first two.
    taken = drawn["subject"].value_counts()
    assert taken.pop("6") == 5
    assert sorted(taken) == [7, 7, 7, 7, 8, 8]


def questions(**texts):
    return pd.DataFrame({"question_id": list(texts), "question": list(texts.values())})


def test_each_degree_is_told_and_the_strongest_counts():
    long = "A train leaves the old station at noon and another one follows it an hour later"
    train = questions(a="What is 2 + 3?", b="Find x if $x = 1,200$.", c=long, d="Same here")
    test = questions(
        a="something else",
        e="what is  2 + 3?",
        f="Find x if $x = 7$.",
        g="Yesterday a train leaves the old station at noon and another one arrives",
        h="A bus leaves the old station at noon and another one comes back from the town hall",
        i="What is 2 * 3?",
        b="",
        j="",
    )
    found = overlap(train, test)
    assert list(found.columns) == COLUMNS
    assert list(found.itertuples(index=False, name=None)) == [
        ("a", "same id", "a"),
        ("e", "same text", "a"),
        ("f", "other numbers", "b"),
        ("g", "8-grams", "c"),
        ("b", "same id", "b"),  # where no text is at hand only the id is compared
        ("j", "unknown", ""),
    ]
