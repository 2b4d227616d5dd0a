"""Canonical expressions, and their expansion: which are candidates at which depth.

Expressions are sums, products and four unary operations over numbers and constants. There are no
differences, quotients or powers: a − b is a sum with a negated term, a / b a product with an
inverse. Sums and products are flat and unordered, so that expressions that differ only in grouping
and order are the same.

Depth 0 of an expansion offers the numbers and the constants. Odd depths apply each unary operation
to each thought accepted since the last odd depth. Even depths merge: they form sums and products of
two thoughts, at least one of them accepted since the last merge. Only accepted candidates become
thoughts. Under teacher forcing exactly the right candidates are accepted, so the expansion does not
depend on the model: `schedule` computes it once, before training.
Source: ATHENA, arXiv 2311.01036, section 3.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain, combinations_with_replacement, product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from headsweep.experiments.athena.equations import (
    Constant,
    Equation,
    Negation,
    Number,
    Operation,
    walk,
)


class Op(IntEnum):
    """The kinds of expression: leaves, then unary and binary operations."""

    NUMBER = 0
    CONSTANT = 1
    NEG = 2
    INV = 3
    ROOT = 4
    HALF = 5
    ADD = 6
    MUL = 7


UNARY = (Op.NEG, Op.INV, Op.ROOT, Op.HALF)
MERGES = (Op.ADD, Op.MUL)

_FUNCTIONS: dict[Op, Callable[..., float]] = {
    Op.NEG: lambda x: -x,
    Op.INV: lambda x: 1 / x,
    Op.ROOT: math.sqrt,
    Op.HALF: lambda x: x / 2,
    Op.ADD: lambda *terms: sum(terms),
    Op.MUL: lambda *factors: math.prod(factors),
}

MOST_THOUGHTS = 64
"""The largest number of thoughts of a problem."""


class Candidate(NamedTuple):
    """An expression that may become a thought.

    Operands are indices among the accepted thoughts, of leaves among numbers or constants. Leaves
    and unary operations repeat their one index.
    """

    op: Op
    left: int
    right: int
    expression: int  # its id


class Expressions:
    """Expressions over one problem's numbers and the constants, each identified by an id.

    Equal expressions have equal ids (hash consing).
    """

    def __init__(self, numbers: int, constants: Sequence[float]) -> None:
        self._ids: dict[tuple[Op, tuple[int, ...]], int] = {}
        # Each expression's operation and the ids of its operands (leaves: their index).
        self.nodes: list[tuple[Op, tuple[int, ...]]] = []
        self._values = tuple(constants)
        self.leaves = [self.node(Op.NUMBER, index) for index in range(numbers)]
        self.leaves += [self.node(Op.CONSTANT, index) for index in range(len(constants))]

    def node(self, op: Op, *operands: int) -> int:
        """Return the id of an operation on expressions; sums and products are flattened."""
        if op in MERGES:
            terms: list[int] = []
            for operand in operands:
                inner_op, inner = self.nodes[operand]
                terms += inner if inner_op is op else (operand,)
            operands = tuple(sorted(terms))
        key = (op, operands)
        number = self._ids.setdefault(key, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(key)
        return number

    def value(self, expression: int, numbers: Sequence[float]) -> float:
        """Return an expression's value, or nan if it has none."""
        op, operands = self.nodes[expression]
        if op in (Op.NUMBER, Op.CONSTANT):
            return (numbers if op == Op.NUMBER else self._values)[operands[0]]
        try:
            return _FUNCTIONS[op](*(self.value(operand, numbers) for operand in operands))
        except (ArithmeticError, ValueError):
            return math.nan

    def text(self, expression: int) -> str:
        """Return an expression as text: ``ADD(n0, NEG(n1))``."""
        op, operands = self.nodes[expression]
        match op:
            case Op.NUMBER:
                return f"n{operands[0]}"
            case Op.CONSTANT:
                return f"{self._values[operands[0]]:g}"
        return f"{op.name}({', '.join(map(self.text, operands))})"

    def gold(self, equation: Equation) -> tuple[int | None, frozenset[int]]:
        """Return the expression of an equation, and all intermediate steps.

        a − b = a + (−b), a / b = a · (1 / b), a / 2 = HALF a, 2 · a = a + a, 1 · a = a,
        a² = a · a, a³ = a · a · a.

        Returns:
            The expression's id, or None if the equation has another power or an unknown constant;
            and the ids of all steps, including the expression itself.
        """
        steps: set[int] = set()

        def step(op: Op, *operands: int) -> int:
            number = self.node(op, *operands)
            steps.add(number)
            return number

        def constant(value: float) -> int:
            return step(Op.CONSTANT, self._values.index(value))

        def canonical(part: Equation) -> int:
            match part:
                case Number(index):
                    return step(Op.NUMBER, index)
                case Constant(value) if value < 1 and _inverse(value) in self._values:
                    return step(Op.INV, constant(_inverse(value)))
                case Constant(value):
                    return constant(value)
                case Negation(operand):
                    return step(Op.NEG, canonical(operand))
                case Operation("*", Constant(1), operand) | Operation(
                    "*" | "/" | "^", operand, Constant(1)
                ):
                    return canonical(operand)
                case Operation("*", Constant(2), doubled) | Operation("*", doubled, Constant(2)):
                    term = canonical(doubled)
                    return step(Op.ADD, term, term)
                case Operation("/", Constant(1), divisor) if divisor != Constant(2):
                    return step(Op.INV, canonical(divisor))
                case Operation("/", halved, Constant(2)):
                    return step(Op.HALF, canonical(halved))
                case Operation("^", base, Constant(0.5)):
                    return step(Op.ROOT, canonical(base))
                case Operation("^", base, Constant(2 | 3 as power)):
                    factor = canonical(base)
                    square = step(Op.MUL, factor, factor)
                    return square if power == 2 else step(Op.MUL, square, factor)
                case Operation("^"):
                    raise ValueError(part)
                case Operation(symbol, left, right):
                    first, second = canonical(left), canonical(right)
                    if symbol in "-/":
                        second = step(Op.NEG if symbol == "-" else Op.INV, second)
                    return step(Op.ADD if symbol in "+-" else Op.MUL, first, second)

        try:
            return canonical(equation), frozenset(steps)
        except ValueError:
            return None, frozenset(steps)


class Expander:
    """The expansion of one problem, depth by depth.

    After each call of `expand` the caller appends the accepted ones, new ones only and at most
    `room`, to `thoughts`.
    """

    def __init__(self, numbers: int, constants: Sequence[float]) -> None:
        self.expressions = Expressions(numbers, constants)
        self.thoughts: list[int] = []  # accepted expressions, in order of acceptance
        self._depth = 0
        self._seen = [0, 0]  # thoughts before the last even and the last odd depth

    @property
    def exhausted(self) -> bool:
        """Whether no thought is new, so that further depths have no candidates."""
        return self._depth > 0 and self._seen == [len(self.thoughts)] * 2

    @property
    def room(self) -> int:
        """How many more thoughts may be accepted."""
        return MOST_THOUGHTS - len(self.thoughts)

    def expand(self) -> list[Candidate]:
        """Go to the next depth; return its candidates by operation, none known and none twice."""
        nodes = self.expressions
        thoughts = self.thoughts
        odd = self._depth % 2
        old = range(self._seen[odd])
        new = range(self._seen[odd], len(thoughts))
        if self._depth == 0:
            offered = []
            for leaf in nodes.leaves:
                op, (place,) = nodes.nodes[leaf]
                offered.append(Candidate(op, place, place, leaf))
        elif odd:
            offered = [
                Candidate(op, i, i, nodes.node(op, thoughts[i])) for op in UNARY for i in new
            ]
        else:
            offered = [
                Candidate(op, i, j, nodes.node(op, thoughts[i], thoughts[j]))
                for op in MERGES
                for i, j in chain(product(old, new), combinations_with_replacement(new, 2))
            ]
        self._seen[odd] = len(thoughts)
        self._depth += 1
        first: dict[int, Candidate] = {}  # by expression
        for candidate in offered:
            first.setdefault(candidate.expression, candidate)
        return [candidate for key, candidate in first.items() if key not in thoughts]


@dataclass(frozen=True)
class Schedule:
    """A problem's expansion under teacher forcing, as flat arrays over its candidates."""

    op: Int[np.ndarray, " candidates"]
    left: Int[np.ndarray, " candidates"]  # operands as in `Candidate`
    right: Int[np.ndarray, " candidates"]
    target: Bool[np.ndarray, " candidates"]  # whether it is right; right ones are accepted
    depth: Int[np.ndarray, " candidates"]  # ascending
    answer: int | None  # the whole equation's index among the thoughts; None: it is not reached


def schedule(equation: Equation, numbers: int, constants: Sequence[float], depth: int) -> Schedule:
    """Return the expansion that accepts exactly the steps of an equation, until it is reached.

    `numbers` is how many the problem has, `depth` the last one to expand.
    """
    expander = Expander(numbers, constants)
    gold, steps = expander.expressions.gold(equation)
    rows: list[tuple[int, ...]] = []
    for reached in range(depth + 1):
        candidates = expander.expand()
        offered = [candidate.expression for candidate in candidates]
        accepted = [expression for expression in offered if expression in steps][: expander.room]
        expander.thoughts += accepted
        rows += [
            (*candidate, candidate.expression in accepted, reached) for candidate in candidates
        ]
        if expander.exhausted or gold in expander.thoughts:
            break
    op, first, second, _, target, depths = np.array(rows, dtype=np.int32).T
    answer = expander.thoughts.index(gold) if gold in expander.thoughts else None
    return Schedule(op, first, second, target.astype(bool), depths, answer)


def harvest(equations: Iterable[Equation], at_least: int = 1) -> tuple[float, ...]:
    """Return the constants that occur in `at_least` of the training equations, ascending.

    A constant c below 1 is left out if 1 / c is a constant too: it is expressed as its inverse.
    """
    counts = Counter(
        value
        for equation in equations
        for value in {part.value for part in walk(equation) if isinstance(part, Constant)}
    )
    frequent = {value for value, count in counts.items() if count >= at_least}
    written = {value for value in frequent if value >= 1 or _inverse(value) not in frequent}
    return tuple(sorted(written))


def _inverse(value: float) -> float:
    return round(1 / value, 6) if value > 0 else math.nan
