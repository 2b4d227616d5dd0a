"""Word problems as a table, and back: read and divided once, then the same for every job."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd

from headroom.athena.equations import (
    Constant,
    Equation,
    Negation,
    Number,
    Operation,
    parse,
)
from headroom.athena.problems import Problem
from headroom.athena.splits import Parts, stratum
from headroom.tables import PROBLEMS, read_table


def table(parts: Parts) -> pd.DataFrame:
    """Return divided problems in the columns of `tables.PROBLEMS`."""
    rows = [_row(name, problem) for name, part in parts._asdict().items() for problem in part]
    return pd.DataFrame(rows, columns=PROBLEMS.names)


def read_parts(file: Path) -> Parts:
    """Read what `table` made.

    Raises:
        TableError: the file is missing, damaged or of another schema.
    """
    rows = read_table(file, PROBLEMS)
    return Parts(*(_problems(rows[rows["part"] == part]) for part in Parts._fields))


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
