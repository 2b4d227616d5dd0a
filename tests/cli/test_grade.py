import json
import re

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headsweep.cli.main import main
from headsweep.grading import pool
from processes import python

ROWS = [
    {"question_id": "007", "answer": r"so \boxed{1/2}", "gold": "0.5", "by": "=a"},
    {"question_id": "-008", "answer": r"=3, so \boxed{-3a}", "gold": "-5a", "by": "b"},
    {"question_id": "009", "answer": "", "gold": "1.50", "by": "c"},
]
CAUSES = ["right", "wrong", "no answer"]


@pytest.fixture(autouse=True, scope="module")
def ended():
    yield
    pool.close_kept()


def written(file, rows):
    """Write rows as a user's own program would."""
    if file.suffix == ".jsonl":
        file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    elif file.suffix == ".csv":
        pd.DataFrame(rows).to_csv(file, index=False)
    else:
        pd.DataFrame(rows).to_parquet(file)
    return str(file)


def test_verdicts_stand_beside_their_answers_whatever_the_index_of_the_rows(tmp_path):
    rows = pd.DataFrame(ROWS)
    file, out = tmp_path / "some.parquet", tmp_path / "graded.csv"
    rows.iloc[1:].to_parquet(file)  # the index begins with 1
    assert main(["grade", str(file), "--out", str(out)]) == 0
    found = pd.read_csv(out, dtype=str, keep_default_na=False)
    assert list(found["cause"]) == CAUSES[1:]
    assert list(found["answer"]) == list(rows["answer"].iloc[1:].fillna(""))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_file_is_graded_and_its_columns_stay(suffix, tmp_path, capsys):
    file, out = written(tmp_path / f"mine{suffix}", ROWS), tmp_path / "graded.csv"
    assert main(["grade", file, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "33.3% of 3 answers are right (1 right, 1 wrong, 1 no answer)" in said
    found = pd.read_csv(out, dtype=str, keep_default_na=False)
    names = ["question_id", "answer", "gold", "by", "correct", "cause", "final_answer", "form"]
    assert list(found) == names
    assert list(found["cause"]) == CAUSES
    assert list(found["correct"]) == ["True", "False", "False"]
    assert list(found["final_answer"]) == ["1/2", "-3a", ""]
    assert list(found["form"]) == ["1/2", "-3a", ""]
    assert found[["answer", "by"]].equals(pd.DataFrame(ROWS)[["answer", "by"]])
    assert list(found["question_id"]) == ["007", "-008", "009"]
    assert list(found["gold"]) == ["0.5", "-5a", "1.50"]


def test_columns_and_grader_can_be_named_and_numbers_are_answers(tmp_path, capsys):
    rows = [{"said": 4.5, "right": "9/2"}, {"said": None, "right": 3}]
    file = written(tmp_path / "mine.jsonl", rows)
    options = ["--answer-column", "said", "--gold-column", "right", "--grader", "numeric"]
    assert main(["grade", file, *options, "--final"]) == 0
    assert "(1 right, 1 no answer)" in capsys.readouterr().out


def test_texts_as_bytes_are_texts_and_damaged_ones_are_named(tmp_path, capsys):
    rows = {"answer": [rb"\boxed{7}", b"8"], "gold": [b"7", b"7"]}
    pq.write_table(pa.table(rows), file := tmp_path / "bytes.parquet")
    assert main(["grade", str(file), "--grader", "numeric"]) == 0
    assert "50.0% of 2 answers are right" in capsys.readouterr().out
    pq.write_table(pa.table(rows | {"gold": [b"7", b"\xff"]}), file)
    assert main(["grade", str(file)]) == 2
    assert "row 2: bytes that are no UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("grader", ["exact", "numeric"])
def test_an_empty_answer_is_none_and_no_part_of_one_is_graded(grader, tmp_path, capsys):
    gold = "7" if grader != "exact" else "a"
    answers = ["", " ", f"{gold}}} is wrong, it is 8", f"8}} \\boxed{{{gold}", gold]
    rows = [{"answer": answer, "gold": gold} for answer in answers]
    file = written(tmp_path / "mine.jsonl", rows)
    assert main(["grade", file, "--grader", grader, "--final"]) == 0
    assert "(2 no answer, 2 wrong, 1 right)" in capsys.readouterr().out
    if grader == "exact":
        rows = [{"answer": r"It is" + "\n" + r"\boxed{}.", "gold": "b"}]
        assert main(["grade", written(tmp_path / "box.jsonl", rows), "--grader", grader]) == 0
        assert "(1 no answer)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "", r"a.txt is of no kind that is read; .* in .csv, .jsonl, .parquet"),
        ("b.csv", "answer,gold\n", "b.csv has no rows"),
        ("c.csv", "answer,right\n1,1\n", "no column 'gold', only answer, right; .* --gold-column"),
        ("d.csv", "answer,gold\n1,1\n2,\n", "d.csv has no gold answer in row 2"),
        ("j.csv", "answer,gold\n1,1\n2,2,3\n", "j.csv line 3 has more or fewer cells than"),
        ("k.csv", "answer,gold,answer\n1,1,2\n", "names the column 'answer' twice; rename one"),
        ("e.jsonl", '{"answer": 1}\n[1]\n', r"e.jsonl line 2 is \[1\], not an object"),
        ("g.jsonl", '{"answer": "\\ud83d", "gold": "1"}', r"line 1 holds half of a character"),
        (
            "h.jsonl",
            '{"answer": "1", "gold": "1"}\n{"answer": ["1", "2"], "gold": "1"}',
            r"h.jsonl row 2: answer holds \['1', '2'\]; write one text in each cell",
        ),
        ("i.jsonl", '{"answer": "1", "gold": {"a": 1}}', r"i.jsonl row 1: gold holds"),
        ("f.parquet", "PAR1", "f.parquet cannot be read"),
        ("missing.csv", None, "missing.csv cannot be read"),
    ],
)
def test_what_cannot_be_graded_is_refused_in_one_line(name, text, message, tmp_path, capsys):
    if text is not None:
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert main(["grade", str(tmp_path / name)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(message, line)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_byte_order_mark_is_no_part_of_a_name(suffix, tmp_path, capsys):
    file = tmp_path / f"mine{suffix}"
    rows = [{"answer": r"\boxed{1}", "gold": "1"}]
    written(file, rows)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert main(["grade", str(file)]) == 0
    assert "100.0% of 1 answers are right" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("graded.parquet", "is no CSV; give a file that ends in .csv"),
        ("mine.csv/graded.csv", "cannot be written (Not a directory); name another file"),
        ("folder.csv", "cannot be written (Is a directory); name another file"),
    ],
)
def test_where_nothing_can_be_written_nothing_is_graded(name, message, tmp_path, capsys):
    file = written(tmp_path / "mine.csv", ROWS)
    (tmp_path / "folder.csv").mkdir()
    assert main(["grade", file, "--out", str(tmp_path / name)]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""


def test_what_is_right_is_told_before_it_is_written(tmp_path, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headsweep.cli.grade.write_csv", full)
    file = written(tmp_path / "mine.csv", ROWS)
    assert main(["grade", file, "--out", str(tmp_path / "graded.csv")]) == 2
    printed = capsys.readouterr()
    assert "33.3% of 3 answers are right" in printed.out
    assert "cannot be written (No space left on device)" in printed.err


def test_grading_a_file_loads_no_torch(tmp_path):
    file = written(tmp_path / "mine.csv", ROWS)
    code = f"import sys; from headsweep.cli.main import main; main(['grade', {file!r}]); "
    found = python("-c", f"{code} print(*sys.modules)").split()
    assert "pandas" in found
    assert not {"torch", "transformers"} & {*found}
