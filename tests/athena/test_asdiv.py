"""ASDiv-A is made from the public ASDiv.xml as ATHENA prepared it."""

import json
import shutil

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


def of(folder, names):
    """The settings of a file beside which the lists name so many problems a fold."""
    keys = ("id", "body", "question", "type", "formula")
    problems = "".join(PROBLEM.format(**dict(zip(keys, row, strict=True))) for row in ROWS)
    file = folder / "ASDiv.xml"
    file.write_text(f"<Corpus><ProblemSet>{problems}</ProblemSet></Corpus>", encoding="utf-8")
    write_lists(folder, names)
    return WordProblems(dataset="asdiv_a", file=str(file))


def write_lists(folder, names):
    lists = folder / "nfolds" / "asdiv-a"
    lists.mkdir(parents=True)
    for fold, of_fold in enumerate(names):
        (lists / f"fold{fold}.txt").write_text("\n".join(of_fold), encoding="utf-8")


MORE = [(f"b-{place}", "2 and 3 cups.", "All?", "Sum", "2+3=5") for place in range(30)]
ROWS += tuple(MORE)
LISTED = (
    ["a-1", "a-2", "a-3", "a-4", "a-7"],
    *([row[0] for row in MORE[place::4]] for place in range(4)),
)


def test_the_listed_problems_are_taken_with_their_folds_and_read(tmp_path):
    problems, dropped = read(of(tmp_path, LISTED))
    found = {problem.problem_id: problem for problem in problems}
    assert found.keys() == {*EQUATIONS, *(row[0] for row in MORE)}
    for name, equation in EQUATIONS.items():
        assert bracketed(found[name].equation) == bracketed(parse(equation))
    assert list(dropped) == ["a-4"]  # seven is no number of the text
    first, second, third, last = map(found.get, EQUATIONS)
    assert first.text == "ann has [NUM] red , and [NUM] blue cups . how many ?"
    assert (first.numbers, second.numbers) == ((22, 3), (1500, 12.5))
    assert (third.answer, last.answer) == (4, pytest.approx(37 / 3))
    of_first = {problem.problem_id for problem in problems if problem.part == "0"}
    assert of_first == {*EQUATIONS}


def test_a_file_without_the_lists_is_refused(tmp_path):
    settings = of(tmp_path, [])
    with pytest.raises(BenchmarkError, match=r"has no nfolds/asdiv-a beside it, .*; clone the wh"):
        read(settings)


@pytest.mark.parametrize("text", ["<Corpus><Problem>", "<Corpus/>", "no XML"])
def test_what_is_no_asdiv_is_refused_in_one_line(tmp_path, text):
    settings = of(tmp_path, LISTED)
    (tmp_path / "ASDiv.xml").write_text(text, encoding="utf-8")
    with pytest.raises(BenchmarkError, match=r"ASDiv\.xml .*(XML|Problem)") as raised:
        read(settings)
    assert "\n" not in str(raised.value)


def test_the_public_file_gives_the_problems_of_athenas_table_with_their_values(
    headsweep_data, tmp_path
):
    text = (headsweep_data / "asdiv_a.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    folds = sorted({row["fold"] for row in rows})
    write_lists(
        tmp_path, [[row["asdiv_id"] for row in rows if row["fold"] == fold] for fold in folds]
    )
    file = shutil.copy(headsweep_data / "asdiv.xml", tmp_path)
    problems, dropped = read(WordProblems(dataset="asdiv_a", file=str(file)))
    found = {problem.problem_id: problem for problem in problems}
    assert len(found) == len(rows) == 1217 and not dropped
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
