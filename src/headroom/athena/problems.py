"""Word problems as the solver sees them: numbers masked, an equation over them, its value."""

from dataclasses import dataclass
from typing import NamedTuple

from headroom.athena.equations import Equation, evaluate
from headroom.errors import BenchmarkError

NUMBER = "[NUM]"
"""Stands for each number of a masked text; the encoder sees its own mask token there."""


@dataclass(frozen=True)
class Problem:
    """A word problem.

    Raises:
        BenchmarkError: places and numbers differ in count, there is none, or the equation has no
            value.
    """

    problem_id: str
    text: str
    """Words separated by spaces; `NUMBER` for each number."""
    question: int
    """Where the question starts in `text`; it ends with the text."""
    numbers: tuple[float, ...]
    """Values in the order of the text."""
    equation: Equation
    """Gold equation over the numbers."""
    answer: float
    """Gold value as published; a few published equations have another."""
    part: str
    """Official split (train, valid, test) or fold (0, 1, ...)."""

    def __post_init__(self) -> None:
        places = self.text.count(NUMBER)
        if places != len(self.numbers) or not places:
            raise BenchmarkError(
                f"the text has {places} places for {len(self.numbers)} numbers; correct the row"
            )
        evaluate(self.equation, self.numbers)


class Dropped(NamedTuple):
    """A row that was left out."""

    row: str
    """Its id, or where it stands."""
    reason: str


class Reading(NamedTuple):
    """A dataset as read."""

    problems: list[Problem]
    dropped: list[Dropped]
