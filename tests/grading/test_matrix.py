"""Extraction and comparison of answers, graded answers and the accuracy matrix."""

import sys
from functools import partial
from itertools import product
from pathlib import Path
from typing import get_args
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from test_hostile import OF_NUMBERS, SOUND

from example_config import VALUES
from headsweep.choices import COMPARED, BenchmarkGrader
from headsweep.cli.solve import count_votes
from headsweep.config import parse
from headsweep.errors import TableError
from headsweep.files import tables
from headsweep.files.safe_files import read_table, write_table
from headsweep.files.tables import ACCURACY, ANSWERS
from headsweep.grading import distinct, pool, worker_process
from headsweep.grading.extraction import gradable
from headsweep.grading.graders import BENCHMARKS, GRADERS, Grader, find_grader, read
from headsweep.grading.matrix import accuracy_matrix, grade, grade_answers
from headsweep.grading.pool import Limits, read_texts
from headsweep.store.batches import batches
from headsweep.store.layout import Store

EQUAL = {
    ("numeric", "default"): [
        ("1,234", "1234", True),
        ("$ 12.50", "12.5", True),
        ("3/4", "0.75", True),
        (r"25\%", "25", True),
        ("007", "7", True),
        ("1000001", "1000000", False),
        ("-123456789", "-123456788", False),
        ("-0,012", "-12", True),
        ("3.1415926", "3.14159265", True),
        ("3.14", "3.14159265", False),
        ("-5", "5", False),
        ("five", "5", True),
        ("1/0", "1", False),
        ("nan", "nan", False),
        ("1e999", "1e999", True),
        ("9" * 100_000, "9", False),
    ],
    ("gsm8k", "authors"): [  # within a ten-thousandth
        *((answer, "18", True) for answer in ("18.00009", "17.9999", "1,8")),
        *((answer, "18", False) for answer in ("18.0002", "no")),
    ],
    ("exact", "default"): [
        ("  New\n York", "new york", True),
        ("New York City", "new york", False),
    ],
}


def test_every_grader_of_a_benchmark_of_one_s_own_is_described():
    assert set(COMPARED) == set(get_args(BenchmarkGrader)) == {"math", *GRADERS}


@pytest.mark.parametrize("rules", EQUAL)
def test_answers_are_compared_by_their_rules(rules):
    equal = find_grader(*rules).equal
    assert [(*case[:2], equal(*case[:2])) for case in EQUAL[rules]] == EQUAL[rules]


FOUND = {
    ("math", "default"): [
        (r"\boxed{3} or rather \boxed{4}", "4"),
        (r"\boxed{ 7 }", "7"),
        (r"\boxed {17}.", "17"),
        (r"our answer is \boxed 9.", "9"),
        (r"\fbox{B}", "B"),
        (r"\boxed{x = \boxed{6}}", "6"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ 1 \right.}", r"\left\{ 1 \right."),
        ("\\boxed{1\n+\n2}", "1\n+\n2"),
        (r"\boxed{}", None),
        (r"\boxed{\frac{1}{2}", None),
        (r"\boxed{3} and then \boxed{4", None),
        (r"\boxed", None),
        (r"\boxed}", "}"),
        (r"\boxedness{3}", None),
        ("no box, only 3", None),
    ],
    ("math", "authors"): [
        (r"\boxed{3} or rather \boxed{4}", "3"),
        (r"\boxed{}", ""),
        (r"\boxed{5 and on", "5 and on"),
        (r"\boxed{\frac{1}{2}", r"\frac{1}{2"),
        (r"\boxed 9", None),
        (r"\fbox{9}", None),
        (r"\boxed{\{1, 2\}} so", r"\{1, 2\}"),
        (r"\boxed{x \} y} z", "x \\"),
    ],
    ("gsm8k", "default"): [
        (r"2 + 3 makes \boxed{5}, not 6", "5"),
        ("she has 1,234 eggs and 7 hens", "7"),
        ("it costs $1,234,567.50.", "1234567.50"),
        ("that is -5", "-5"),
        ("so 16-9", "9"),
        ("a third is .5", ".5"),
        (r"\boxed{ but the answer is 8", "8"),
        ("#### 2,125", "2125"),
        ("none at all", None),
    ],
    ("gsm8k", "authors"): [
        ("The answer is: 42. I used 3 steps.", "3"),
        ("first 3, then 1,018", "1018"),
        ("The answer is: $-7,000", "-7000"),
        ("The answer is: unknown, between 3 and 4", "4"),
        (r"\boxed{5} so 6", "6"),
    ],
    ("choice", "default"): [
        (r"So it is \boxed{C}.", "C"),
        (r"\boxed{\text{(b)}}", "B"),
        ("(A) is tempting, but the answer is (D).", "D"),
        ("Option B would need more. Answer: e", "E"),
        ("Neither (A) nor (B), hence (C)", "C"),
        (" b. ", "B"),
        (r"**\text{ (b) }**", "B"),
        ("-" * 50 + " b", "B"),
        ("text{b}", None),
        ("The answer is: (is", None),
        ("The answer  is  (b", "B"),
        ("I do not know", None),
        (r"\boxed{12}", None),
        ("The answer is a prime. It is (C)", "C"),
        ("The correct answer is **B**.", "B"),
        ("**Answer:** D, because of (A)", "D"),
        (r"The answer is $\textbf{(C)}$ and not (A)", "C"),
        ("The answer is b. Not (A)", "B"),
        ("Choice: __e__ \nnot (A)", "E"),
        ("the answer is (c) and not (A)", "C"),
        ("My answer is *clear*: (D)", "D"),
    ],
    ("exact", "default"): [
        ("thinking\n\n  Paris \n", "Paris"),
        (r"\boxed{Rome} or so", "Rome"),
        (" \n ", None),
    ],
}


@pytest.mark.parametrize("rules", FOUND)
def test_the_final_answer_is_found(rules):
    extract = find_grader(*rules).extract
    assert [(text, extract(text)) for text, _ in FOUND[rules]] == FOUND[rules]


def test_answers_of_all_gold_solutions_of_math_and_gsm8k_are_found(headsweep_data):
    def read(*names):
        parts = [pd.read_json(headsweep_data / name, lines=True, dtype=False) for name in names]
        return pd.concat(parts, ignore_index=True)

    rows = read("math_train.jsonl.gz", "math500.jsonl")
    assert len(rows) == 12_500
    found = rows["solution"].map(find_grader("math", "default").extract)
    differing = rows[found != rows["answer"]]
    # An empty box holds no answer.
    assert differing["answer"].tolist() == ["", ""] and found[differing.index].isna().all()
    assert differing["unique_id"].str.fullmatch(r"train/number_theory/711[57]\.json").all()
    solutions = read("gsm8k_train.jsonl.gz", "gsm8k_test.jsonl")["answer"]
    assert len(solutions) == 8_792
    golds = solutions.str.rpartition("#### ")[2].str.replace(",", "")
    for preset in ("default", "authors"):
        assert solutions.map(find_grader("gsm8k", preset).extract).equals(golds)


QUESTIONS = pd.DataFrame(
    [("q3", "5", "Algebra", 1, 2), ("q1", r"\frac{1}{2}", None, 5, 0), ("q2", "x^2+1", "?", 2, 1)],
    columns=["question_id", "answer", "subject", "level", "source_row"],
).assign(split="test", question="?", solution=None)


def answers(texts, samples=1):
    """Return an answer table; `texts` by question in the order q1, q2, q3, samples inside."""
    table = pd.DataFrame({"question_id": np.repeat(["q1", "q2", "q3"], samples), "text": texts})
    table["sample"] = np.tile(np.arange(samples, dtype=np.int16), 3)
    table["token_ids"] = [np.arange(len(text), dtype=np.int32) for text in texts]
    return table.assign(stop_reason="eos", margin=np.float32(0.5))


VARIANTS = ["base", "L02H03", "L02H11", "L10H02"]
GREEDY = {
    "L10H02": answers([r"\boxed{0.5}", r"\boxed{1+x^2}", r"\boxed{5}"]),
    "L02H11": answers([r"\boxed{\dfrac13}", "no box", r"\boxed{5.0}"]),
    "base": answers([r"\boxed{\frac{1}{2}}", r"\boxed{x}", r"\boxed{6}"]),
    "L02H03": answers([r"\boxed{1/3}", r"\boxed{ x }", r"\boxed{7}"]),
}


def test_each_distinct_answer_is_judged_once_and_all_have_verdict_and_group(monkeypatch):
    judge = Mock(wraps=distinct.judge_pairs)
    monkeypatch.setattr(distinct, "judge_pairs", judge)
    graded = grade_answers(QUESTIONS, GREEDY, grader_name="math", preset="default")
    half = r"\frac{1}{2}"
    halves = [(answer, half) for answer in ("0.5", "1/3", r"\frac13", half)]
    asked = [("5.0", "5"), *halves, ("1+x^2", "x^2+1"), ("x", "x^2+1")]  # and no plain integers
    assert judge.call_args.args[0] == asked
    order = [*product(VARIANTS, ["q3", "q1", "q2"])]
    assert list(zip(graded["variant"], graded["question_id"], strict=True)) == order
    assert list(graded["tokens"][:3]) == [9, 19, 9]
    cells = graded.set_index(["question_id", "variant"])
    expected = {  # correct and group by variant: base, L02H03, L02H11, L10H02
        "q3": [(False, 0), (False, 1), (True, 2), (True, 2)],
        "q1": [(True, 0), (False, 1), (False, 1), (True, 0)],
        "q2": [(False, 0), (False, 0), (False, -1), (True, 1)],
    }
    for question_id, cell in expected.items():
        rows = cells.loc[question_id]
        assert list(zip(rows["correct"], rows["group"], strict=True)) == cell
    assert cells.loc[("q2", "L02H11"), ["verdict", "answer"]].tolist() == ["no_answer", np.nan]
    assert (graded["verdict"] == "judged").sum() == 11
    z = accuracy_matrix(graded, QUESTIONS)
    assert list(z.columns) == [*ACCURACY.columns, *VARIANTS]
    assert list(z["question_id"]) == ["q3", "q1", "q2"]
    assert z.iloc[:, 3:].to_numpy().tolist() == [[0, 0, 1, 1], [1, 0, 0, 1], [0, 0, 0, 1]]


ALIKE = [
    ["6/2", "3.0", "3", r"\frac{6}{2}", r"\dfrac62", "03", "$3.00", r"3\%"],
    ["0.5", r"\frac12", r"\frac{2}{4}", ".50", "1/2"],
    ["-1/2", r"-\frac{1}{2}", "-0.5"],
    ["1,200", "1200", r"1200.0"],
    ["1,2"],
    ["12"],
    [r"\frac{1}{0}"],
    ["x", " x "],
    ["9" * 500],
]


def test_answers_of_one_form_are_those_of_one_value_or_normal_text():
    graders = [find_grader(*of) for of in (("math", "default"), ("numeric", "default"))]
    for grader in graders:
        forms = [{grader.form(answer) for answer in alike} for alike in ALIKE]
        assert [len(form) for form in forms] == [1] * len(ALIKE)
        assert len(set.union(*forms)) == len(ALIKE)
    exact = find_grader("exact", "default").form
    assert exact("The  End") == exact("the end") != exact("the ends")
    assert exact("3.0") != exact("3")


def test_a_run_s_votes_merge_answers_as_solve_does_right_or_wrong():
    """Whatever the gold answer is."""
    texts = [rf"\boxed{{{answer}}}" for alike in ALIKE for answer in alike] + ["no box"]
    texts = np.random.default_rng(3).permutation(texts).tolist()
    heads = [f"L00H{number:02}" for number in range(len(texts))]
    readings = read_texts(texts, "math", "default")
    candidates, _ = count_votes(heads, texts, readings)
    of_solve = {head: number for number, own in enumerate(candidates) for head in own.heads}
    for gold in ("3", "x", "1/2"):
        asked = QUESTIONS.head(1).assign(answer=gold)
        given = {
            head: answers([text] * 3).head(1).assign(question_id=asked["question_id"].iloc[0])
            for head, text in zip(heads, texts, strict=True)
        }
        table = grade_answers(asked, given, "math", "default").set_index("variant")
        assert set(table.groupby("group")["answer"].size()) == {
            candidate.votes or 1 for candidate in candidates
        }
        pairs = {(table["group"][head], of_solve[head]) for head in heads}
        assert len(pairs) == len(candidates) == table["group"].nunique()
        assert table["group"].max() == len(candidates) - 2  # one has no answer


def test_samples_of_the_base_model_have_a_column_each():
    texts = [r"\boxed{1/2}", r"\boxed{3}", *["?"] * 2, r"\boxed{5}", r"\boxed{5}"]
    table = grade_answers(QUESTIONS, {"base": answers(texts, samples=2)}, "math", "authors")
    z = accuracy_matrix(table, QUESTIONS)
    assert z[["S00", "S01"]].to_numpy().tolist() == [[1, 1], [1, 0], [0, 0]]


@pytest.mark.parametrize("rules", [("math", "default"), ("numeric", "default")], ids=" ".join)
def test_only_the_workers_read_and_judge(rules, monkeypatch):
    for graders in (GRADERS, BENCHMARKS):
        for name in graders:
            monkeypatch.setitem(graders, name, Grader(None, None))  # here, not in the workers
    gold, right, wrong = [each.format(n=2) for each in SOUND.get(rules[0], OF_NUMBERS)]
    texts = [rf"\boxed{{{right}}}", rf"\boxed{{{wrong}}}", ""]
    table = grade_answers(QUESTIONS.assign(answer=gold), {"base": answers(texts)}, *rules)
    right = table.set_index("question_id")["correct"]
    assert right.to_dict() == {"q1": True, "q2": False, "q3": False}


HANGING = """
from headsweep.grading import worker

def loaded(step, family, preset, load=worker.load):
    perform = load(step, family, preset)

    def hang(text, *gold):
        while text == "hang":
            pass
        return perform(text, *gold)

    return hang

worker.load = loaded
worker.main()
"""


def test_a_text_that_cannot_be_read_in_time_counts_and_takes_no_other_with_it(monkeypatch):
    monkeypatch.setattr(worker_process, "_COMMAND", [sys.executable, "-P", "-c", HANGING])
    monkeypatch.setattr(pool, "Limits", partial(Limits, cpu_seconds=0.2))
    texts = ["5.0", "hang", "9.0"]
    table = grade_answers(
        QUESTIONS.assign(answer="5"), {"base": answers(texts)}, "numeric", "default"
    )
    rows = table.set_index("question_id")[["verdict", "correct", "group"]]
    assert rows.loc["q1"].tolist() == ["judged", True, 0]
    assert rows.loc["q2"].tolist() == ["timeout", False, -1]
    assert rows.loc["q3"].tolist() == ["judged", False, 0]
    assert table["answer"].isna().tolist() == [False, False, True]


def test_a_batch_is_graded_by_two_rules_side_by_side(tmp_path, monkeypatch):
    """The first box counts for the authors, the last by default."""
    monkeypatch.chdir(tmp_path)
    sweep = {"model": "big", "questions": "test", "layers": [2], "heads": [3]}
    sweeps = {"own": sweep, "other": {**sweep, "grading": "authors"}}
    config = parse({**VALUES, "sweeps": sweeps, "selectors": {}, "comparisons": {}})
    store = Store(config)
    (batch,) = batches(store).values()
    write_table(store.path(tables.QUESTIONS, questions="test"), QUESTIONS, tables.QUESTIONS)
    texts = {
        "base": [r"\boxed{\frac{1}{2}}", r"\boxed{x^2+1} or \boxed{x}", r"\boxed{6}"],
        "L02H03": [r"\boxed{1} or \boxed{1/2}", r"\boxed{x^2+1}", r"\boxed{5}"],
    }
    for name, file in zip(texts, batch.answers, strict=True):
        write_table(Path(file), answers(texts[name]), ANSWERS)
    grade(batch)
    own = store.of_sweep("own").read_bytes()
    grade(batch, grading="authors")
    assert store.of_sweep("own").read_bytes() == own
    right = {"own": ([1, 0, 0], [1, 1, 1]), "other": ([1, 1, 0], [0, 1, 1])}
    for name, wanted in right.items():
        z = read_table(store.of_sweep(name), ACCURACY).set_index("question_id")
        z = z.loc[["q1", "q2", "q3"]]
        assert (z["base"].tolist(), z["L02H03"].tolist()) == wanted


def test_a_variant_that_did_not_answer_the_question_set_is_named():
    table = GREEDY["L02H11"]
    for damaged in (
        table.iloc[[0, 1]],
        table.iloc[[0, 1, 2, 0]],
        table.assign(question_id=["q1", "q2", "q4"]),
        table.assign(sample=[0, 0, 1]),
        table.iloc[:0],
    ):
        given = {**GREEDY, "L02H11": damaged}
        with pytest.raises(TableError, match=r"^variant L02H11 has \d answers that are not .*$"):
            grade_answers(QUESTIONS, given, grader_name="math", preset="default")


CUT = [
    ("12 + 7 = 19", None, "19"),
    ("12 + 7 = 19. The answer is 19, because", "19", "19"),
    (r"so \boxed{19} is it. Let us check: 19 -", "19", "19"),
    ("12 + 7 = 19\n#### 19\nQ: A farmer has", "19", "19"),
    (r"so \boxed{1", None, "1"),
    ("<answer>19", "19", "19"),
]
"""Texts that end at the limit of tokens, with the answer that counts then and without the cut."""


@pytest.mark.parametrize(("text", "cut", "whole"), CUT)
def test_an_answer_that_was_cut_before_its_final_one_has_none(text, cut, whole):
    for preset, read_when_cut in (("default", cut), ("authors", whole)):
        for stop_reason, wanted in (("length", read_when_cut), ("eos", whole)):
            given = gradable(text, stop_reason, preset)
            assert given in (text, "")
            found = read(find_grader("gsm8k", "default"), given)
            assert (found and found[0]) == wanted


def test_an_answer_that_was_cut_before_its_final_one_counts_as_wrong():
    texts, cut, whole = zip(*CUT, strict=True)
    asked = pd.DataFrame({"question_id": [f"q{n}" for n in range(len(CUT))], "answer": "19"})
    for stop_reason, wanted in (("length", cut), ("eos", whole)):
        rows = pd.DataFrame({"question_id": asked["question_id"], "sample": 0, "text": texts})
        rows["token_ids"] = [[1]] * len(CUT)
        given = {"base": rows.assign(stop_reason=stop_reason, margin=0.5)}
        graded = grade_answers(asked, given, "gsm8k", "default")
        assert graded["correct"].tolist() == [answer == "19" for answer in wanted]
