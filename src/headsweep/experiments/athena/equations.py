"""Equations of word problems: parsing, evaluation, formatting.

An equation is a tree over the problem's numbers and constants. Its text is infix, as in Math23k
(``x=(24+24*150%)/(1-(1/6))``) and in ASDiv-A's tables (``( n0 + n1 ) / n2``), or prefix.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from headsweep.errors import BenchmarkError

NUMBER = "[NUM]"
"""Placeholder for each number of a masked text; the encoder gets its mask token instead."""

PI = 3.14
"""The value of pi in Math23k's answers."""

Symbol = Literal["+", "-", "*", "/", "^"]
OPERATORS: dict[Symbol, tuple[int, type[ast.operator], Callable[[float, float], float]]] = {
    "+": (1, ast.Add, operator.add),
    "-": (1, ast.Sub, operator.sub),
    "*": (2, ast.Mult, operator.mul),
    "/": (2, ast.Div, operator.truediv),
    "^": (3, ast.Pow, operator.pow),
}
"""Precedence, Python's node and function of each operation."""

_LONGEST = 1000  # characters: far above real equations (208), far below the parser's limits
_DEEPEST = 250  # levels: far above real equations, below Python's limit wherever they are walked
_DIGITS = r"\d+(?:\.\d+)?"
_TOKEN = re.compile(
    rf"(?P<mixed>\d+\(\(?\d+\)?/\(?\d+\)?\))|(?P<percent>{_DIGITS}%)|(?P<number>{_DIGITS})"
    r"|(?P<name>n\d+)|(?P<pi>PI)|(?P<symbol>[-+*/^()\[\]{}])"
)
_PYTHON = {"[": "(", "]": ")", "{": "(", "}": ")", "^": "**"}
_SYMBOLS = {node: symbol for symbol, (_, node, _) in OPERATORS.items()}
_LEAF = 4  # a precedence above all, of numbers and constants


@dataclass(frozen=True)
class Number:
    """A number of the text, by its index from 0."""

    index: int


@dataclass(frozen=True)
class Constant:
    """A value that is not a number of the text."""

    value: float


@dataclass(frozen=True)
class Negation:
    """Minus the operand."""

    operand: "Equation"


@dataclass(frozen=True)
class Operation:
    """A binary operation."""

    symbol: Symbol
    left: "Equation"
    right: "Equation"


Equation = Number | Constant | Negation | Operation


@dataclass(frozen=True)
class Problem:
    """A word problem.

    Raises:
        BenchmarkError: the text has no placeholder or not as many as there are numbers, or the
            equation has no value.
    """

    problem_id: str
    text: str  # words separated by spaces, `NUMBER` for each number; it ends with the question
    numbers: tuple[float, ...]  # in the order of the text
    equation: Equation  # the gold one, over the numbers
    answer: float  # the published value; a few published equations evaluate to another
    part: str  # official split (train, valid, test) or fold (0, 1, ...)

    def __post_init__(self) -> None:
        places = self.text.count(NUMBER)
        if places != len(self.numbers) or not places:
            raise BenchmarkError(
                f"the text has {places} places for {len(self.numbers)} numbers; correct the row"
            )
        evaluate(self.equation, self.numbers)


def parse(text: str) -> Equation:
    """Parse an infix equation: ``+ - * / ^``, brackets of any kind, percentages, mixed numbers.

    ``n0``, ``n1``, ... are numbers of the text; values and PI are constants.

    Raises:
        BenchmarkError: the text is not such an equation.
    """
    body = text.strip().removeprefix("x=")
    if len(body) > _LONGEST or _TOKEN.sub("", body).strip():
        raise _unreadable(text)
    words = []
    for token in _TOKEN.finditer(body):
        value = token.group()
        same = {"symbol": _PYTHON.get(value, value), "name": value, "pi": repr(PI)}
        words.append(same.get(token.lastgroup or "") or repr(literal(value)))
    try:
        tree = ast.parse(" ".join(words), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        raise _unreadable(text) from None
    return _convert(tree, text, _DEEPEST)


def parse_prefix(text: str) -> Equation:
    """Parse a prefix equation, tokens separated by spaces: ``- n0 * n1 n2``.

    Raises:
        BenchmarkError: the text is not such an equation.
    """
    if len(text) > _LONGEST:
        raise _unreadable(text)
    operands: list[Equation] = []
    for token in reversed(text.split()):
        if token not in OPERATORS:
            operands.append(parse(token))
        elif len(operands) < 2:
            raise _unreadable(text)
        else:
            operands.append(Operation(token, operands.pop(), operands.pop()))
    if len(operands) != 1:
        raise _unreadable(text)
    return operands[0]


def literal(text: str) -> float:
    """Return the value of a number as printed in texts: ``3``, ``10%``, ``(3/8)``, ``1(5/6)``.

    Raises:
        BenchmarkError: the denominator of a fraction is 0.
    """
    if text.endswith("%"):
        return float(text[:-1]) / 100
    whole, *fraction = (float(digits) for digits in re.findall(_DIGITS, text))
    if fraction and not fraction[-1]:
        raise BenchmarkError(f"number {text!r} is divided by 0; correct the row")
    match fraction:
        case [denominator]:
            return whole / denominator
        case [numerator, denominator]:
            return whole + numerator / denominator
    return whole


def evaluate(equation: Equation, numbers: Sequence[float] = ()) -> float:
    """Return the value of an equation over a problem's numbers.

    Raises:
        BenchmarkError: the value is not finite and real, or the equation uses a number that the
            text does not have.
    """
    used = max((part.index for part in walk(equation) if isinstance(part, Number)), default=-1)
    if used >= len(numbers):
        raise BenchmarkError(
            f"equation {_shown(infix(equation))} uses {_shown(f'n{used}')}, but the text has "
            f"{len(numbers)} numbers; correct the row"
        )
    try:
        value = _value(equation, numbers)
    except ArithmeticError:
        value = math.nan
    if isinstance(value, complex) or not math.isfinite(value):
        shown = _shown(infix(equation))
        raise BenchmarkError(f"equation {shown} has no finite value; correct the row")
    return value


def walk(equation: Equation) -> Iterator[Equation]:
    """Yield an equation and everything within it."""
    yield equation
    match equation:
        case Negation(operand):
            yield from walk(operand)
        case Operation(_, left, right):
            yield from walk(left)
            yield from walk(right)


def infix(equation: Equation) -> str:
    """Return an equation as text with the fewest brackets."""
    return _written(equation, 0)


def bracketed(equation: Equation) -> str:
    """Return an equation with all brackets and digits, so that `parse` restores the same tree."""
    return _written(equation, 0, whole=True)


def _written(equation: Equation, least: int, *, whole: bool = False) -> str:
    """Return an equation as an operand, in brackets if `whole` or of a precedence below `least`."""
    match equation:
        case Number(index):
            return f"n{index}"
        case Constant(value):
            return f"{Decimal(repr(value)):f}" if whole else f"{value:g}"
        case Negation(operand):
            precedence = 0
            text = f"-{_written(operand, _LEAF, whole=whole)}"
        case Operation(symbol, left, right):
            precedence = OPERATORS[symbol][0]
            # Powers are right-associative, differences and quotients left-associative.
            first = _written(left, precedence + (symbol == "^"), whole=whole)
            text = first + symbol + _written(right, precedence + (symbol in "-/^"), whole=whole)
    return f"({text})" if whole or precedence < least else text


def _convert(tree: ast.expr, text: str, room: int) -> Equation:
    """Return a tree as an equation; `room` is how many levels it may still have."""
    if not room:
        raise _unreadable(text)
    below = room - 1
    match tree:
        case ast.Constant(float(value)):
            return Constant(value)
        case ast.Name(name) if name[1:].isdecimal():  # not inf, of hundreds of digits
            return Number(int(name[1:]))
        case ast.UnaryOp(ast.USub(), operand):
            return Negation(_convert(operand, text, below))
        case ast.UnaryOp(ast.UAdd(), operand):
            return _convert(operand, text, below)
        case ast.BinOp(left, symbol, right) if type(symbol) in _SYMBOLS:
            first, second = _convert(left, text, below), _convert(right, text, below)
            return Operation(_SYMBOLS[type(symbol)], first, second)
    raise _unreadable(text)


def _value(equation: Equation, numbers: Sequence[float]) -> float:
    match equation:
        case Number(index):
            return numbers[index]
        case Constant(value):
            return value
        case Negation(operand):
            return -_value(operand, numbers)
        case Operation(symbol, left, right):
            return OPERATORS[symbol][2](_value(left, numbers), _value(right, numbers))


def _unreadable(text: str) -> BenchmarkError:
    return BenchmarkError(f"equation {_shown(text)!r} cannot be parsed; correct the row")


def _shown(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
