"""ASDiv-A is made from the public ASDiv.xml as ATHENA prepared it."""

import json

import pytest

from headsweep.config.solvers import FETCH, WordProblems
from headsweep.errors import BenchmarkError
from headsweep.experiments.athena.equations import bracketed, evaluate, parse
from headsweep.experiments.athena.problems import read
from headsweep.store.revisions import check_revision

PROBLEM = """<Problem ID="{id}" Grade="1"><Body>{body}</Body><Question>{question}</Question>
<Solution-Type>{type}</Solution-Type><Answer>0</Answer><Formula>{formula}</Formula></Problem>"""
ROWS = (
    ("a-1", "Ann has twenty-two red, and 3 blue cups.", "How many?", "Addition", "22+3=25"),
    ("a-2", "She had 1,500 $ and spent 12.50 of it.", "Left?", "Subtraction", "1500-12.5=1487.5"),
    ("a-3", "5 boys and 5 girls share 40 nuts.", "Each?", "Common-Division", "40/(5+5)=4 (nuts)"),
    ("a-4", "A week has some days and 2 cups.", "How many?", "Multiplication", "7*2=14"),
    ("a-5", "Tom walks 2, 3, 4 and 5 miles.", "In all?", "Sum", "2+3+4+5=14"),
    ("a-6", "A square of side 4 and 6.", "Area?", "Geometry", "4*6=24"),
    ("a-7", "37 cakes for 3 people.", "Each?", "Floor-Division", "37/3=12 r1"),
)
EQUATIONS = {"a-1": "n0 + n1", "a-2": "n0 - n1", "a-3": "n2 / (n0 + n1)", "a-7": "n0 / n1"}


def of(folder, rows=ROWS):
    names = ("id", "body", "question", "type", "formula")
    problems = "".join(PROBLEM.format(**dict(zip(names, row, strict=True))) for row in rows)
    file = folder / "ASDiv.xml"
    file.write_text(f"<Corpus><ProblemSet>{problems}</ProblemSet></Corpus>", encoding="utf-8")
    return WordProblems(dataset="asdiv_a", file=str(file))


def test_problems_of_one_or_two_operations_over_numbers_of_the_text_are_taken(tmp_path, caplog):
    problems, dropped = read(of(tmp_path))
    assert {problem.problem_id: bracketed(problem.equation) for problem in problems} == {
        name: bracketed(parse(equation)) for name, equation in EQUATIONS.items()
    }
    assert not dropped
    first, second, third, last = problems
    assert first.text == "ann has [NUM] red , and [NUM] blue cups . how many ?"
    assert (first.numbers, second.numbers) == ((22, 3), (1500, 12.5))
    assert (third.answer, last.answer) == (4, pytest.approx(37 / 3))
    assert "no lists of ASDiv-A's problems" in caplog.text


def test_where_the_lists_stand_beside_it_the_problems_and_folds_are_theirs(tmp_path):
    lists = tmp_path / "nfolds" / "asdiv-a"
    lists.mkdir(parents=True)
    more = [(f"b-{place}", "2 and 3 cups.", "All?", "Sum", "2+3=5") for place in range(30)]
    names = [["a-3", "a-4"], *([] for _ in range(4))]
    for place, (name, *_) in enumerate(more):
        names[place % 5].append(name)
    for fold, of_fold in enumerate(names):
        (lists / f"fold{fold}.txt").write_text("\n".join(of_fold), encoding="utf-8")
    problems, dropped = read(of(tmp_path, (*ROWS, *more)))
    assert {problem.problem_id for problem in problems} == {"a-3", *(row[0] for row in more)}
    assert list(dropped) == ["a-4"]  # seven is no number of the text
    of_first = {problem.problem_id for problem in problems if problem.part == "0"}
    assert of_first == {*names[0]} - {"a-4"}


@pytest.mark.parametrize("text", ["<Corpus><Problem>", "<Corpus/>", "no XML"])
def test_what_is_no_asdiv_is_refused_in_one_line(tmp_path, text):
    settings = of(tmp_path)
    (tmp_path / "ASDiv.xml").write_text(text, encoding="utf-8")
    with pytest.raises(BenchmarkError, match=r"ASDiv\.xml .*(XML|Problem)") as raised:
        read(settings)
    assert "\n" not in str(raised.value)


def test_the_public_file_gives_every_problem_of_athenas_table_with_its_value(headsweep_data):
    text = (headsweep_data / "asdiv_a.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    problems, _ = read(WordProblems(dataset="asdiv_a", file=str(headsweep_data / "asdiv.xml")))
    found = {problem.problem_id: problem for problem in problems}
    assert len(found) == 1364
    for row in rows:
        numbers = list(map(float, row["Numbers"].split()))
        value = evaluate(parse(row["Equation"]), numbers)
        assert found[row["asdiv_id"]].answer == pytest.approx(value)


def test_a_missing_dataset_names_the_command_that_makes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for dataset, command in FETCH.items():
        settings = WordProblems(dataset=dataset, file=f"data/{dataset}")
        with pytest.raises(BenchmarkError, match="is missing; make it: `git clone") as raised:
            check_revision(f"problems.{dataset}", settings)
        assert command in str(raised.value)
