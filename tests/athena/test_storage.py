"""A dataset comes back from its table as it was divided."""

from pathlib import Path

import pytest

from headroom import paths
from headroom.athena.equations import (
    Constant,
    Equation,
    Negation,
    Number,
    Operation,
    evaluate,
)
from headroom.athena.generated import generate
from headroom.athena.problems import NUMBER, Problem
from headroom.athena.splits import Parts, divide, stratum
from headroom.athena.storage import read_parts, table
from headroom.config.compression import Partition
from headroom.tables import PROBLEMS, write_table

LEFT = Operation("-", Number(0), Operation("-", Number(1), Constant(0.1)))
EQUATIONS: list[Equation] = [
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


def test_parts_and_their_order_stay() -> None:
    parts = divide(generate(70, seed=2), Partition(ratios=(4, 1, 2)))
    rows = table(parts)
    assert stored(parts) == parts
    assert rows["part"].value_counts().to_dict() == {
        name: len(part) for name, part in parts._asdict().items()
    }
    assert rows["stratum"].tolist() == [stratum(p.equation) for part in parts for p in part]


@pytest.mark.parametrize("equation", EQUATIONS)
def test_an_equation_comes_back_as_the_same_tree(equation: Equation) -> None:
    numbers = (3.0, 0.7)
    problem = Problem(
        "a", f"{NUMBER} and {NUMBER} ?", 0, numbers, equation, evaluate(equation, numbers), "train"
    )
    parts = Parts([problem], [], [])
    assert stored(parts) == parts
