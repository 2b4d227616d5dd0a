"""Answers that repeat themselves: what came before is a draft of what comes next.

Small models often go round in circles until the limit, and a batch waits for such answers at its
end. A pass of a few dozen tokens of one row takes little longer than a pass of one (looking a draft
up in the text itself: Yang et al., arXiv 2304.04487).
"""

from array import array
from collections.abc import Sequence

_REPEATED = 16  # tokens that have to stand there twice: with fewer, most drafts are wrong
_BETWEEN_LOOKS = 8  # tokens: a look reads the whole answer
_SHORTEST, _LONGEST = 8, 64  # tokens of a draft: twice as many as the one before, if it was right
_TYPE = "i"
_BYTES = array(_TYPE).itemsize


def repetition(tokens: Sequence[int], right: int, most: int) -> list[int]:
    """Return what comes next if an answer goes on as it did after the same tokens before.

    Args:
        tokens: of the answer.
        right: tokens of its last draft if all were right; else 0, and it is not always looked.
        most: tokens of the draft.
    """
    if len(tokens) <= _REPEATED or (not right and len(tokens) % _BETWEEN_LOOKS):
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
    length = min(max(_SHORTEST, 2 * right), _LONGEST, most)
    return [tokens[after + place % period] for place in range(length)]
