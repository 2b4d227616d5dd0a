"""The expansion of thoughts: which expressions are candidates at which depth.

Depth 0 offers the numbers and the constants. Odd depths apply each unary operation to each thought
accepted since the last odd depth. Even depths merge: they form sums and products of two thoughts,
at least one of them accepted since the last merge. Only accepted candidates become thoughts.

Under teacher forcing exactly the right candidates are accepted, so the expansion does not depend on
the model: `schedule` computes a problem's whole expansion once, before training.
Source: ATHENA, arXiv 2311.01036, section 3.2.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product

import numpy as np
from jaxtyping import Bool, Int

from headroom.athena.equations import Equation
from headroom.athena.expressions import MERGES, UNARY, Expressions, Op

MOST_THOUGHTS = 64
"""The largest number of thoughts of a problem."""
_MOST_POSITIVES = 30
"""At depths with more targets than this, `multi` falls back to the gold tree's own nodes."""

Candidate = tuple[Op, int, int, int]
"""Operation, indices of its two operands among the accepted thoughts (leaves: among numbers or
constants), and the expression's id. Leaves and unary operations repeat their one index."""


class Expander:
    """The expansion of one problem, depth by depth: `candidates`, then `accept`.

    Args:
        numbers: how many numbers the problem has.
        constants: the values of the constants.
    """

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


def schedule(
    equation: Equation,
    numbers: int,
    constants: Sequence[float],
    depth: int,
    *,
    multi: bool = False,
) -> Schedule:
    """Return the expansion that accepts exactly the steps of an equation, until it is reached.

    Args:
        equation: the gold equation.
        numbers: how many numbers the problem has.
        constants: the values of the constants.
        depth: the last depth to expand.
        multi: also accept sums and products of some of a step's terms.
    """
    expander = Expander(numbers, constants)
    gold, steps = expander.expressions.gold(equation)
    found: list[Candidate] = []
    targets: list[bool] = []
    depths: list[int] = []
    for reached in range(depth + 1):
        candidates = expander.candidates()
        offered = [candidate[3] for candidate in candidates]
        right = [expression for expression in offered if expression in steps]
        if multi:
            wider = [e for e in offered if _is_part(expander.expressions, e, steps)]
            right = wider if len(wider) <= _MOST_POSITIVES else right
        right = right[: expander.room]
        expander.accept(right)
        found += candidates
        targets += [expression in right for expression in offered]
        depths += [reached] * len(candidates)
        if expander.exhausted or gold in expander.thoughts:
            break
    op, left, right_side, _ = np.array(found, dtype=np.int32).reshape(-1, 4).T
    answer = expander.thoughts.index(gold) if gold in expander.thoughts else None
    return Schedule(op, left, right_side, np.array(targets), np.array(depths), answer)


def _is_part(nodes: Expressions, expression: int, steps: Collection[int]) -> bool:
    """Return whether an expression is a step, or a sum or product of some terms of a step."""
    op, terms = nodes.terms(expression)
    whole = ((own, Counter(others)) for own, others in map(nodes.terms, steps))
    return expression in steps or (
        op in MERGES and any(own == op and Counter(terms) <= others for own, others in whole)
    )
