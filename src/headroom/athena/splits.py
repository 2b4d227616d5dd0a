"""Dividing problems into parts, and the strata whose shares every part keeps.

A stratum is a complexity with a set of operators. Problems with the same masked text are one
problem with other numbers: they always share a part.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from random import Random
from typing import Literal, NamedTuple

from headroom.athena.equations import Equation, Negation, Operation, needs_brackets, walk
from headroom.athena.problems import Problem
from headroom.config.compression import Partition
from headroom.errors import BenchmarkError

Complexity = Literal["low", "medium", "high"]

_FOLDS = 5
_DEV_OF_FOLDS = (1, 9)  # development part, training part
_OFFICIAL = ("train", "valid", "test")


class Parts(NamedTuple):
    """The parts of a dataset."""

    train: list[Problem]
    dev: list[Problem]
    test: list[Problem]


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
    whole = _Tally(wanted)
    strata: dict[str, _Tally] = defaultdict(lambda: _Tally(wanted))
    for group in order:
        tally = strata[stratum(problems[group[0]].equation)]
        lack = [sum(both) for both in zip(whole.lack(group), tally.lack(group), strict=True)]
        part = lack.index(max(lack))
        for counts in (whole, tally):
            counts.counts[part] += len(group)
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
    match equation:
        case Negation(operand):
            return nesting(operand) + isinstance(operand, Operation | Negation)
        case Operation(_, left, right):
            return max(
                nesting(left) + needs_brackets(equation, left, right=False),
                nesting(right) + needs_brackets(equation, right, right=True),
            )
    return 0


class _Tally:
    """How many problems each part has, and should have."""

    def __init__(self, wanted: Sequence[float]) -> None:
        self.wanted = wanted
        self.counts = Counter[int]()

    def lack(self, group: Sequence[int]) -> list[float]:
        """Return how many problems each part lacks once a group is dealt out."""
        total = self.counts.total() + len(group)
        return [share * total - self.counts[part] for part, share in enumerate(self.wanted)]


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
