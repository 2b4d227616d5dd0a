"""Parts of a dataset: shares, strata, texts that are never divided; all come back from a table."""

from collections import Counter
from pathlib import Path

import pytest

from headroom import paths
from headroom.athena.equations import (
    NUMBER,
    Constant,
    Equation,
    Negation,
    Number,
    Operation,
    Problem,
    evaluate,
    parse,
)
from headroom.athena.generated import generate
from headroom.athena.problems import (
    Parts,
    complexity,
    divide,
    nesting,
    read_parts,
    stratum,
    table,
)
from headroom.config.compression import Partition
from headroom.errors import BenchmarkError
from headroom.tables import PROBLEMS, write_table

EQUATIONS = ("n0+n1", "n0*n1", "n0-n1*n2", "(n0+n1)*n2", "n0+n1+n2+n0", "((n0+n1)*n2-n1)/n0")


def problems(n: int, part: str = "train", copies: int = 1) -> list[Problem]:
    """Make problems; every text stands `copies` times."""
    return [
        Problem(
            problem_id=str(number),
            text=f"{number // copies} {NUMBER} {NUMBER} {NUMBER}",
            numbers=(1.0, 2.0, 5.0),
            equation=parse(EQUATIONS[(number // copies) % len(EQUATIONS)]),
            answer=1.0,
            part=part if part != "fold" else str(number % 5),
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


@pytest.mark.parametrize("expected", CLASSES)
def test_complexity_counts_operators_and_needed_brackets(expected):
    for equation in map(parse, CLASSES[expected]):
        assert f"{complexity(equation)} {nesting(equation)}" == expected
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


def test_official_parts_are_the_datasets_own():
    everything = problems(3, "train") + problems(4, "valid") + problems(5, "test")
    parts = divide(everything, Partition(protocol="official"))
    assert [len(part) for part in parts] == [3, 4, 5]


def test_own_folds_are_used_and_others_drawn():
    own = problems(500, "fold")
    parts = divide(own, Partition(protocol="folds", fold=3))
    assert {problem.part for problem in parts.test} == {"3"} and len(parts.test) == 100
    assert [len(part) for part in parts] == pytest.approx([360, 40, 100], abs=2)
    everything = problems(600)
    drawn = [divide(everything, Partition(protocol="folds", fold=fold)).test for fold in range(5)]
    assert sorted(int(p.problem_id) for fold in drawn for p in fold) == list(range(600))


def test_an_empty_part_is_refused():
    with pytest.raises(BenchmarkError, match="official leaves the dev part of 7 problems empty"):
        divide(problems(7), Partition(protocol="official"))


LEFT = Operation("-", Number(0), Operation("-", Number(1), Constant(0.1)))
TREES: list[Equation] = [
    Operation("+", Operation("+", Number(0), Number(1)), Number(0)),
    Operation("+", Number(0), Operation("+", Number(1), Number(0))),  # the same without brackets
    Operation("*", Number(0), Operation("/", Number(0), Number(1))),
    Negation(Operation("^", Number(0), Constant(2.0))),
    Operation("*", LEFT, Constant(1.25e-07)),
    Operation("/", Constant(1 / 3), Constant(1e22)),
]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def stored(parts: Parts) -> Parts:
    write_table(Path(paths.PROBLEMS.format(data="made-1")), table(parts), PROBLEMS)
    return read_parts("made-1")


def test_parts_and_their_order_stay():
    parts = divide(generate(70, seed=2), Partition(ratios=(4, 1, 2)))
    rows = table(parts)
    assert stored(parts) == parts
    assert rows["part"].value_counts().to_dict() == {
        name: len(part) for name, part in parts._asdict().items()
    }
    assert rows["stratum"].tolist() == [stratum(p.equation) for part in parts for p in part]


@pytest.mark.parametrize("equation", TREES)
def test_an_equation_comes_back_as_the_same_tree(equation):
    numbers = (3.0, 0.7)
    problem = Problem(
        "a", f"{NUMBER} and {NUMBER} ?", numbers, equation, evaluate(equation, numbers), "train"
    )
    parts = Parts([problem], [], [])
    assert stored(parts) == parts
