"""Labelled texts: read as GLUE and SQuAD write them, generated, divided, judged."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from headroom.config.texts import Texts
from headroom.errors import BenchmarkError
from headroom.tables import TEXTS, write_table
from headroom.texts.generated import generate
from headroom.texts.rows import Parts, hold_out, read
from headroom.texts.scoring import exact_match, f1
from headroom.texts.storage import read_parts, table
from headroom.texts.text import Text


def write(file: Path, rows: list[dict]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


def pairs(label: str, n: int = 40) -> list[dict]:
    return [{"premise": f"{label} {i} .", "hypothesis": f"h {i}", "gold": i % 3} for i in range(n)]


def test_pairs_with_labels_are_read_from_files(tmp_path: Path) -> None:
    rows = pairs("train")
    rows[7]["gold"] = -1
    settings = Texts(
        task="classification",
        files={
            "train": write(tmp_path / "train.jsonl", rows),
            "test": write(tmp_path / "test.jsonl", pairs("test", 5)),
        },
        columns={"text": ["premise", "hypothesis"], "answer": "gold"},
    )
    parts, dropped = read(settings)
    assert [(one.row, one.reason) for one in dropped] == [("train line 8", "it has no label")]
    assert (len(parts.train), len(parts.dev), len(parts.test)) == (35, 4, 5)
    assert parts.test[4] == Text("test/000004", "test 4 .", "h 4", ("1",))
    assert parts.test[4].stratum == "1"
    assert not {one.text for one in parts.train} & {one.text for one in parts.dev}
    assert read(settings).parts == parts


def question(own: str, context: str, *answers: str) -> dict:
    starts = [context.find(answer) for answer in answers]
    return {
        "id": own,
        "context": context,
        "question": "In which year did it end?",
        "answers": {"text": list(answers), "answer_start": starts},
        "title": "not needed",
    }


def test_questions_are_read_as_squad_writes_them(tmp_path: Path) -> None:
    rows = [question(str(i), f"It ended in {1900 + i} .", str(1900 + i)) for i in range(40)]
    rows[3]["answers"] = {"text": [], "answer_start": []}
    rows[5]["answers"]["answer_start"] = [2]
    file = write(tmp_path / "rows.jsonl", rows)
    with pytest.raises(BenchmarkError, match=r"train: 2 of 38 rows cannot be used, such as"):
        write(tmp_path / "short.jsonl", rows[:38])
        files = {"train": str(tmp_path / "short.jsonl"), "test": file}
        read(Texts(task="question_answering", files=files))
    files = {"train": file, "dev": file, "test": file}
    parts, dropped = read(Texts(task="question_answering", files=files))
    assert [one.reason for one in dropped[:2]] == [
        "it has no answer",
        "the answer '1905' does not stand at 2",
    ]
    text = parts.dev[0]
    assert (text.example_id, text.answers, text.starts) == ("dev/0", ("1900",), (12,))
    assert text.stratum == "which"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"sentence": "a", "label": 1}] * 2 + [{"text": "a"}], "line 3 has no 'sentence' but"),
        ([{"sentence": " ", "label": 1}], "1 of 1 rows cannot be used, such as train line 1: a te"),
        ([], "train: 0 of 0 rows cannot be used"),
    ],
)
def test_a_file_of_another_kind_is_one_clear_line(
    tmp_path: Path, rows: list[dict], message: str
) -> None:
    file = write(tmp_path / "rows.jsonl", rows)
    with pytest.raises(BenchmarkError, match=message) as error:
        read(Texts(task="classification", files={"train": file, "test": file}))
    assert "\n" not in str(error.value)


def test_ids_must_differ(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", [question("7", "a year", "year")] * 2)
    with pytest.raises(BenchmarkError, match="train line 2: id '7' stands twice"):
        read(Texts(task="question_answering", files={"train": file, "test": file}))


def test_rows_of_one_text_stay_together() -> None:
    texts = [Text(str(i), f"context {i // 5}", "who ?", ("a",), (0,)) for i in range(100)]
    kept, held = hold_out(texts, seed=3)
    assert len(held) == 10 and len({text.text for text in held}) == 2
    assert not {text.text for text in held} & {text.text for text in kept}
    assert hold_out(texts, seed=4)[1] != held


@pytest.mark.parametrize("task", ["classification", "question_answering"])
def test_generated_texts_are_true_and_stand_in_one_part(task: str) -> None:
    parts = generate(task, 200, seed=1)
    assert [len(part) for part in parts] == [140, 20, 40]
    texts = [text for part in parts for text in part]
    assert len({text.text for text in texts}) == 200 == len({text.example_id for text in texts})
    for text in texts:
        if task == "classification":
            words = text.text.split()
            assert text.answers == (min(("red", "blue"), key=words.index),)
        else:
            (answer,), (start,) = text.answers, text.starts
            before, after = text.text[:start].split(), text.text[start + len(answer) :].split()
            neighbours = {
                "who": after[:2] == ["took", "the"],
                "what": before[-2:] == ["took", "the"] and after[0] == "to",
                "where": before[-2:] == ["to", "the"] and after[0] == ".",
            }
            assert text.text[start:].startswith(answer) and neighbours[text.stratum]
    assert len({len(text.text.split()) for text in texts}) > 1
    assert generate(task, 200, seed=1) == parts != generate(task, 200, seed=2)
    strata = {"red", "blue"} if task == "classification" else {"who", "what", "where"}
    assert {text.stratum for text in texts} == strata


@pytest.mark.parametrize("second", [None, "who ?"])
def test_texts_come_back_from_a_table(tmp_path: Path, second: str | None) -> None:
    own = [Text("a", "ada and ben", second, ("ada", "ben"), (0, 8)), Text("b", "x", None, ("1",))]
    for parts in (Parts(own, own[:1], []), Parts(own[:1], [], [])):
        write_table(tmp_path / "texts.parquet", table(parts), TEXTS)
        assert read_parts(tmp_path / "texts.parquet") == parts


def test_so_many_texts_cannot_be_generated() -> None:
    with pytest.raises(BenchmarkError, match="is more than can be made; ask for at most"):
        generate("question_answering", 10**6, seed=0)


@pytest.mark.parametrize(
    ("answer", "gold", "exact", "share"),
    [
        ("The Eiffel Tower!", ["eiffel tower"], True, 1.0),
        ("in the tower", ["Eiffel Tower"], False, 0.5),
        ("a big red house", ["house", "red house of a man"], False, 4 / 7),
        ("", ["x"], False, 0.0),
        ("the", ["a"], True, 1.0),
        ("red red", ["red"], False, 2 / 3),
    ],
)
def test_answers_are_judged_as_squad_does(
    answer: str, gold: list[str], exact: bool, share: float
) -> None:
    assert exact_match(answer, gold) is exact
    assert f1(answer, gold) == pytest.approx(share)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "give either `dataset`"),
        ({"dataset": "generated"}, "generated texts take `n`"),
        ({"dataset": "a/b", "revision": "c", "n": 4}, "generated texts take `n`"),
        ({"dataset": "generated", "n": 4, "subset": "x"}, "belongs? to a `dataset` on the hub"),
        ({"dataset": "a/b"}, "a/b from the hub: give its `revision`"),
        ({"files": {"train": "a"}}, "name those of train and test"),
        (
            {
                "task": "question_answering",
                "dataset": "generated",
                "n": 4,
                "columns": {"text": ["context"]},
            },
            "name the columns of context and question",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Texts(**{"task": "classification", **settings})


def test_columns_have_the_names_of_the_published_datasets() -> None:
    made = Texts(task="classification", dataset="generated", n=3)
    assert (made.columns.text, made.columns.answer) == (("sentence",), "label")
    squad = Texts(task="question_answering", dataset="rajpurkar/squad", revision="f" * 40)
    assert (squad.columns.text, squad.columns.id) == (("context", "question"), "id")
    assert Texts.model_validate(squad.model_dump(mode="json")) == squad
