import gzip
import json

import pytest

from headroom.benchmarks.sources import read_source
from headroom.config import Questions, parse
from headroom.errors import BenchmarkError, ConfigError
from headroom.planning.inputs import resolve

CSV = (
    'q,a,topic,grade\r\n"What is 1, doubled?",2,Numbers,1\r\n'
    '"Who wrote\r\n""Emma""?",Austen,Books,\r\n'
)


def custom(**values) -> Questions:
    columns = {"question": "q", "answer": "a", "subject": "topic", "level": "grade"}
    return Questions(**{"benchmark": "custom", "split": "dev", "columns": columns, **values})


def test_a_table_of_ones_own_becomes_a_question_table(tmp_path):
    (tmp_path / "mine.csv").write_bytes(b"\xef\xbb\xbf" + CSV.encode())
    (tmp_path / "mine.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    rows = [
        {"q": "What is 1, doubled?", "a": 2, "topic": "Numbers", "grade": 1},
        {"q": 'Who wrote\r\n"Emma"?', "a": "Austen", "topic": "Books", "grade": None},
    ]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, *others = (
        read_source(custom(file=str(tmp_path / name)))
        for name in ("mine.csv", "mine.csv.gz", "mine.jsonl")
    )
    assert first["question"].tolist() == [row["q"] for row in rows]
    assert first["answer"].tolist() == ["2", "Austen"]
    assert first["subject"].tolist() == ["Numbers", "Books"]
    assert first["question_id"].tolist() == ["000000", "000001"]
    assert first["split"].unique().tolist() == ["dev"]
    assert first["level"].fillna(0).tolist() == [1, 0]
    for other in others:
        assert other.equals(first)


def test_a_column_may_name_the_split_of_each_row(tmp_path):
    file = tmp_path / "folds.jsonl"
    rows = [{"q": f"{n} + 1?", "a": n + 1, "fold": n % 3} for n in range(7)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"question": "q", "answer": "a", "split": "fold"}
    parts = [
        read_source(custom(file=str(file), columns=columns, split=str(fold))) for fold in range(3)
    ]
    assert [part["answer"].tolist() for part in parts] == [["1", "4", "7"], ["2", "5"], ["3", "6"]]
    assert parts[1]["source_row"].tolist() == [1, 4]
    with pytest.raises(BenchmarkError, match=r"has no questions whose fold is '3'"):
        read_source(custom(file=str(file), columns=columns, split="3"))
    with pytest.raises(BenchmarkError, match="has no 'part'"):
        read_source(custom(file=str(file), columns={**columns, "split": "part"}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q,a,topic\nx,1,t\n", "line 2 has no 'grade', only q, a, topic; the columns"),
        ("q,a,topic,grade\nx,1,t\n", "line 2 has more or fewer cells than the header"),
        ("q,a,topic,grade\nx,,t,2\n", 'line 2: a is "", not a non-empty text or number'),
        ("q,a,topic,grade\nx,1,t,7\n", "line 2: grade is .*, not a number from 1 to 5"),
        ('q,a,topic,grade\n"x,1,t,2\n', "is not CSV in UTF-8"),
        ("q,a,topic,grade\n\xff", "is not CSV in UTF-8"),
    ],
)
def test_a_table_that_is_not_what_the_config_says_is_refused(tmp_path, text, message):
    file = tmp_path / "mine.csv"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(BenchmarkError, match=message):
        read_source(custom(file=str(file)))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "a custom benchmark has a `file` or a `dataset`"),
        ({"file": "a.csv", "dataset": "me/mine"}, "and not both"),
        ({"file": "a.csv", "subset": "main"}, "`subset` is a part of a `dataset`"),
        ({"file": "a.csv", "grader": "guess"}, "Input should be 'math', 'numeric'"),
        ({"file": "a.csv", "columns": {"prompt": "q"}}, "unknown key 'questions.mine.columns.pro"),
        ({"file": "a.csv", "benchmark": "gsm8k", "split": "test"}, "`columns` belongs to bench"),
    ],
)
def test_a_custom_benchmark_is_described_whole_or_refused(values, message):
    section = {"benchmark": "custom", "split": "dev", "columns": {"question": "q"}, **values}
    with pytest.raises(ConfigError, match=message):
        parse(config(section))


def test_a_dataset_on_the_hub_has_to_be_pinned():
    section = {"benchmark": "custom", "split": "dev", "dataset": "me/mine", "revision": "main"}
    with pytest.raises(ConfigError, match=r"'main' is not a commit hash .*datasets/me/mine HEAD"):
        resolve(parse(config(section)))
    section["revision"] = "ab" * 20
    assert resolve(parse(config(section))).questions["mine"].grader == "math"


def config(section: dict) -> dict:
    return {"run": "own", "models": {}, "questions": {"mine": section}, "decodings": {}}
