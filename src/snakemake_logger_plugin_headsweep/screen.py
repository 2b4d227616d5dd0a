"""Prints a run's lines, and on a terminal a status line below them that is updated in place."""

import os
from typing import TextIO

from headsweep.text import one_line, visible

_CLEAR = "\r\x1b[K"
_SECONDS = 30.0  # least time between status lines in a log
_SHARE = 0.05  # the same as a share of the run's time, so that logs of long runs stay short


class Screen:
    """Prints to a terminal, or to a log.

    Args:
        stream: the terminal or log; its `isatty` tells which.
        now: time of the run's start in seconds.
    """

    def __init__(self, stream: TextIO, now: float) -> None:
        self.terminal = stream.isatty()
        self._stream = stream
        self._start = self._printed = now
        self._status = ""

    def say(self, text: str) -> None:
        """Print lines that stay."""
        clear = _CLEAR if self.terminal else ""
        self._stream.write(f"{clear}{visible(text)}\n{self._status}")
        self._stream.flush()

    def status(self, text: str, now: float) -> None:
        """Update the status line; in a log, print it as a line now and then."""
        if self.terminal:
            self._status = one_line(text)[: self._width() - 1]
            self._stream.write(f"{_CLEAR}{self._status}")
            self._stream.flush()
        elif now - self._printed >= max(_SECONDS, _SHARE * (now - self._start)):
            self._printed = now
            self.say(text)

    def clear(self) -> None:
        """Remove the status line."""
        if self._status:
            self._status = ""
            self._stream.write(_CLEAR)
            self._stream.flush()

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except OSError:
            return 80
