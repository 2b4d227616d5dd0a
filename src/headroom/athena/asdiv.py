"""Rows of ASDiv-A in ATHENA's format: numbers already masked, equations over n0, n1, ...

Source: Miao et al., A Diverse Corpus for Evaluating and Developing English Math Word Problem
Solvers, ACL 2020; the arithmetic subset as ATHENA (arXiv 2311.01036) prepares it.
"""

from collections.abc import Mapping
from typing import Any

from headroom.athena.equations import PRECEDENCE, evaluate, parse, parse_prefix
from headroom.athena.problems import NUMBER, Problem
from headroom.errors import BenchmarkError

COLUMNS: tuple[str, ...] = ("asdiv_id", "Problem", "Question", "Numbers", "Equation", "Answer")
PART = "fold"


def convert(row: Mapping[str, Any], part: str) -> Problem:
    """Convert a row; its equation may be infix or prefix.

    Raises:
        BenchmarkError: it has no number, or an equation that cannot be read or evaluated.
    """
    text = " ".join(row["Problem"].replace(NUMBER, f" {NUMBER} ").split())
    question = " ".join(row["Question"].replace(NUMBER, f" {NUMBER} ").split())
    if not text.endswith(question):
        raise BenchmarkError(f"the text does not end with its question {question!r:.60}")
    equation = row["Equation"]
    prefix = equation.lstrip()[:1] in PRECEDENCE
    return Problem(
        problem_id=row["asdiv_id"],
        text=text,
        question=len(text) - len(question),
        numbers=tuple(evaluate(parse(number)) for number in row["Numbers"].split()),
        equation=parse_prefix(equation) if prefix else parse(equation),
        answer=evaluate(parse(row["Answer"])),
        part=part,
    )
