"""Word problems as a table, and back: read and divided once, then the same for every job."""

import logging
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd

from headroom import paths
from headroom.athena.equations import (
    Constant,
    Equation,
    Negation,
    Number,
    Operation,
    parse,
)
from headroom.athena.problems import Problem
from headroom.athena.reading import read
from headroom.athena.splits import Parts, divide, stratum
from headroom.config import Config
from headroom.planning.store import Store
from headroom.record import Stopwatch, write_record
from headroom.tables import PROBLEMS, atomic, read_table, write_table

_LOG = logging.getLogger(__name__)


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
        pd.DataFrame(dropped, columns=["row", "reason"]).to_csv(temporary, index=False)
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
