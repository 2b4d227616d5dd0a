"""Which test questions resemble training questions, in made and in real sets."""

import pandas as pd

from headroom.benchmarks.overlap import COLUMNS, overlap


def questions(**texts: str) -> pd.DataFrame:
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
    )
    found = overlap(train, test)
    assert list(found.columns) == COLUMNS
    assert list(found.itertuples(index=False, name=None)) == [
        ("a", "same id", "a"),
        ("e", "same text", "a"),
        ("f", "other numbers", "b"),
        ("g", "8-grams", "c"),
    ]


def test_of_a_text_that_is_not_at_hand_only_the_id_is_compared():
    train, test = questions(a="", b=""), questions(b="", c="")
    found = overlap(train, test)
    assert found[["question_id", "degree"]].to_numpy().tolist() == [
        ["b", "same id"],
        ["c", "unknown"],
    ]
