"""Says on the terminal what takes long, while it takes long."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

_LOG = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 4.0, 30.0
"""Seconds after which a step says what it does; then again after twice as many, or 30."""


@contextlib.contextmanager
def told(doing: str) -> Iterator[None]:
    """Say what is being done once it takes some seconds, and at last how long it took.

    A step that is soon done says nothing.
    """
    begun = time.monotonic()
    is_over = threading.Event()
    has_spoken = threading.Event()

    def speak() -> None:
        pause = _FIRST_PAUSE
        while not is_over.wait(pause):
            has_spoken.set()
            seconds = time.monotonic() - begun
            _LOG.info("%s: %.0f s so far", doing, seconds)
            pause = min(seconds, _LONGEST_PAUSE)

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    is_done = False
    try:
        yield
        is_done = True
    finally:
        is_over.set()
        speaker.join()
        if is_done and has_spoken.is_set():
            _LOG.info("%s: done after %.0f s", doing, time.monotonic() - begun)
