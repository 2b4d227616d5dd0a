"""The benchmark of grading: its pairs, and what it prints."""

import json
import re
from pathlib import Path

import pytest

from headroom.bench.grading import _golds, answers, run
from headroom.errors import BenchmarkError
from headroom.grading.judge import canonical


def test_half_of_the_pairs_of_math_are_distinct(headroom_data: Path) -> None:
    pairs = answers(_golds(headroom_data / "math_train.jsonl.gz")[:1500], 33, seed=0)
    assert len({(canonical(answer), canonical(gold)) for answer, gold in pairs}) >= len(pairs) / 2


def test_pairs_follow_from_the_seed() -> None:
    golds = ["12", r"\frac{3}{4}", "x+1"]
    assert answers(golds, 5, seed=1) == answers(golds, 5, seed=1) != answers(golds, 5, seed=2)
    assert [gold for _, gold in answers(golds, 2, seed=1)] == golds * 2


def test_it_prints_both_times_and_compares_the_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "golds.jsonl"
    golds = ("7", r"\frac{1}{2}", "(1,2]", r"2\sqrt{3}", "unused")
    file.write_text("".join(json.dumps({"answer": gold}) + "\n" for gold in golds))
    run(file=file, questions=4, variants=3, baseline=5, workers=1, seed=0)
    first, baseline, *graded = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"12 pairs, \d+ distinct, \d+ in canonical form", first)
    assert baseline.endswith("of 5 pairs")
    assert len(graded) == 1
    assert all(line.endswith("0 pairs given up; 0 of 5 verdicts differ") for line in graded)


def test_a_file_without_answers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{}\n")
    with pytest.raises(BenchmarkError, match=r"bad.jsonl cannot be read .*name a file"):
        _golds(tmp_path / "bad.jsonl")
