"""What the engine is asked for, what it answers, and the state of a request in progress."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from headsweep.engine.repetition import Repetitions
from headsweep.errors import ModelError
from headsweep.variants import BASE, Variant

if TYPE_CHECKING:
    from headsweep.engine.stops import Stops

StopReason = Literal["eos", "length", "stop"]
"""What ends an answer: the model, the limit, or a text before which it ends."""

Prompt = tuple[int, ...]

NEAR_TIE = {"float32": 1e-3, "float16": 0.03, "bfloat16": 0.25}
"""Gap of two logits below which rounding can change their order, by type: measured for float32 and
bfloat16; float16 has three more mantissa bits than bfloat16."""


class NotFiniteError(ModelError):
    """A logit is infinite or no number."""


@dataclass(frozen=True)
class Request:
    """A question to be answered by a variant."""

    question_id: str
    prompt: Prompt  # token ids
    variant: Variant = BASE
    sample: int = 0  # which of several samples of the question; 0 for greedy decoding


@dataclass(frozen=True)
class Answer:
    """An answer to a request."""

    request: Request
    token_ids: tuple[int, ...]  # without the end of sequence, with the text that has ended it
    stop_reason: StopReason
    margin: float  # smallest gap between the best and the second-best logit, the end's included
    accepted: int = 0  # how many of its tokens verification took over from a draft


@dataclass(eq=False)
class Row:
    """A request that is being answered."""

    request: Request
    limit: int  # most new tokens
    ends: tuple[int, ...]  # ids of the tokens that end an answer
    uniforms: np.ndarray = field(default_factory=lambda: np.empty(0))
    """One random number for each new token; none if decoding is greedy."""
    stops: "Stops | None" = None
    tokens: list[int] = field(default_factory=list)
    resumed: int = 0
    """How many of these, the first, another engine had found."""
    margin: float = math.inf
    accepted: int = 0
    repetitions: Repetitions = field(default_factory=Repetitions)
    watched: bool | None = None
    """Whether its first logits are kept for the engine's check; None: not decided yet."""
    answer: Answer | None = None
    """When it has ended."""

    @property
    def text(self) -> tuple[int, ...]:
        """The prompt, and all tokens so far."""
        return (*self.request.prompt, *self.tokens)

    @property
    def variant(self) -> Variant:
        """What is pruned."""
        return self.request.variant

    def append(self, token: int, gap: float) -> Answer | None:
        """Take the next token and its gap to the second best; return the answer if it ends."""
        self.margin = min(self.margin, gap)
        ended = token in self.ends
        if ended:
            return self._end("eos")
        self.tokens.append(token)
        if self.stopped():
            return self.answer
        return self._end("length") if len(self.tokens) >= self.limit else None

    def stopped(self) -> Answer | None:
        """Return the answer if a text that ends it has just been written."""
        if self.stops is None or not self.stops.reached(self.tokens):
            return None
        return self._end("stop")

    def _end(self, reason: StopReason) -> Answer:
        self.answer = Answer(self.request, tuple(self.tokens), reason, self.margin, self.accepted)
        return self.answer

    def extend(self, tokens: Sequence[int], gaps: Sequence[float]) -> Answer | None:
        """Do as `append` for successive tokens, up to the one that ends the answer."""
        goes_on = len(tokens) < self.limit - len(self.tokens) and self.stops is None
        if goes_on and not any(end in tokens for end in self.ends):
            self.margin = min(self.margin, *gaps)
            self.tokens += tokens
            return None
        for token, gap in zip(tokens, gaps, strict=True):
            if answer := self.append(token, gap):
                return answer
        return None


@dataclass(eq=False)
class Drafted:
    """A question with a draft of its answer."""

    draft: Sequence[int]  # token ids without the end of sequence
    rows: list[Row]  # of pruned variants, all with the same prompt and limit, no tokens yet

    @cached_property
    def text(self) -> tuple[int, ...]:
        """The prompt, and what of the draft is fed to verify it: all but a token at the limit."""
        first = self.rows[0]
        return (*first.request.prompt, *self.draft[: first.limit - 1])
