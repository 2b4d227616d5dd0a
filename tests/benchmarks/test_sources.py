import gzip
import json
import logging
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headroom.benchmarks import sources
from headroom.benchmarks.sources import HubDataset, read_source
from headroom.config import Questions
from headroom.errors import BenchmarkError
from headroom.tables import QUESTIONS

MATH_ROWS = [
    {
        "problem": problem,
        "solution": rf"It is $\boxed{{{answer}}}$.",
        "answer": answer,
        "subject": subject,
        "level": level,
        "unique_id": unique_id,
    }
    for problem, answer, subject, level, unique_id in (
        ("What is $1+1$?", "2", "Algebra", 1, "test/algebra/7.json"),
        ("What is $2+2$?", "4", "Geometry", None, "test/geometry/5.json"),
        ("Wie groß ist $3+3$?", "6", "Number Theory", 5, "test/number_theory/3.json"),
    )
]
GSM8K_ROWS = [
    {"question": "How many?", "answer": "Count <<1000+1=1001>>1001.\n#### 1,001"},
    {"question": "How cold?", "answer": "Very.\n#### -12"},
]


def write_jsonl(file: Path, rows: list) -> str:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if file.suffix == ".gz":
        file.write_bytes(gzip.compress(text.encode()))
    else:
        file.write_text(text)
    return str(file)


def math500(file: Path | str, **more) -> Questions:
    return Questions(benchmark="math500", split="test", file=str(file), **more)


def gsm8k(file: Path | str, split: str = "test") -> Questions:
    return Questions(benchmark="gsm8k", split=split, file=str(file))


def changed(index: int, **values) -> list[dict]:
    """Return the MATH rows with some values of one row changed; ... removes a key."""
    rows = [dict(row) for row in MATH_ROWS]
    rows[index].update(values)
    return [{key: value for key, value in row.items() if value is not ...} for row in rows]


def test_a_math_file_becomes_a_question_table(tmp_path):
    rows = read_source(math500(write_jsonl(tmp_path / "questions.jsonl", MATH_ROWS)))
    assert rows.columns.tolist() == QUESTIONS.names
    assert rows["question_id"].tolist() == [row["unique_id"] for row in MATH_ROWS]
    assert rows["question"].tolist() == [row["problem"] for row in MATH_ROWS]
    assert rows["answer"].tolist() == ["2", "4", "6"]
    assert rows["subject"].tolist() == ["Algebra", "Geometry", "Number Theory"]
    assert rows["source_row"].tolist() == [0, 1, 2]


def test_gold_answers_of_gsm8k_are_numbers_without_commas_and_ids_name_split_and_row(tmp_path):
    rows = read_source(gsm8k(write_jsonl(tmp_path / "train.jsonl", GSM8K_ROWS), split="train"))
    assert rows["answer"].tolist() == ["1001", "-12"]
    assert rows["question_id"].tolist() == ["gsm8k/train/00000", "gsm8k/train/00001"]
    assert rows["solution"].tolist() == ["Count <<1000+1=1001>>1001.", "Very."]
    assert rows["subject"].isna().all() and rows["level"].isna().all()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (changed(1, answer=...), r"line 2 has no 'answer', only problem, solution, subject"),
        (changed(1, answer=None), r"line 2: answer is null"),
        (changed(1, answer=""), r'line 2: answer is "", not an answer'),
        (changed(0, answer=" None "), r'line 1: answer is " None "'),
        (changed(2, problem=" "), r'line 3: problem is " ", not a non-empty text'),
        (changed(0, level=6), r"line 1: level is 6, not a number from 1 to 5"),
        (changed(0, level=True), r"line 1: level is true"),
        (changed(2, unique_id="test/algebra/7.json"), r"'test/algebra/7.json' .*line 1.*line 3"),
        ([*MATH_ROWS, [1, 2]], r"line 4 is \[1, 2\], not an object"),
        ([], r"has no questions"),
    ],
)
def test_a_bad_row_is_refused_with_its_line(tmp_path, rows, message):
    file = write_jsonl(tmp_path / "questions.jsonl", rows)
    with pytest.raises(BenchmarkError, match=message) as error:
        read_source(math500(file))
    assert str(error.value).startswith(file)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("answer", ["42", "####", "#### ,"])
def test_a_gsm8k_row_without_final_number_is_refused_with_its_line(tmp_path, answer):
    rows = [GSM8K_ROWS[0], {"question": "?", "answer": answer}]
    with pytest.raises(BenchmarkError, match=r"line 2: answer is .* ends with '#### '"):
        read_source(gsm8k(write_jsonl(tmp_path / "test.jsonl", rows)))


ONE = json.dumps(MATH_ROWS[0]).encode()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.jsonl", b"\n\n{\n", r"line 3 is not JSON"),
        ("q.jsonl", ONE + b'\n{"problem": "\xff"}\n', r"line 2 is not JSON"),
        ("q.jsonl", b"\n \n", "has no questions"),
        ("q.jsonl.gz", ONE, r"[Nn]ot a gzipped file"),
        ("q.xlsx", b"PK", r"q\.xlsx is neither \.jsonl nor \.csv"),
        ("q.jsonl", None, r"q\.jsonl is missing"),
        ("q.jsonl", ..., r"q\.jsonl cannot be read \(Is a directory\)"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, name, content, message):
    if content is ...:
        (tmp_path / name).mkdir()
    elif content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BenchmarkError, match=message):
        read_source(math500(tmp_path / name))


def test_known_rows_without_answer_are_left_out_with_a_warning(tmp_path, caplog):
    rows = changed(1, unique_id="train/number_theory/7117.json", answer="")
    rows[2] |= {"unique_id": "train/algebra/25040.json", "answer": "None"}
    with caplog.at_level(logging.WARNING):
        kept = read_source(math500(write_jsonl(tmp_path / "questions.jsonl", rows)))
    assert kept["question_id"].tolist() == ["test/algebra/7.json"]
    assert "left out 2 rows: train/number_theory/7117.json" in caplog.text
    assert "train/algebra/25040.json" in caplog.text


def test_the_id_that_prm800k_gave_twice_is_kept_once_if_the_problem_is_the_same(tmp_path, caplog):
    twice = {"unique_id": "test/precalculus/24307.json", "problem": "One problem"}
    rows = [MATH_ROWS[0] | twice, MATH_ROWS[1] | twice, MATH_ROWS[2]]
    kept = read_source(math500(write_jsonl(tmp_path / "questions.jsonl", rows)))
    assert kept["source_row"].tolist() == [0, 2]
    assert "test/precalculus/24307.json (second copy)" in caplog.text
    rows[1]["problem"] = "Another problem"
    with pytest.raises(BenchmarkError, match="line 1 and again at line 2"):
        read_source(math500(write_jsonl(tmp_path / "questions.jsonl", rows)))


@pytest.fixture
def local_hub(tmp_path, monkeypatch):
    """Let the loader of the hub read folders on disk, and cache nothing outside the test."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")

    def put(benchmark: str, name: str | None, rows: list) -> None:
        folder = tmp_path / "hub" / benchmark
        (folder / (name or ".")).mkdir(parents=True)
        table = pa.Table.from_pylist(rows)
        pq.write_table(table, folder / (name or ".") / "test-00000-of-00001.parquet")
        files = f"{name}/test-*" if name else "test-*"
        card = f"configs:\n- config_name: {name or 'default'}\n  data_files:\n"
        card += f"  - split: test\n    path: {files}\n"
        (folder / "README.md").write_text(f"---\n{card}---\n")
        pinned = HubDataset(str(folder), name, "0" * 40)
        monkeypatch.setitem(sources.PINNED, benchmark, pinned)

    return put


def test_the_hub_and_a_file_give_the_same_questions(local_hub, tmp_path):
    local_hub("math500", None, MATH_ROWS)
    local_hub("gsm8k", "main", GSM8K_ROWS)
    math = read_source(Questions(benchmark="math500", split="test"))
    grade_school = read_source(Questions(benchmark="gsm8k", split="test"))
    file = write_jsonl(tmp_path / "questions.jsonl", MATH_ROWS)
    pd.testing.assert_frame_equal(math, read_source(math500(file)))
    file = write_jsonl(tmp_path / "test.jsonl", GSM8K_ROWS)
    pd.testing.assert_frame_equal(grade_school, read_source(gsm8k(file)))


def test_math_train_of_the_real_data_lacks_only_the_two_rows_without_answer(headroom_data, caplog):
    section = Questions(
        benchmark="math_train", split="train", file=str(headroom_data / "math_train.jsonl.gz")
    )
    rows = read_source(section)
    assert len(rows) == 11_998
    # Algebra, Intermediate Algebra, Prealgebra, Number Theory and so on.
    assert rows["subject"].value_counts().tolist() == [
        *(2807, 2101, 1994, 1347 - 2, 1308, 1236, 1207)
    ]
    assert rows["level"].value_counts().sort_index().tolist() == [958, 2152, 2618, 2776, 3494 - 2]
    assert rows["level"].isna().sum() == 2
    assert rows["question_id"].is_unique
    assert rows["question"].duplicated().sum() == 1
    assert "left out 2 rows: train/number_theory/7115.json" in caplog.text
    test_ids = read_source(math500(headroom_data / "math500.jsonl"))["question_id"]
    assert not set(test_ids) & set(rows["question_id"])
