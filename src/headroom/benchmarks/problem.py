"""Problems of the generated benchmarks, and what templates need to write them."""

import re
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


class Draw:
    """Random draws for a template at a level, 1 (easy) to 5 (hard)."""

    def __init__(self, rng: Random, level: int) -> None:
        self.level = level
        self.choice, self.sample, self.randint = rng.choice, rng.sample, rng.randint
        self._random = rng.random

    def by_level(self, *limits: int) -> int:
        """Return the limit for the level, one of five."""
        return limits[self.level - 1]

    def up_to(self, low: int, *limits: int, negative: bool = False) -> int:
        """Draw a number from `low` to the level's limit, with a random sign if `negative`."""
        value = self.randint(low, self.by_level(*limits))
        return -value if negative and self._random() < 0.5 else value


Template = Callable[[Draw], Problem]


def box(answer: object) -> str:
    r"""Return ``\boxed{answer}``."""
    return rf"\boxed{{{answer}}}"


def lowest_terms(above: int, below: int) -> str:
    """Return the steps from a positive fraction to its lowest terms, or whole number, in a box."""
    written, value = rf"\frac{{{above}}}{{{below}}}", Fraction(above, below)
    reduced = re.sub(r"(\d+)/(\d+)", r"\\frac{\1}{\2}", str(value))
    return box(reduced) if reduced == written else f"{written}={box(reduced)}"


def running_sum(terms: Sequence[int], *, boxed: bool = False) -> str:
    """Return the steps of a sum, one addition at a time: ``2+3+4=5+4=9``."""
    steps = []
    for position in range(1, len(terms)):
        rest = "".join(f"{term:+d}" for term in terms[position:])
        steps.append(f"{sum(terms[:position])}{rest}")
    total = sum(terms)
    return "=".join([*steps, box(total) if boxed else str(total)])
