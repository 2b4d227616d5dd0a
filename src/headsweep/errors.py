"""What a user is told: errors that they can act on, and the log level of results.

Each error has a message of one line: the value received, what is allowed, the next step. The
command line prints it and exits with status 2. Any other exception is a bug and keeps its
traceback.
"""

import logging
import re
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any

RESULT = 25
"""The log level, above progress (INFO), of a job's result: one line that a run shows."""

logging.addLevelName(RESULT, "RESULT")


_LONGEST = 200  # characters of a quoted value
_HEAD, _TAIL = 400, 300  # characters of a long message that stay


class HeadsweepError(Exception):
    """Base of all errors caused by input, environment or data rather than by a bug.

    Its message becomes one line without control characters. Of a very long one the beginning and
    the end stay: the end names the next step.
    """

    def __init__(self, message: str) -> None:
        line = " ".join(map(str.strip, re.split(r"[\r\n]+", message)))
        if len(line) > _HEAD + _TAIL:
            line = f"{line[:_HEAD]} ... {line[-_TAIL:]}"
        shown = (
            character if character.isprintable() else ascii(character)[1:-1] for character in line
        )
        super().__init__("".join(shown))


class ConfigError(HeadsweepError):
    """A config that cannot be run: unknown key, wrong type, value out of range."""


class BenchmarkError(HeadsweepError):
    """A benchmark that is missing, empty, damaged or malformed."""


class ModelError(HeadsweepError):
    """A model that cannot be found, read, placed or pruned."""


class TableError(HeadsweepError):
    """A table that is missing, damaged or of another schema."""


class GradingError(HeadsweepError):
    """Grading that cannot be done as asked."""


class EngineError(HeadsweepError):
    """An engine process that failed, died, was stopped, or cannot be reached."""


def reject_duplicate_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of a JSON text, as its `object_pairs_hook`.

    Raises:
        ValueError: a key is given twice.
    """
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise ValueError(f"the key {quoted(key)} is given twice; remove one")
        content[key] = value
    return content


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` of the allowed word most like one; nothing if none is."""
    from difflib import get_close_matches  # slow to import

    found = get_close_matches(word, list(allowed), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def cause_of(error: Exception, most: int | None = None) -> str:
    """Return an error's type and message in one line, the message's first `most` characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:most]}"


def told_of(error: Exception, most: int | None = None) -> str:
    """Return what a user is told of any error, in one line: its message, or as `cause_of`.

    The message alone is told of a HeadsweepError, in full; `most` bounds that of any other error.
    """
    return str(error) if isinstance(error, HeadsweepError) else cause_of(error, most)


def quoted(value: object) -> str:
    """Return a value as Python writes it, in at most 200 characters.

    The work is bounded, too: lists that YAML's aliases nest may hold billions of items in all.
    """
    form = reprlib.Repr()
    form.maxlevel, form.maxdict, form.maxlist, form.maxtuple = 3, 6, 6, 6
    form.maxstring = form.maxother = _LONGEST
    try:
        text = form.repr(value)
    except ValueError:  # an integer of more digits than Python writes
        text = f"a very large {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
