"""What an engine is given to answer in one run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from headsweep.variants import Variant

if TYPE_CHECKING:
    from headsweep.config import Decoding, GraderName

Key = tuple[str, int]  # question id and sample: what a variant gives one answer to


class Begun(NamedTuple):
    """What an engine had of an answer when it was stopped."""

    token_ids: list[int]
    margin: float
    attempt: int = 0
    """How often the answer was begun anew, because the tokens before might be wrong."""

    @property
    def rank(self) -> tuple[int, int]:
        """Of several records of an answer the highest counts: the last attempt's longest."""
        return self.attempt, len(self.token_ids)


@dataclass(frozen=True)
class Unit:
    """Requests that an engine answers in one run."""

    decoding: Decoding
    grader_name: GraderName
    questions: dict[str, str]  # texts by question id
    requests: list[tuple[Variant, Key]]
    base: dict[str, list[int]]
    """What is known of the base model's answers, by question id: a draft for the others'."""
    begun: dict[tuple[Variant, Key], Begun] = field(default_factory=dict)
    """What engines before have left of some of the requests: tokens to go on from, or none."""
