"""Says on the terminal what takes long, while it takes long."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

_LOG = logging.getLogger(__name__)

PASSING = {"is_passing": True}
"""Marks, as a record's `extra`, what a terminal shows until the next line."""

ON_TERMINALS = PASSING | {"is_for_terminals": True}
"""Marks what nothing but a terminal shows, until the next line; an empty message only clears it."""

_PAUSE = 3.0
"""Seconds after which a step says what it does, again and again."""


@contextlib.contextmanager
def told(doing: str) -> Iterator[None]:
    """Say what is being done once it takes some seconds, and at last how long it took.

    A terminal shows it from the first moment on, since no thread can speak while a large library is
    being loaded. Of a step that is soon done nothing stays.
    """
    _LOG.info("%s", doing, extra=ON_TERMINALS)
    begun = time.monotonic()
    is_over = threading.Event()
    has_spoken = threading.Event()

    def speak() -> None:
        while not is_over.wait(_PAUSE):
            has_spoken.set()
            seconds = time.monotonic() - begun
            _LOG.info("%s: %.0f s so far", doing, seconds, extra=PASSING)

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
        else:
            _LOG.info("", extra=ON_TERMINALS)
