"""Graded answers and the accuracy matrix."""

from itertools import product
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from example_config import VALUES
from headroom import paths, tables
from headroom.config import parse
from headroom.errors import TableError
from headroom.grading import matrix
from headroom.grading.matrix import accuracy_matrix, grade, grade_answers
from headroom.planning.batches import batches
from headroom.planning.store import Store
from headroom.tables import ACCURACY, ANSWERS, read_table, write_table

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
    judge = Mock(wraps=matrix.judge_pairs)
    monkeypatch.setattr(matrix, "judge_pairs", judge)
    graded = grade_answers(QUESTIONS, GREEDY, family="math", preset="default")
    half = r"\frac{1}{2}"
    halves = [(answer, half) for answer in ("0.5", "1/3", r"\frac13", half)]
    asked = [("5.0", "5"), *halves, ("1+x^2", "x^2+1"), ("x", "x^2+1")]  # and no plain integers
    assert judge.call_args.args[0] == asked
    order = [*product(VARIANTS, ["q3", "q1", "q2"])]
    assert list(zip(graded["variant"], graded["question_id"], strict=True)) == order
    assert list(graded["tokens"][:3]) == [9, 19, 9]
    cells = graded.set_index(["question_id", "variant"])
    expected = {  # correct and group by variant: base, L02H03, L02H11, L10H02
        "q3": [(False, 1), (False, 2), (True, 0), (True, 0)],
        "q1": [(True, 0), (False, 1), (False, 1), (True, 0)],
        "q2": [(False, 1), (False, 1), (False, -1), (True, 0)],
    }
    for question_id, cell in expected.items():
        rows = cells.loc[question_id]
        assert list(zip(rows["correct"], rows["group"], strict=True)) == cell
    assert cells.loc[("q2", "L02H11"), ["verdict", "answer"]].tolist() == ["no_answer", np.nan]
    assert (graded["verdict"] == "judged").sum() == 11
    z = accuracy_matrix(graded, QUESTIONS)
    assert list(z.columns) == [*ACCURACY.names, *VARIANTS]
    assert list(z["question_id"]) == ["q3", "q1", "q2"]
    assert z.iloc[:, 3:].to_numpy().tolist() == [[0, 0, 1, 1], [1, 0, 0, 1], [0, 0, 0, 1]]


def test_samples_of_the_base_model_have_a_column_each():
    texts = [r"\boxed{1/2}", r"\boxed{3}", *["?"] * 2, r"\boxed{5}", r"\boxed{5}"]
    table = grade_answers(QUESTIONS, {"base": answers(texts, samples=2)}, "math", "authors")
    z = accuracy_matrix(table, QUESTIONS)
    assert z[["S00", "S01"]].to_numpy().tolist() == [[1, 1], [1, 0], [0, 0]]


def test_a_batch_is_graded_by_two_rules_side_by_side(tmp_path, monkeypatch):
    """The first box counts for the authors, the last by default."""
    monkeypatch.chdir(tmp_path)
    sweep = {"model": "big", "questions": "test", "layers": [2], "heads": [3]}
    sweeps = {"own": sweep, "other": {**sweep, "grading": "authors"}}
    config = parse({**VALUES, "sweeps": sweeps, "selectors": {}, "comparisons": {}})
    store, (batch,) = Store(config), batches(config)
    write_table(store.path(paths.QUESTIONS, questions="test"), QUESTIONS, tables.QUESTIONS)
    texts = {
        "base": [r"\boxed{\frac{1}{2}}", r"\boxed{x^2+1} or \boxed{x}", r"\boxed{6}"],
        "L02H03": [r"\boxed{1} or \boxed{1/2}", r"\boxed{x^2+1}", r"\boxed{5}"],
    }
    for name, file in zip(texts, store.answers(batch), strict=True):
        write_table(Path(file), answers(texts[name]), ANSWERS)
    grade(config=config, **batch.names)
    own = store.of_sweep("own").read_bytes()
    grade(config=config, **batch.names, grading="authors")
    assert store.of_sweep("own").read_bytes() == own
    right = {"own": ([1, 0, 0], [1, 1, 1]), "other": ([1, 1, 0], [0, 1, 1])}
    for name, wanted in right.items():
        z = read_table(store.of_sweep(name), ACCURACY, exact=False).set_index("question_id")
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
            grade_answers(QUESTIONS, given, family="math", preset="default")
