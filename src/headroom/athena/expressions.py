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
from itertools import combinations_with_replacement, product

import numpy as np
from jaxtyping import Bool, Int

from headroom.athena.equations import Constant, Equation, Negation, Number, Operation, walk


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

_FUNCTIONS: dict[Op, Callable[[float], float]] = {
    Op.NEG: lambda x: -x,
    Op.INV: lambda x: 1 / x,
    Op.ROOT: math.sqrt,
    Op.HALF: lambda x: x / 2,
}

MOST_THOUGHTS = 64
"""The largest number of thoughts of a problem."""

Candidate = tuple[Op, int, int, int]
"""Operation, indices of its two operands among the accepted thoughts (leaves: among numbers or
constants), and the expression's id. Leaves and unary operations repeat their one index."""


class Expressions:
    """Expressions over one problem's numbers and the constants, each identified by an id.

    Equal expressions have equal ids (hash consing).

    Args:
        numbers: how many numbers the problem has.
        constants: the values of the constants.
    """

    def __init__(self, numbers: int, constants: Sequence[float]) -> None:
        self._ids: dict[tuple[int, tuple[int, ...]], int] = {}
        self._nodes: list[tuple[Op, tuple[int, ...]]] = []
        self._values = tuple(constants)
        self.leaves = [self._intern(Op.NUMBER, (index,)) for index in range(numbers)]
        """The numbers in the order of the text, then the constants."""
        self.constants = {
            value: self._intern(Op.CONSTANT, (index,)) for index, value in enumerate(constants)
        }
        self.leaves += self.constants.values()

    def unary(self, op: Op, operand: int) -> int:
        """Return the id of a unary operation on an expression."""
        return self._intern(op, (operand,))

    def merge(self, op: Op, left: int, right: int) -> int:
        """Return the id of a sum or product; operands of the same operation are flattened."""
        terms = self._terms(op, left) + self._terms(op, right)
        return self._intern(op, tuple(sorted(terms)))

    def terms(self, expression: int) -> tuple[Op, tuple[int, ...]]:
        """Return an expression's operation and the ids of its operands (leaves: their index)."""
        return self._nodes[expression]

    def value(self, expression: int, numbers: Sequence[float]) -> float:
        """Return an expression's value, or nan if it has none."""
        try:
            return self._value(expression, numbers)
        except (ArithmeticError, ValueError):
            return math.nan

    def text(self, expression: int) -> str:
        """Return an expression as text: ``ADD(n0, NEG(n1))``."""
        op, arguments = self._nodes[expression]
        match op:
            case Op.NUMBER:
                return f"n{arguments[0]}"
            case Op.CONSTANT:
                return f"{self._values[arguments[0]]:g}"
        return f"{op.name}({', '.join(self.text(argument) for argument in arguments)})"

    def gold(self, equation: Equation) -> tuple[int | None, frozenset[int]]:
        """Return the expression of an equation, and all intermediate steps.

        a − b = a + (−b), a / b = a · (1 / b), a / 2 = HALF a, 2 · a = a + a, 1 · a = a,
        a² = a · a, a³ = a · a · a.

        Returns:
            The expression's id, or None if the equation has another power or an unknown constant;
            and the ids of all steps, including the expression itself.
        """
        steps: set[int] = set()
        try:
            return self._canonical(equation, steps), frozenset(steps)
        except _InexpressibleError:
            return None, frozenset(steps)

    def _canonical(self, equation: Equation, steps: set[int]) -> int:
        def canonical(part: Equation) -> int:
            return self._canonical(part, steps)

        def unary(op: Op, part: int) -> int:
            return keep(self.unary(op, part))

        def merge(op: Op, left: int, right: int) -> int:
            return keep(self.merge(op, left, right))

        def keep(expression: int) -> int:
            steps.add(expression)
            return expression

        match equation:
            case Number(index):
                return keep(self.leaves[index])
            case Constant(value) if value < 1 and (inverse := _inverse(value)) in self.constants:
                return unary(Op.INV, keep(self.constants[inverse]))
            case Constant(value) if value in self.constants:
                return keep(self.constants[value])
            case Negation(operand):
                return unary(Op.NEG, canonical(operand))
            case Operation("*", Constant(1), one) | Operation("*" | "/" | "^", one, Constant(1)):
                return canonical(one)
            case Operation("*", Constant(2), twice) | Operation("*", twice, Constant(2)):
                half = canonical(twice)
                return merge(Op.ADD, half, half)
            case Operation("/", Constant(1), divisor) if divisor != Constant(2):
                return unary(Op.INV, canonical(divisor))
            case Operation("/", twice, Constant(2)):
                return unary(Op.HALF, canonical(twice))
            case Operation("^", base, Constant(0.5)):
                return unary(Op.ROOT, canonical(base))
            case Operation("^", base, Constant(2 | 3 as power)):
                root = canonical(base)
                square = merge(Op.MUL, root, root)
                return square if power == 2 else merge(Op.MUL, square, root)
            case Operation("+" | "-" as symbol, left, right):
                first, second = canonical(left), canonical(right)
                return merge(Op.ADD, first, second if symbol == "+" else unary(Op.NEG, second))
            case Operation("*" | "/" as symbol, left, right):
                first, second = canonical(left), canonical(right)
                return merge(Op.MUL, first, second if symbol == "*" else unary(Op.INV, second))
        raise _InexpressibleError

    def _intern(self, op: Op, arguments: tuple[int, ...]) -> int:
        key = (op, arguments)
        found = self._ids.setdefault(key, len(self._nodes))
        if found == len(self._nodes):
            self._nodes.append(key)
        return found

    def _terms(self, op: Op, expression: int) -> tuple[int, ...]:
        own, arguments = self._nodes[expression]
        return arguments if own == op else (expression,)

    def _value(self, expression: int, numbers: Sequence[float]) -> float:
        op, arguments = self._nodes[expression]
        match op:
            case Op.NUMBER:
                return numbers[arguments[0]]
            case Op.CONSTANT:
                return self._values[arguments[0]]
            case Op.ADD:
                return sum(self._value(argument, numbers) for argument in arguments)
            case Op.MUL:
                return math.prod(self._value(argument, numbers) for argument in arguments)
        return _FUNCTIONS[op](self._value(arguments[0], numbers))


class Expander:
    """The expansion of one problem, depth by depth: `candidates`, then `accept`."""

    def __init__(self, numbers: int, constants: Sequence[float]) -> None:
        self.expressions = Expressions(numbers, constants)
        self.thoughts: list[int] = []
        """Accepted expressions, in order of acceptance."""
        self._known: set[int] = set()
        self._depth = 0
        self._transformed = 0
        self._merged = 0

    @property
    def exhausted(self) -> bool:
        """Whether no thought is new, so that further depths have no candidates."""
        return self._depth > 0 and len(self.thoughts) == self._transformed == self._merged

    def candidates(self) -> list[Candidate]:
        """Return the next depth's candidates by operation, without known ones and duplicates."""
        if self._depth == 0:
            found = self._leaves()
        elif self._depth % 2:
            found = self._transforms()
        else:
            found = self._merges()
        self._depth += 1
        return found

    @property
    def room(self) -> int:
        """How many more thoughts may be accepted."""
        return MOST_THOUGHTS - len(self.thoughts)

    def accept(self, expressions: Sequence[int]) -> None:
        """Accept expressions as thoughts. They must be new, and not more than `room`."""
        self.thoughts += expressions
        self._known.update(expressions)

    def _leaves(self) -> list[Candidate]:
        nodes = self.expressions
        found = ((leaf, *nodes.terms(leaf)) for leaf in nodes.leaves)
        return [(op, place, place, leaf) for leaf, op, (place,) in found]

    def _transforms(self) -> list[Candidate]:
        new = range(self._transformed, len(self.thoughts))
        self._transformed = len(self.thoughts)
        return self._unknown(
            (op, i, i, self.expressions.unary(op, self.thoughts[i])) for op in UNARY for i in new
        )

    def _merges(self) -> list[Candidate]:
        old = range(self._merged)
        new = range(self._merged, len(self.thoughts))
        self._merged = len(self.thoughts)
        pairs = [*product(old, new), *combinations_with_replacement(new, 2)]
        thoughts, merge = self.thoughts, self.expressions.merge
        return self._unknown(
            (op, i, j, merge(op, thoughts[i], thoughts[j])) for op in MERGES for i, j in pairs
        )

    def _unknown(self, found: Iterable[Candidate]) -> list[Candidate]:
        first: dict[int, Candidate] = {}
        for candidate in found:
            if candidate[3] not in self._known:
                first.setdefault(candidate[3], candidate)
        return list(first.values())


@dataclass(frozen=True)
class Schedule:
    """A problem's expansion under teacher forcing, as flat arrays over its candidates."""

    op: Int[np.ndarray, " candidates"]
    left: Int[np.ndarray, " candidates"]
    """First operand, as in `Candidate`."""
    right: Int[np.ndarray, " candidates"]
    """Second operand, as in `Candidate`."""
    target: Bool[np.ndarray, " candidates"]
    """Whether the candidate is right; right ones are accepted."""
    depth: Int[np.ndarray, " candidates"]
    """Ascending."""
    answer: int | None
    """Index of the whole equation among the accepted thoughts; None if it is not reached."""


def schedule(equation: Equation, numbers: int, constants: Sequence[float], depth: int) -> Schedule:
    """Return the expansion that accepts exactly the steps of an equation, until it is reached.

    Args:
        equation: the gold equation.
        numbers: how many numbers the problem has.
        constants: the values of the constants.
        depth: the last depth to expand.
    """
    expander = Expander(numbers, constants)
    gold, steps = expander.expressions.gold(equation)
    found: list[Candidate] = []
    targets: list[bool] = []
    depths: list[int] = []
    for reached in range(depth + 1):
        candidates = expander.candidates()
        offered = [candidate[3] for candidate in candidates]
        right = [expression for expression in offered if expression in steps][: expander.room]
        expander.accept(right)
        found += candidates
        targets += [expression in right for expression in offered]
        depths += [reached] * len(candidates)
        if expander.exhausted or gold in expander.thoughts:
            break
    op, left, right_side, _ = np.array(found, dtype=np.int32).reshape(-1, 4).T
    answer = expander.thoughts.index(gold) if gold in expander.thoughts else None
    return Schedule(op, left, right_side, np.array(targets), np.array(depths), answer)


def harvest(equations: Iterable[Equation], at_least: int = 1) -> tuple[float, ...]:
    """Return the constants of training equations, ascending.

    A constant c below 1 is left out if 1 / c is a constant too: it is expressed as its inverse.

    Args:
        equations: those of the training part only.
        at_least: in how many equations a constant must occur; rarer ones are errors in the data.
    """
    counts = Counter(
        value
        for equation in equations
        for value in {part.value for part in walk(equation) if isinstance(part, Constant)}
    )
    found = {value for value, count in counts.items() if count >= at_least}
    return tuple(sorted(value for value in found if value >= 1 or _inverse(value) not in found))


def _inverse(value: float) -> float:
    return round(1 / value, 6) if value > 0 else math.nan


class _InexpressibleError(Exception):
    """An equation that cannot be written as an expression."""
