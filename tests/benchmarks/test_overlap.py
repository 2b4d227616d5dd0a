"""Which test questions resemble training questions, in made and in real sets."""

import gzip
import json

import pandas as pd

from headroom.benchmarks.overlap import COLUMNS, overlap


def questions(**texts: str) -> pd.DataFrame:
    return pd.DataFrame({"question_id": list(texts), "question": list(texts.values())})


def test_each_degree_is_told_and_the_strongest_counts() -> None:
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


def test_of_a_text_that_is_not_at_hand_only_the_id_is_compared() -> None:
    train, test = questions(a="", b=""), questions(b="", c="")
    found = overlap(train, test)
    assert found[["question_id", "degree"]].to_numpy().tolist() == [
        ["b", "same id"],
        ["c", "unknown"],
    ]


def test_few_questions_of_math500_resemble_the_training_set(headroom_data) -> None:
    def read(name: str) -> pd.DataFrame:
        path = headroom_data / name
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        return questions(**{row["unique_id"]: row["problem"] for row in rows})

    train, test = read("math_train.jsonl.gz"), read("math500.jsonl")
    found = overlap(train, test)
    counts = found["degree"].value_counts()
    print(dict(counts))
    assert "same id" not in counts
    texts = dict(zip(train["question_id"], train["question"], strict=True))
    for row in found[found["degree"] == "same text"].itertuples():
        own = test.set_index("question_id").loc[row.question_id, "question"]
        assert own.casefold().split() == texts[row.training_id].casefold().split()
    assert 0 < len(found) < 100
