"""Answers that repeat themselves: what came before is a draft of what comes next.

Small models often go round in circles until the limit, and a batch waits for such answers at its
end. There a pass of a few dozen tokens of one row takes little longer than a step of one token
(looking a draft up in the text itself: Yang et al., arXiv 2304.04487).
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

_REPEATED = 16  # tokens that have to stand there twice: with fewer, most drafts are wrong
_SHORTEST, _LONGEST = 8, 64  # tokens of a draft: twice as many as the one before, if it was right
_BETWEEN_LOOKS = 8  # tokens: a look reads the whole answer
_FOR_A_WRONG_ONE = 4  # tokens without a draft for each that was computed in vain
_TYPE = "i"
_BYTES = array(_TYPE).itemsize


@dataclass
class Repetitions:
    """The drafts of one answer, and how right they were."""

    _next_look: int = 0
    """Tokens that the answer has to have before it is looked at again."""
    _length: int = _SHORTEST

    def draft(self, tokens: Sequence[int], most: int) -> list[int]:
        """Return what comes next if it repeats itself, so many tokens at most; none if not."""
        if len(tokens) < self._next_look:
            return []
        found = repetition(tokens, min(self._length, most))
        if not found:
            self._length = _SHORTEST
            self._next_look = len(tokens) + _BETWEEN_LOOKS
        return found

    def judged(self, tokens: Sequence[int], drafted: int, right: int) -> None:
        """Hear how many tokens of the last draft were right; the answer has what came of it."""
        wrong = drafted - right
        self._length = _SHORTEST if wrong else min(2 * drafted, _LONGEST)
        self._next_look = len(tokens) + wrong * _FOR_A_WRONG_ONE


def repetition(tokens: Sequence[int], length: int) -> list[int]:
    """Return what comes next if a text goes on as it did after the same tokens before, or none."""
    if len(tokens) <= _REPEATED:
        return []
    written = array(_TYPE, tokens).tobytes()
    last = written[-_REPEATED * _BYTES :]
    found = written.rfind(last, 0, -_BYTES)
    while found > 0 and found % _BYTES:  # in the midst of a token
        found = written.rfind(last, 0, found + len(last) - 1)
    if found < 0:
        return []
    after = found // _BYTES + _REPEATED
    period = len(tokens) - after
    return [tokens[after + place % period] for place in range(length)]
