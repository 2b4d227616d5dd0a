"""A labelled text."""

from dataclasses import dataclass

_QUESTIONS = ("who", "what", "when", "where", "which", "why", "how")


@dataclass(frozen=True)
class Text:
    """A text with a label, or a context with a question and the words that answer it."""

    example_id: str
    text: str
    """The text; question answering: the context."""
    second: str | None
    """A second text, where there is one; question answering: the question."""
    answers: tuple[str, ...]
    """The label; question answering: all answers that are right."""
    starts: tuple[int, ...] = ()
    """Question answering: where each answer starts in the context, in characters."""

    @property
    def stratum(self) -> str:
        """The label, or the question word (other: none of the usual ones)."""
        if not self.starts:
            return self.answers[0]
        words = (self.second or "").lower().split()
        return next((word for word in words if word in _QUESTIONS), "other")
