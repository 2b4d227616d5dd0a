"""Whether a claim holds, in one word of three, and why."""

from dataclasses import dataclass
from typing import Literal

Word = Literal["holds", "fails", "cannot be judged"]


@dataclass(frozen=True)
class Judgement:
    """What numbers say of a claim."""

    word: Word
    why: str


def holds_if(holds: bool, why: str) -> Judgement:
    """Judge a claim that numbers decide either way."""
    return Judgement("holds" if holds else "fails", why)


def unjudged(why: str) -> Judgement:
    """Say why a claim cannot be judged."""
    return Judgement("cannot be judged", why)
