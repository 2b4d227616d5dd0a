"""Word problems divided into parts, and kept as a table: once, then the same for every job.

A stratum is a complexity with a set of operators; every part keeps the shares of the strata.
Problems with the same masked text are one problem with other numbers: they always share a part.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

import pandas as pd

from headroom import paths
from headroom.athena.equations import (
    Constant,
    Equation,
    Negation,
    Number,
    Operation,
    Problem,
    infix,
    parse,
    walk,
)
from headroom.athena.problems import Dropped, read
from headroom.config import Config
from headroom.config.compression import Partition
from headroom.errors import BenchmarkError
from headroom.planning.store import Store
from headroom.record import Stopwatch, write_record
from headroom.tables import PROBLEMS, atomic, read_table, write_table

_LOG = logging.getLogger(__name__)

Complexity = Literal["low", "medium", "high"]

_FOLDS = 5
_DEV_OF_FOLDS = (1, 9)  # development part, training part
_OFFICIAL = ("train", "valid", "test")


class Parts(NamedTuple):
    """The parts of a dataset."""

    train: list[Problem]
    dev: list[Problem]
    test: list[Problem]


def read_data(config: Config, data: str) -> None:
    """Read the dataset with a key, divide it, and write its rows and what was left out."""
    stopwatch = Stopwatch()
    name = Store(config).name("data", data)
    settings = config.problems[name]
    problems, dropped = read(settings)
    parts = divide(problems, settings.partition)
    sizes = {part: len(rows) for part, rows in parts._asdict().items()}
    output, left_out = (Path(path.format(data=data)) for path in (paths.PROBLEMS, paths.DROPPED))
    write_table(output, table(parts), PROBLEMS)
    with atomic(left_out) as temporary:
        pd.DataFrame(dropped, columns=Dropped._fields).to_csv(temporary, index=False)
    for file in (left_out, output):
        facts = {"data": settings.model_dump(mode="json"), "rows": sizes, "dropped": len(dropped)}
        write_record(file, stopwatch, facts)
    told = ", ".join(f"{count} rows in {part}" for part, count in sizes.items())
    _LOG.info("%s: %s, %d left out", name, told, len(dropped))


def read_parts(data: str) -> Parts:
    """Return the parts of the dataset with a key, as `read_data` divided it.

    Raises:
        TableError: the file is missing, damaged or of another schema.
    """
    rows = read_table(Path(paths.PROBLEMS.format(data=data)), PROBLEMS)
    return Parts(*(_problems(rows[rows["part"] == part]) for part in Parts._fields))


def table(parts: Parts) -> pd.DataFrame:
    """Return divided problems in the columns of `tables.PROBLEMS`."""
    rows = [_row(name, problem) for name, part in parts._asdict().items() for problem in part]
    return pd.DataFrame(rows, columns=PROBLEMS.names)


def divide(problems: Sequence[Problem], partition: Partition) -> Parts:
    """Divide problems into training, development and test part.

    Raises:
        BenchmarkError: the dataset has no such official split, or a part would be empty.
    """
    match partition.protocol:
        case "random":
            parts = Parts(*draw(problems, partition.ratios, partition.seed))
        case "official":
            parts = Parts(*([p for p in problems if p.part == part] for part in _OFFICIAL))
        case "folds":
            parts = _cross_validation(problems, partition)
    for name, part in parts._asdict().items():
        if not part:
            raise BenchmarkError(
                f"protocol {partition.protocol} leaves the {name} part of {len(problems)} "
                f"problems empty; use another protocol or more problems"
            )
    return parts


def draw(problems: Sequence[Problem], shares: Sequence[int], seed: int) -> list[list[Problem]]:
    """Draw parts with the given shares, of every stratum and of the whole.

    Returns:
        The parts, each in the order of `problems`.
    """
    groups = defaultdict(list)
    for index, problem in enumerate(problems):
        groups[problem.text].append(index)
    order = list(groups.values())
    Random(f"split/{seed}").shuffle(order)

    wanted = [share / sum(shares) for share in shares]
    parts: list[list[int]] = [[] for _ in shares]
    tallies: dict[str, Counter[int]] = defaultdict(Counter)
    for group in order:
        counted = tallies["whole"], tallies[stratum(problems[group[0]].equation)]
        lack = [
            sum(share * (tally.total() + len(group)) - tally[part] for tally in counted)
            for part, share in enumerate(wanted)
        ]
        part = lack.index(max(lack))
        for tally in counted:
            tally[part] += len(group)
        parts[part] += group
    return [[problems[index] for index in sorted(part)] for part in parts]


def stratum(equation: Equation) -> str:
    """Return complexity and set of operators: ``low +*``."""
    symbols = {part.symbol for part in walk(equation) if isinstance(part, Operation)}
    return f"{complexity(equation)} {''.join(sorted(symbols))}"


def complexity(equation: Equation) -> Complexity:
    """Return the class of an equation: low, medium or high.

    Low: at most 2 operators and no brackets. High: 5 operators or more, or brackets within
    brackets. Medium: the rest. Brackets that change nothing do not count.
    """
    operators, nested = operator_count(equation), nesting(equation)
    if operators >= 5 or nested >= 2:
        return "high"
    return "medium" if operators >= 3 or nested else "low"


def operator_count(equation: Equation) -> int:
    """Return how many operations on two values an equation has."""
    return sum(isinstance(part, Operation) for part in walk(equation))


def nesting(equation: Equation) -> int:
    """Return how deep brackets stand within brackets, written with no more than needed."""
    steps = ((character == "(") - (character == ")") for character in infix(equation))
    return max(accumulate(steps))


def _cross_validation(problems: Sequence[Problem], partition: Partition) -> Parts:
    own = sorted({problem.part for problem in problems})
    if own == [str(fold) for fold in range(_FOLDS)]:
        folds = [[p for p in problems if p.part == fold] for fold in own]
    else:
        folds = draw(problems, [1] * _FOLDS, partition.seed)
    test = folds[partition.fold]
    others = [problem for fold in folds if fold is not test for problem in fold]
    dev, train = draw(others, _DEV_OF_FOLDS, partition.seed)
    return Parts(train, dev, test)


def _row(part: str, problem: Problem) -> dict[str, Any]:
    return {
        "example_id": problem.problem_id,
        "part": part,
        "stratum": stratum(problem.equation),
        "official": problem.part,
        "text": problem.text,
        "question": problem.question,
        "numbers": list(problem.numbers),
        "equation": _bracketed(problem.equation),
        "answer": problem.answer,
    }


def _problems(rows: pd.DataFrame) -> list[Problem]:
    return [
        Problem(
            problem_id=row["example_id"],
            text=row["text"],
            question=row["question"],
            numbers=tuple(map(float, row["numbers"])),
            equation=parse(row["equation"]),
            answer=row["answer"],
            part=row["official"],
        )
        for row in rows.to_dict("records")
    ]


def _bracketed(equation: Equation) -> str:
    """Write an equation so that `parse` gives back the same tree: all brackets, all digits."""
    match equation:
        case Number(index):
            return f"n{index}"
        case Constant(value):
            return f"{Decimal(repr(value)):f}"
        case Negation(operand):
            return f"(-{_bracketed(operand)})"
        case Operation(symbol, left, right):
            return f"({_bracketed(left)}{symbol}{_bracketed(right)})"
