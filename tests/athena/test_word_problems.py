"""Word problems: rows of the datasets, what is left out or refused, and parts of a dataset."""

import gzip
import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headsweep.config import parse as parse_config
from headsweep.config.solvers import Partition, WordProblems
from headsweep.errors import BenchmarkError
from headsweep.experiments.athena import problems as source
from headsweep.experiments.athena.equations import NUMBER, Problem, evaluate, infix, parse
from headsweep.experiments.athena.expressions import harvest, schedule
from headsweep.experiments.athena.generated import TEMPLATES, generate
from headsweep.experiments.athena.problems import (
    complexity,
    divide,
    nesting,
    operators,
    read_parts,
    stratum,
)
from headsweep.experiments.athena.solver import lenient, strict
from headsweep.files.safe_files import write_table
from headsweep.files.tables import PROBLEMS
from headsweep.store.layout import Store

CHINESE = {
    "id": "7",
    "segmented_text": "看 了 (1/6) ， 二 天 看 24 页 ， 是 第 3 天 的 150% ， 一共 多少 页 ．",
    "equation": "x=24*150%/(1-(1/6))",
    "ans": "43.2",
    "split": "valid",
}
ENGLISH = {
    "asdiv_id": "nluds-0064",
    "fold": 1,
    "Problem": "gino has [NUM] sticks . i have $[NUM] . what is the sum ?",
    "Numbers": "63 50",
    "Equation": "n0 + n1",
    "Answer": "113",
}


def read(folder, dataset, rows):
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return source.read(WordProblems(dataset=dataset, file=str(file)))


ROWS = [
    (CHINESE["segmented_text"], CHINESE["equation"], (1 / 6, 24, 3, 1.5), "n1*n3/(1-n0)"),
    ("A1 和 B23 距 3.5cm", "x=3.5+23", (3.5,), "n0+23"),
    ("( 3 / 8 ) 与 1(5/6)km 的 40%", "x=40%", (3 / 8, 11 / 6, 0.4), "n2"),
    ("12\ue003 个", "x=12", (12,), "n0"),
    ("3 5 3", "x=3*3", (3, 5, 3), "n0*n0"),
    ("75% (3/4)", "x=(3/4)*2", (0.75, 0.75), "n1*2"),
    ("3 4", "x=(3/4)*2", (3, 4), "n0/n1*2"),
    ("2", "x=3.14*2^2", (2,), "3.14*n0^2"),
    ("(1/3) 6", "x=0.33333*6", (1 / 3, 6), "n0*n1"),
]


@pytest.mark.parametrize(("text", "equation", "numbers", "expected"), ROWS)
def test_rows_of_math23k(tmp_path, text, equation, numbers, expected):
    row = CHINESE | {"segmented_text": text, "equation": equation}
    (problem,), _ = read(tmp_path, "math23k", [row])
    assert problem.numbers == pytest.approx(numbers)
    assert problem.text.split().count(NUMBER) == len(numbers)
    assert "\ue003" not in problem.text and "  " not in problem.text
    assert infix(problem.equation) == expected
    assert (problem.answer, problem.part) == (43.2, "valid")


def test_rows_of_asdiv_in_infix_and_in_prefix(tmp_path):
    prefixed = ENGLISH | {"asdiv_id": "nluds-0065", "Equation": "+ n0 n1"}
    (first, second), _ = read(tmp_path, "asdiv_a", [ENGLISH, prefixed])
    assert first.text == f"gino has {NUMBER} sticks . i have $ {NUMBER} . what is the sum ?"
    assert first.equation == second.equation == parse("n0+n1")
    assert (first.numbers, first.answer, first.part) == ((63.0, 50.0), 113.0, "1")


BAD = {
    "cannot be parsed": {"equation": "x=80千米/小时"},
    "power other than 2 or 3": {"equation": "x=24^5"},
    "is divided by 0": {"segmented_text": "( 3 / 0 ) 24"},
    "0 places for 0 numbers": {"segmented_text": "多少 页"},
}


def test_rows_that_cannot_be_used_are_left_out_with_their_reasons(tmp_path, caplog):
    rows = [CHINESE | {"id": str(number)} for number in range(90)]
    bad = [CHINESE | {"id": reason} | change for reason, change in BAD.items()]
    found, dropped = read(tmp_path, "math23k", [*rows, *bad])
    assert len(found) == 90 and dropped.keys() == BAD.keys()
    assert all(reason in why and "\n" not in why for reason, why in dropped.items())
    assert "left out 4 of 94 rows: cannot be parsed: " in caplog.text


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([CHINESE, CHINESE], "line 2: id '7' stands twice"),
        ([CHINESE | {"ans": 43.2}], "column 'ans' is 43.2, not text"),
        ([CHINESE | {"equation": "?"}], "1 of 1 rows cannot be used, such as 7: equation"),
    ],
)
def test_a_file_that_is_no_such_dataset_is_one_clear_line(tmp_path, rows, message):
    with pytest.raises(BenchmarkError, match=f"^.*{message}.*$"):
        read(tmp_path, "math23k", rows)


def test_the_hub_is_asked_for_all_three_splits(monkeypatch):
    asked = []

    def rows(hub, split):
        asked.append((hub.path, hub.revision, split))
        yield "row 1", CHINESE | {"id": split, "split": None}

    monkeypatch.setattr(source, "hub_rows", rows)
    found, _ = source.read(WordProblems(dataset="math23k", revision="abc"))
    assert asked == [("Gxg/Math23K", "abc", split) for split in ("train", "validation", "test")]
    assert [problem.part for problem in found] == ["train", "valid", "test"]


def test_generated_problems_whose_parts_stay_empty_are_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = parse_config(
        {"run": "few", "problems": {"few": {"dataset": "generated", "n": 5}}, "questions": {}}
    )
    refused = r"^problems\.few: protocol random leaves the dev part of 5 problems empty"
    with pytest.raises(BenchmarkError, match=refused):
        source.check_generated(Store(config))
    file = Store(config).path(PROBLEMS, data="few")
    with pytest.raises(BenchmarkError, match=refused):
        source.read_data(Store(config), file.stem)
    write_table(file, source.table(source.Parts(generate(5, seed=0), [], [])), PROBLEMS)
    source.check_generated(Store(config))  # an archived store has them already


def test_generated_problems_are_right_varied_and_stable():
    problems = generate(700, seed=3)
    assert problems[:50] == generate(50, seed=3)
    assert problems[:50] != generate(50, seed=4)
    assert len({infix(problem.equation) for problem in problems}) > len(TEMPLATES)
    assert {len(operators(problem.equation)) for problem in problems} == {1, 2}
    assert len({problem.text for problem in problems}) > 550
    for problem in problems:
        assert problem.answer == evaluate(problem.equation, problem.numbers) > 0
        assert problem.answer == int(problem.answer)
        assert "{" not in problem.text and problem.text.endswith("?")
    used = [len(set(infix(problem.equation)) & set("0123")) for problem in problems]
    distracted = sum(u < len(p.numbers) for u, p in zip(used, problems, strict=True))
    assert 250 < distracted < 450


def test_scoring_strictly_and_leniently():
    for predicted, gold, *right in (
        (5.0, 5.0, True, True),
        (5.05, 5.0, False, True),
        (5.11, 5.0, False, False),
        (0.3334, 1 / 3, True, True),
        (0.334, 1 / 3, False, True),
        (100_009.0, 100_000.0, True, False),
        (float("nan"), 0.0, False, True),
        (float("inf"), float("inf"), False, False),
    ):
        assert [strict(predicted, gold), lenient(predicted, gold)] == right


EQUATIONS = ("n0+n1", "n0*n1", "n0-n1*n2", "(n0+n1)*n2", "n0+n1+n2+n0", "((n0+n1)*n2-n1)/n0")


def problems(n, part="train", copies=1):
    return [
        Problem(
            str(number),
            f"{number // copies} {NUMBER} {NUMBER} {NUMBER}",
            (1.0, 2.0, 5.0),
            parse(EQUATIONS[(number // copies) % len(EQUATIONS)]),
            1.0,
            part if part != "fold" else str(number % 5),
        )
        for number in range(n)
    ]


CLASSES = {
    "low 0": ["n0", "n0+n1*n2", "(n0*n1)+n2", "n0+(n1-n2)", "n0^2+n1"],
    "medium 0": ["n0*n1+n2*n0"],
    "medium 1": ["n0-(n1-n2)", "n0/(n1*n2)", "n0*(n1+n2)*(n1+n0)", "(n0+n1)^2"],
    "high 0": ["n0+n1+n2+n0+n1+n2"],
    "high 2": ["n0/(n1-(n2-n0))"],
}


def test_complexity_counts_operators_and_needed_brackets():
    for expected, texts in CLASSES.items():
        assert {f"{complexity(e)} {nesting(e)}" for e in map(parse, texts)} == {expected}
    assert stratum(parse("n0*n1+n2*n0-n1")) == "medium *+-"


@pytest.mark.parametrize("copies", [1, 7])
def test_parts_keep_shares_and_strata_and_never_divide_a_text(copies):
    everything = problems(2100, copies=copies)
    parts = divide(everything, Partition(ratios=(7, 1, 2), seed=4))
    assert sorted(p.problem_id for part in parts for p in part) == sorted(
        p.problem_id for p in everything
    )
    for part, share in zip(parts, (0.7, 0.1, 0.2), strict=True):
        assert len(part) == pytest.approx(2100 * share, abs=2 * copies)
        for count in Counter(stratum(problem.equation) for problem in part).values():
            assert count == pytest.approx(350 * share, abs=3 * copies)
    texts = [{problem.text for problem in part} for part in parts]
    assert not texts[0] & texts[1] and not texts[0] & texts[2] and not texts[1] & texts[2]


def test_own_folds_are_used_and_others_drawn_and_no_part_is_empty(caplog):
    own = problems(500, "fold")
    parts = divide(own, Partition(protocol="folds", fold=3))
    assert {problem.part for problem in parts.test} == {"3"} and len(parts.test) == 100
    assert [len(part) for part in parts] == pytest.approx([360, 40, 100], abs=2)
    everything = problems(600)
    drawn = [divide(everything, Partition(protocol="folds", fold=fold)).test for fold in range(5)]
    assert sorted(int(p.problem_id) for fold in drawn for p in fold) == list(range(600))
    (shared, *_) = own
    assert not [record for record in caplog.records if "only in their numbers" in record.message]
    divide(
        [*own, replace(shared, problem_id="again", part="3")], Partition(protocol="folds", fold=3)
    )
    assert "1 of 101 test problems differ from others only in their numbers" in caplog.text
    with pytest.raises(BenchmarkError, match="official leaves the dev part of 7 problems empty"):
        divide(problems(7), Partition(protocol="official"))


TREES = [
    *("(n0+n1)+n0", "n0+(n1+n0)", "n0*(n0/n1)", "-(n0^2)", "(n0-(n1-0.1))*0.000000125"),
    "0.3333333333333333/10000000000000000000000",
]


def test_parts_their_order_and_every_tree_come_back_from_a_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drawn = divide(generate(70, seed=2), Partition(ratios=(4, 1, 2)))
    numbers, text = (3.0, 0.7), f"{NUMBER} and {NUMBER} ?"
    trees = [
        Problem(str(place), text, numbers, tree, evaluate(tree, numbers), "train")
        for place, tree in enumerate(map(parse, TREES))
    ]
    parts = drawn._replace(train=[*drawn.train, *trees])
    rows = source.table(parts)
    write_table(Path(PROBLEMS.path.format(data="made-1")), rows, PROBLEMS)
    assert read_parts("made-1") == parts
    sizes = {name: len(part) for name, part in parts._asdict().items()}
    assert rows["part"].value_counts().to_dict() == sizes
    assert rows["stratum"].tolist() == [stratum(p.equation) for part in parts for p in part]


def reached(problem, constants, depth):
    plan = schedule(problem.equation, len(problem.numbers), constants, depth)
    return plan.answer is not None


def wrong(problems):
    values = [(p.problem_id, evaluate(p.equation, p.numbers), p.answer) for p in problems]
    return [problem_id for problem_id, value, answer in values if not strict(value, answer)]


def test_every_row_of_the_real_asdiv_a(headsweep_data):
    found, dropped = source.read(
        WordProblems(dataset="asdiv_a", file=str(headsweep_data / "asdiv_a.jsonl"))
    )
    assert (len(found), dropped) == (1217, {})
    parts = divide(found, Partition(protocol="folds", fold=4))
    assert len(parts.test) == 266
    assert harvest(problem.equation for problem in parts.train) == ()
    assert Counter(len(operators(p.equation)) for p in found) == {1: 939, 2: 278}
    shares = Counter(complexity(problem.equation) for problem in found)
    assert shares == {"low": 1137, "medium": 80}
    assert all(reached(problem, (), depth=4) for problem in found)
    assert wrong(found) == []


NIGHTLY = "HEADSWEEP_NIGHTLY" in os.environ
PECULIAR = ["9718", "9761", "10431", "12495", "17520", "22085"]
"""Rows of Math23k that are dropped, or whose stated answer is not that of their equation."""


def test_every_row_of_the_real_math23k(headsweep_data, tmp_path):
    """At night; else every twelfth row and the peculiar ones."""
    with gzip.open(headsweep_data / "math23k.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    assert len(rows) == 23162
    chosen = rows if NIGHTLY else [r for r in rows if int(r["id"]) % 12 == 0 or r["id"] in PECULIAR]
    found, dropped = read(tmp_path, "math23k", chosen)
    assert list(dropped) == ["10431", "17520"]
    assert len(found) == len(chosen) - 2
    parts = divide(found, Partition(protocol="official"))
    assert [len(part) for part in parts] == ([21161, 999, 1000] if NIGHTLY else [1765, 97, 71])
    constants = harvest((p.equation for p in parts.train), at_least=5 if NIGHTLY else 2)
    assert constants == (1.0, 2.0, 3.14)
    counts = Counter(complexity(problem.equation) for problem in parts.test)
    strata = (413, 529, 58) if NIGHTLY else (29, 39, 3)
    assert counts == dict(zip(("low", "medium", "high"), strata, strict=True))
    assert np.mean([reached(problem, constants, depth=10) for problem in found]) >= 0.996
    assert wrong(found) == ["9718", "9761", "12495", "22085"]
