"""Lines of a run, and below them on a terminal one that is written anew in its place."""

import os
from typing import TextIO

_CLEAR = "\r\x1b[K"
_SECONDS = 30.0
_SHARE = 0.05  # of a run's time: a log of days stays short


class Screen:
    """Prints to a terminal, or to a log.

    Args:
        stream: where to; `isatty` says which of the two it is.
        now: the time of the run's start, in seconds.
    """

    def __init__(self, stream: TextIO, now: float) -> None:
        self.terminal = stream.isatty()
        self._stream = stream
        self._start = self._printed = now
        self._status = ""

    def say(self, text: str) -> None:
        """Print lines that stay."""
        clear = _CLEAR if self.terminal else ""
        self._stream.write(f"{clear}{text}\n{self._status}")
        self._stream.flush()

    def status(self, text: str, now: float) -> None:
        """Write the status line anew; in a log it is a line now and then."""
        if self.terminal:
            self._status = text[: self._width() - 1]
            self._stream.write(f"{_CLEAR}{self._status}")
            self._stream.flush()
        elif now - self._printed >= max(_SECONDS, _SHARE * (now - self._start)):
            self._printed = now
            self.say(text)

    def clear(self) -> None:
        """Take the status line away."""
        if self._status:
            self._status = ""
            self._stream.write(_CLEAR)
            self._stream.flush()

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except OSError:
            return 80
