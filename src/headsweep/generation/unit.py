"""What an engine is given to answer in one run."""

from dataclasses import dataclass

from headsweep.config import Decoding, Family
from headsweep.variants import Variant

Key = tuple[str, int]  # question id and sample: what a variant gives one answer to


@dataclass(frozen=True)
class Unit:
    """Requests that an engine answers in one run."""

    decoding: Decoding
    family: Family
    questions: dict[str, str]  # texts by question id
    requests: list[tuple[Variant, Key]]
    base: dict[str, list[int]]
    """What is known of the base model's answers, by question id: a draft for the others'."""
