import pytest

from headsweep.cli import solve
from headsweep.cli.solve import Solved, Solver, count_votes, to_json, to_text
from headsweep.config import Decoding
from headsweep.errors import ConfigError
from headsweep.grading import pool
from headsweep.grading.graders import GRADERS, Grader
from headsweep.grading.pool import read_texts
from headsweep.variants import Variant

HEADS = ["L03H01", "L00H05", "L02H02", "L01H04", "L02H00"]
TEXTS = ["it is 7", "no idea", r"that makes \boxed{6/2}", "so 3.0", "so 07"]
NUMBERS = ("numeric", "default")


def votes_of(heads, texts, grader, preset, scores=None):
    return count_votes(heads, texts, read_texts(texts, grader, preset), scores)


def test_equal_answers_are_one_candidate_and_a_verifier_outvotes_them_but_not_without_an_answer():
    candidates, agreement = votes_of(HEADS, TEXTS, *NUMBERS)
    found = [(one.answer, one.votes, one.heads) for one in candidates]
    assert found == [
        ("7", 2, ["L03H01", "L02H00"]),
        ("6/2", 2, ["L02H02", "L01H04"]),
        (None, 0, ["L00H05"]),
    ]
    assert [one.text for one in candidates] == ["it is 7", r"that makes \boxed{6/2}", "no idea"]
    assert agreement == pytest.approx(2 / 10)
    assert all(one.score is None for one in candidates)
    scores = [-3.0, 9.0, -2.5, -0.5, -4.0]  # the best text has no answer
    candidates, _ = votes_of(HEADS, TEXTS, *NUMBERS, scores)
    found = [(one.answer, one.score) for one in candidates]
    assert found == [("6/2", -0.5), ("7", -3.0), (None, 9.0)]


@pytest.mark.parametrize("grader", ["numeric", "exact"])
def test_only_the_workers_read_and_compare_what_heads_answer(grader, monkeypatch):
    monkeypatch.setitem(GRADERS, grader, Grader(None, None))  # here, not in the workers
    candidates, _ = votes_of(HEADS[:3], ["3", "03", "3.0"], grader, "default")
    assert [one.votes for one in candidates] == ([3] if grader == "numeric" else [1, 1, 1])


def test_mathematical_answers_are_compared_by_the_judge():
    texts = [r"\boxed{\frac{1}{2}}", r"\boxed{0.5}", r"\boxed{\frac{2}{4}}", r"\boxed{x}"]
    candidates, agreement = votes_of(HEADS[:4], texts, "math", "default")
    assert [one.votes for one in candidates] == [3, 1]
    assert agreement == pytest.approx(3 / 6)
    assert votes_of(HEADS[:1], TEXTS[:1], *NUMBERS)[1] is None


def test_a_result_is_shown_with_scores_where_there_are_some():
    text = to_text(Solved("3 + 4?", *votes_of(HEADS, TEXTS, *NUMBERS), "8"))
    assert "score" not in text
    assert "chosen: 7; the unpruned model: 8" in text
    assert "20% of the pairs of heads agree" in text
    scored, _ = votes_of(HEADS[:2], ["1", "2"], *NUMBERS, [0.25, 12.5])
    lines = to_text(Solved("?", scored, 0.0, None)).splitlines()
    assert [line.split() for line in lines[2:5]] == [
        ["answer", "heads", "pruned,", "nearest", "first", "votes", "score"],
        ["2", "L00H05", "1", "12.5"],
        ["1", "L03H01", "1", "0.25"],
    ]
    assert '"answer": "2"' in to_json(Solved("?", scored, 0.0, None))


class Echo:
    """A model whose base answers with the question, and without a head with the head's layer."""

    def run(self, unit):
        self.asked.append(len(unit.questions))
        for variant, (question, _) in unit.requests:
            text = unit.questions[question] if str(variant) == "base" else f"{variant.layer}"
            yield variant, {"question_id": question, "text": text, "stop_reason": "eos"}


def test_results_come_as_groups_are_answered_and_one_pool_reads_them(monkeypatch):
    solver = object.__new__(Solver)
    solver._selector = solver._embedder = solver._verifier = None
    solver._heads, solver._n = [Variant(3, 0), Variant(5, 0)], 2
    solver._decoding, solver._grader_name, solver._preset = Decoding(), *NUMBERS
    solver._folder, checked = "folder", []
    solver._worker = Echo()
    solver._worker.asked = asked = []
    monkeypatch.setattr(solve, "_TOGETHER", 2)
    monkeypatch.setattr(solve, "check_prompts", lambda *asked: checked.append(asked[:2]))
    monkeypatch.setattr(solve, "embed", lambda _, questions: questions)
    monkeypatch.setattr(solve, "rank_heads", lambda _, vectors: ([[1, 0]] * len(vectors), None))
    questions = ["what is 1", "what is 2", "what is 3"]
    results = solver.each(questions)
    first = next(results)
    assert asked == [2]  # the third question is not asked yet, but looked at
    assert checked == [("folder", {"1": questions[0], "2": questions[1], "3": questions[2]})]
    started = []
    monkeypatch.setattr(pool, "Worker", lambda *_: started.append(0))  # none is needed any more
    found = [first, *results]
    assert (asked, started) == ([2, 1], [])
    assert [each.question for each in found] == questions
    assert [each.base for each in found] == ["1", "2", "3"]
    assert [one.answer for one in first.candidates] == ["5", "3"]


def raising(question, texts):
    raise KeyError(question)


@pytest.mark.parametrize(
    ("verifier", "message"),
    [
        (lambda *_: None, "returned None for 2 texts; it has to return a number for each$"),
        (lambda *_: ["good", "bad"], r"returned \['good', 'bad'\] for 2 texts"),
        (lambda *_: [1.0], r"returned \[1.0\] for 2 texts"),
        (lambda *_: [1.0, float("nan")], r"returned \[1.0, nan\] for 2 texts"),
        (raising, r"failed for 2 texts \(KeyError: '1 \+ 1'\); it has to return a number"),
    ],
)
def test_a_verifier_that_scores_not_every_text_is_one_clear_line(verifier, message):
    with pytest.raises(ConfigError, match=message):
        solve._scores(verifier, "1 + 1", ["2", "3"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:f", "cannot be imported .*No module named 'nowhere'.*; write module:function"),
        ("math:nothing", "cannot be imported .*no attribute 'nothing'"),
        ("broken_verifier:f", "cannot be imported .*division by zero"),
        ("math:pi", "'math:pi' is no function; write module:function"),
    ],
)
def test_a_verifier_that_is_no_function_is_one_clear_line(tmp_path, monkeypatch, name, message):
    (tmp_path / "broken_verifier.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=message):
        solve._import(name)


@pytest.mark.parametrize("n", [0, -1])
def test_fewer_heads_than_one_are_refused(n):
    with pytest.raises(ConfigError, match=f"n: {n} heads are requested; ask for 1 or more"):
        Solver("nowhere", n=n)
