"""Answers that end in a loop."""

import numpy as np
from jaxtyping import Int

_TIMES = 4  # a phrase said as often as this at the end is no accident
_TOKENS = 20  # and as long as this: digits such as 0000 are no loop
_LONGEST = 100  # tokens of the phrase


def loops(token_ids: Int[np.ndarray, " tokens"]) -> bool:
    """Tell whether an answer ends with one phrase, of at most 100 tokens, over and over.

    The last tokens are periodic for at least 4 periods and 20 tokens.
    """
    for period in range(1, min(_LONGEST, len(token_ids) // _TIMES) + 1):
        length = max(_TIMES * period, _TOKENS)
        tail = token_ids[-length:]
        if len(tail) == length and np.array_equal(tail[period:], tail[:-period]):
            return True
    return False
