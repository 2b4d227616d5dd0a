"""Graded answers and the accuracy matrix."""

from pathlib import Path

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
    {
        "question_id": ["q3", "q1", "q2"],
        "split": "test",
        "subject": ["Algebra", None, "Geometry"],
        "level": [1, 5, 2],
        "question": ["?", "??", "???"],
        "answer": ["5", r"\frac{1}{2}", "x^2+1"],
        "solution": None,
        "source_row": [2, 0, 1],
    }
)


def answers(texts, samples=1):
    """Return an answer table; `texts` by question in the order q1, q2, q3, samples inside."""
    ids = [question_id for question_id in ("q1", "q2", "q3") for _ in range(samples)]
    return pd.DataFrame(
        {
            "question_id": ids,
            "sample": np.tile(np.arange(samples, dtype=np.int16), 3),
            "token_ids": [np.arange(len(text), dtype=np.int32) for text in texts],
            "text": texts,
            "stop_reason": "eos",
            "margin": np.float32(0.5),
        }
    )


GREEDY = {
    "L10H02": answers([r"\boxed{0.5}", r"\boxed{1+x^2}", r"\boxed{5}"]),
    "L02H11": answers([r"\boxed{\dfrac13}", "no box", r"\boxed{5.0}"]),
    "base": answers([r"\boxed{\frac{1}{2}}", r"\boxed{x}", r"\boxed{6}"]),
    "L02H03": answers([r"\boxed{1/3}", r"\boxed{ x }", r"\boxed{7}"]),
}


@pytest.fixture(scope="module")
def graded():
    return grade_answers(QUESTIONS, GREEDY, family="math", preset="default", workers=2)


def test_rows_come_by_variant_and_then_in_question_order(graded):
    assert list(graded["variant"]) == [
        name for name in ("base", "L02H03", "L02H11", "L10H02") for _ in range(3)
    ]
    assert list(graded["question_id"]) == ["q3", "q1", "q2"] * 4
    assert list(graded["tokens"][:3]) == [9, 19, 9]


def test_answers_have_their_verdict_and_their_group(graded):
    cells = graded.set_index(["question_id", "variant"])
    expected = {  # correct and group by variant: base, L02H03, L02H11, L10H02
        "q3": [(False, 1), (False, 2), (True, 0), (True, 0)],
        "q1": [(True, 0), (False, 1), (False, 1), (True, 0)],
        "q2": [(False, 1), (False, 1), (False, -1), (True, 0)],
    }
    for question_id, cell in expected.items():
        rows = cells.loc[question_id]
        assert list(zip(rows["correct"], rows["group"], strict=True)) == cell
    assert cells.loc[("q2", "L02H11"), "verdict"] == "no_answer"
    assert cells.loc[("q2", "L02H11"), "answer"] is np.nan
    assert (graded["verdict"] == "judged").sum() == 11


def test_the_matrix_has_base_first_and_then_layers_and_heads(graded):
    z = accuracy_matrix(graded, QUESTIONS)
    assert list(z.columns) == [*ACCURACY.names, "base", "L02H03", "L02H11", "L10H02"]
    assert list(z["question_id"]) == ["q3", "q1", "q2"]
    assert z.iloc[:, 3:].to_numpy().tolist() == [[0, 0, 1, 1], [1, 0, 0, 1], [0, 0, 0, 1]]
    assert (z.dtypes.iloc[3:] == np.int8).all()


def test_samples_of_the_base_model_have_a_column_each():
    texts = [r"\boxed{1/2}", r"\boxed{3}", *["?"] * 2, r"\boxed{5}", r"\boxed{5}"]
    table = grade_answers(
        QUESTIONS, {"base": answers(texts, samples=2)}, family="math", preset="authors"
    )
    z = accuracy_matrix(table, QUESTIONS)
    assert list(z.columns[3:]) == ["S00", "S01"]
    assert z.iloc[:, 3:].to_numpy().tolist() == [[1, 1], [1, 0], [0, 0]]


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
    names = {**batch.names, "config": config}
    grade(**names)
    own = store.of_sweep("own").read_bytes()
    grade(**names, grading="authors")
    assert store.of_sweep("own").read_bytes() == own
    found = {n: read_table(store.of_sweep(n), ACCURACY, exact=False) for n in sweeps}
    right = {n: z.set_index("question_id").loc[["q1", "q2", "q3"]] for n, z in found.items()}
    assert right["own"]["base"].tolist() == [1, 0, 0]
    assert right["own"]["L02H03"].tolist() == [1, 1, 1]
    assert right["other"]["base"].tolist() == [1, 1, 0]
    assert right["other"]["L02H03"].tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda table: table.iloc[:2],
        lambda table: pd.concat([table, table.iloc[:1]]),
        lambda table: table.assign(question_id=["q1", "q2", "q4"]),
        lambda table: table.assign(sample=[0, 0, 1]),
        lambda table: table.iloc[:0],
    ],
)
def test_a_variant_that_did_not_answer_the_question_set_is_named(damage):
    damaged = {**GREEDY, "L02H11": damage(GREEDY["L02H11"])}
    with pytest.raises(TableError, match=r"^variant L02H11 has \d answers that are not .*$"):
        grade_answers(QUESTIONS, damaged, family="math", preset="default")


def test_graded_answers_of_another_question_set_are_refused(graded):
    with pytest.raises(TableError, match=r"^graded answers to 3 questions .* of 2; .*$"):
        accuracy_matrix(graded, QUESTIONS.iloc[:2])
    with pytest.raises(TableError, match=r"^graded answers to 3 questions .* of 3; .*$"):
        accuracy_matrix(graded.iloc[1:], QUESTIONS)


def test_each_distinct_pair_is_judged_once_and_plain_integers_not_at_all(monkeypatch):
    asked = []

    def judge(pairs, preset, *, workers):
        asked.extend(pairs)
        return [matrix.Judgement("judged", False)] * len(pairs)

    monkeypatch.setattr(matrix, "judge_pairs", judge)
    grade_answers(QUESTIONS, GREEDY, family="math", preset="default")
    half = r"\frac{1}{2}"
    assert asked == [
        ("5.0", "5"),
        ("0.5", half),
        ("1/3", half),
        (r"\frac13", half),
        (half, half),
        ("1+x^2", "x^2+1"),
        ("x", "x^2+1"),
    ]
