"""What a template of a generated benchmark makes, and how it writes it."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple


class Problem(NamedTuple):
    """A question with its worked solution and gold answer."""

    question: str
    solution: str
    """Two to four steps, ending with the boxed answer."""
    answer: str
    """LaTeX, without the box."""


Template = Callable[[Random, int], Problem]
"""Makes a problem from a random generator and a level, 1 (easy) to 5 (hard)."""


def box(answer: object) -> str:
    r"""Return ``\boxed{answer}``."""
    return rf"\boxed{{{answer}}}"


def by_level(level: int, *limits: int) -> int:
    """Return the limit that holds at a level: the first at level 1, the fifth at level 5."""
    return limits[level - 1]
