"""What an interrupt does to Snakemake: it ends in a line, whenever it comes and however often.

The end of its terminal is an interrupt, too: it would leave Snakemake's locks behind.
"""

import contextlib
import os
import signal
import sys
from types import FrameType, TracebackType
from typing import NoReturn

_SAID = "headsweep: interrupted; give the same command again to go on\n"


def end_in_a_line() -> None:
    """Have an interrupt end this process in a line; nothing changes where it ignores interrupts.

    Before the first job Snakemake would end in a traceback. Later it waits for its jobs, which a
    terminal has interrupted, too. A second interrupt would end this wait in a traceback (its event
    loops cannot be closed while jobs run), so only the first one counts.
    """
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _ignore)
    sys.excepthook = _tell
    raise KeyboardInterrupt


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing; a process that is begun meanwhile does not take this over, as SIG_IGN."""


def _tell(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Say what ended this process: an interrupt in a line, anything else with its traceback."""
    if issubclass(kind, KeyboardInterrupt):
        with contextlib.suppress(OSError):  # its terminal has ended
            os.write(2, _SAID.encode())
    else:
        sys.__excepthook__(kind, error, traceback)
