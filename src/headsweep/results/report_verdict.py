"""A verdict of the report, in words."""

from dataclasses import dataclass

from headsweep.results.facts import Sentence


@dataclass(frozen=True)
class ReportVerdict:
    """The answer to one question."""

    section: str
    """Anchor of the page's section with its evidence."""
    mark: str
    """▲ better, ▼ worse, – not shown, ! needs a look."""
    answer: str
    effect: Sentence
    so: Sentence

    def __str__(self) -> str:
        return f"{self.answer}. {self.effect} {self.so}".strip()  # the last may be empty
