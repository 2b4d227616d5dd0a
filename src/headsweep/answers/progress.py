"""What a job tells of its progress, in words, and when."""

from collections.abc import Mapping
from typing import Any

_SECONDS_BETWEEN_REPORTS = 3.5  # an engine speaks every two: so it is four
_FEWEST_FOR_RATE, _ENOUGH_FOR_RATE = 10, 100
"""A rate is told once a quarter of all answers is there: after 10 at least, after 100 always."""
_FEWEST_TOKENS = 16  # of each, from which on their pace is known
_AT_ONCE = 10  # answers that are written together on any machine
_LAST = 64
"""No time left is told for the last quarter of all answers, nor for more than the last 64: they are
decoded together, and the longest takes as long as it takes."""


class Reports:
    """When a job tells of its progress: while it is worked at, and ever more seldom if it waits."""

    def __init__(self, now: float) -> None:
        self._last = now
        self._pause = _SECONDS_BETWEEN_REPORTS
        self._state: dict[str, Any] = {}
        self.first: dict[str, Any] = {}
        """Tokens that were there when any were heard of, and when; arguments of `progress`."""

    def due(self, now: float, said: Mapping[str, Any]) -> bool:
        """Tell whether to report what the engine said, now; both in seconds of some clock."""
        if not self.first and said.get("tokens"):
            self.first = {"first_tokens": said["tokens"], "first_seconds": said["seconds"]}
        state = {name: value for name, value in said.items() if name != "seconds"}
        if state != self._state or not said.get("waits"):
            if now - self._last < _SECONDS_BETWEEN_REPORTS:
                return False
            self._state = state
            self._pause = _SECONDS_BETWEEN_REPORTS
        elif now - self._last < self._pause:
            return False
        self._last = now
        self._pause *= 2
        return True


def progress(
    done: int,
    total: int,
    seconds: float,
    waits: str = "",
    tokens: int = 0,
    limit: int = 0,
    first_tokens: int = 0,
    first_seconds: float = 0.0,
) -> str:
    """Return words for so many answers in so many seconds, or for what is waited for.

    The first few and the last say nothing of the time left: a batch ends with its longest answers.
    Of the last ones it is told how far they are from the limit.
    Before the first, where there are so few that all are written at once, it is told what they take
    at most: the time of a token, up to the limit.

    Args:
        done: answers that are there.
        total: all answers.
        seconds: since the first was begun.
        waits: for what.
        tokens: of the answers that have not ended.
        limit: most tokens of each.
        first_tokens: those that were there at first, as of an answer that was interrupted.
        first_seconds: when that was; the pace is that of the tokens since.
    """
    if waits:
        return f"waiting for {waits}"
    if not done:
        at_most = ""
        written_since = tokens - first_tokens
        if limit and written_since >= total * _FEWEST_TOKENS and total <= _AT_ONCE:
            left = (seconds - first_seconds) * (total * limit - tokens) / written_since
            at_most = f", at most {left:.0f} s left"
        written = f", {tokens} tokens" if tokens else ""
        return f"writing the first of {total} answers{written}, {seconds:.0f} s so far{at_most}"
    words = f"{done} of {total} answers"
    left = total - done
    of_last = ""
    if tokens and 0 < left <= _AT_ONCE:
        of_last = f", {left} left with {tokens} of at most {left * limit} tokens"
    enough_for_rate = max(_FEWEST_FOR_RATE, min(_ENOUGH_FOR_RATE, total / 4))
    if done < enough_for_rate:
        return f"{words} after {seconds:.0f} s{of_last}"
    rate = done / seconds
    speed = f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f} a minute"
    if 0 < left <= min(_LAST, total / 4):
        return f"{words}, {speed}{of_last or ', the longest are left'}"
    return f"{words}, {speed}, {left / rate:.0f} s left"
