"""What a template of a generated benchmark makes, and how it writes it."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from random import Random
from typing import NamedTuple


class Problem(NamedTuple):
    """A question with its worked solution and gold answer."""

    question: str
    solution: str
    """Two to four steps, ending with the boxed answer."""

    @property
    def answer(self) -> str:
        """The gold answer: LaTeX, without the box."""
        return self.solution.rpartition(r"\boxed{")[2].rpartition("}")[0]


Template = Callable[[Random, int], Problem]
"""Makes a problem from a random generator and a level, 1 (easy) to 5 (hard)."""


def box(answer: object) -> str:
    r"""Return ``\boxed{answer}``."""
    return rf"\boxed{{{answer}}}"


def by_level(level: int, *limits: int) -> int:
    """Return the limit that holds at a level: the first at level 1, the fifth at level 5."""
    return limits[level - 1]


def latex_fraction(value: Fraction) -> str:
    r"""Return a positive number in lowest terms: ``\frac{3}{4}`` or ``2``."""
    if value.denominator == 1:
        return str(value.numerator)
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def draw(rng: Random, low: int, high: int, *, negative: bool = False) -> int:
    """Draw from low..high, with either sign if `negative`."""
    value = rng.randint(low, high)
    return -value if negative and rng.random() < 0.5 else value


def running_sum(terms: Sequence[int], *, boxed: bool = False) -> str:
    """Return the steps of a sum, one addition at a time: ``2+3+4=5+4=9``."""
    steps = []
    for position in range(1, len(terms)):
        rest = "".join(f"{term:+d}" for term in terms[position:])
        steps.append(f"{sum(terms[:position])}{rest}")
    total = sum(terms)
    return "=".join([*steps, box(total) if boxed else str(total)])
