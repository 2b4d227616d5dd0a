"""Rows of Math23k: Chinese problems, with equations over the values of their numbers.

Source: Wang et al., Deep Neural Solver for Math Word Problems, EMNLP 2017. What counts as a number
of the text follows ATHENA (arXiv 2311.01036).
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from headroom.athena.equations import (
    Constant,
    Equation,
    Number,
    Operation,
    evaluate,
    literal,
    parse,
    replace,
)
from headroom.athena.problems import NUMBER, Problem
from headroom.errors import BenchmarkError

COLUMNS: tuple[str, ...] = ("id", "segmented_text", "equation", "ans")
PART = "split"

_NUMBER = re.compile(
    r"[A-Z]+\d+"  # digits glued to a capital letter are a label
    r"|(?P<number>(?:\d+)?\( ?\d+ ?/ ?\d+ ?\)|\d+(?:\.\d+)?%?)"
)
_PLACES = 4  # a number of the equation is the number of the text that agrees to these
_POWERS = (2.0, 3.0)
_CLAUSES = re.compile(r".*[，。．；,;] (?=.*\w)")  # all but the last


def convert(row: Mapping[str, Any], part: str) -> Problem:
    """Convert a row.

    Raises:
        BenchmarkError: it has no number, or an equation that cannot be read, evaluated or
            expressed.
    """
    text, printed = mask(row["segmented_text"])
    clauses = _CLAUSES.match(text)
    return Problem(
        problem_id=row["id"],
        text=text,
        question=clauses.end() if clauses else 0,
        numbers=tuple(literal(number) for number in printed),
        equation=over_numbers(parse(row["equation"]), printed),
        answer=evaluate(parse(row["ans"])),
        part=part,
    )


def mask(text: str) -> tuple[str, list[str]]:
    """Return a segmented text with its numbers masked, and the numbers as printed.

    Numbers are integers and decimals, with or without percent sign, fractions in brackets, and
    mixed numbers. Characters of private use, which some rows hold, are removed.
    """
    printed: list[str] = []

    def take(match: re.Match[str]) -> str:
        number = match["number"]
        if number is None:
            return match.group()
        printed.append(number)
        return f" {NUMBER} "

    masked = _NUMBER.sub(take, "".join(c for c in text if unicodedata.category(c) != "Co"))
    return " ".join(masked.split()), printed


def over_numbers(equation: Equation, printed: Sequence[str]) -> Equation:
    """Return an equation with values replaced by the numbers of the text that they are.

    The first number with the value counts; a fraction of two values is first looked for among the
    fractions. Exponents stay values, and so does what the text does not hold.

    Raises:
        BenchmarkError: a power other than 2 or 3.
    """
    values = [round(literal(number), _PLACES) for number in printed]
    fractions = {
        value: index for index, value in reversed(list(enumerate(values))) if "/" in printed[index]
    }
    first = {value: index for index, value in reversed(list(enumerate(values)))}

    def place(part: Equation) -> Equation | None:
        match part:
            case Operation("^", base, Constant(power)) if power in _POWERS:
                return Operation("^", replace(base, place), Constant(power))
            case Operation("^"):
                raise BenchmarkError("the equation has a power other than 2 or 3; correct the row")
            case Operation("/", Constant(above), Constant(below)) if below:
                quotient = round(above / below, _PLACES)
                return Number(fractions[quotient]) if quotient in fractions else None
            case Constant(value) if round(value, _PLACES) in first:
                return Number(first[round(value, _PLACES)])
        return None

    return replace(equation, place)
