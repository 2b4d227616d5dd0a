"""Text for people: escaped names, uniformly formatted numbers.

Answers come from a model, questions and subjects from a benchmark file; they may contain anything.
"""

import json
import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from headsweep.errors import ConfigError

_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters except line break and tab; direction marks; halves of surrogate pairs."""


def plain(text: str) -> str:
    """Return text on one line, without control characters."""
    kept = (" " if unicodedata.category(c)[0] in "CZ" else c for c in text)
    return " ".join("".join(kept).split())


def visible(text: str) -> str:
    """Replace control and direction characters by their code points; keep line breaks and tabs.

    Nothing in the result can reorder or hide the text around it.
    """
    return _UNSEEN.sub(lambda match: f"[U+{ord(match[0]):04X}]", text)


def one_line(text: str) -> str:
    """Return text on one line, otherwise as `visible`."""
    return visible(re.sub(r"[\r\n]", " ", text))


def json_line(value: Any) -> str:
    """Return a value as JSON on one line; control and direction characters are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class Visible:
    """A stream that writes text as `visible`; in all else the stream that it is made of.

    Where it cannot write it raises a ConfigError, or a BrokenPipeError if nobody reads.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text, and return its length."""
        with _refused_in_one_line():
            self._stream.write(visible(text))
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        with _refused_in_one_line():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _refused_in_one_line() -> Iterator[None]:
    """Say in one line that standard output cannot be written."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigError(
            f"standard output cannot be written ({error.strerror}); send it elsewhere"
        ) from None


def short(text: str, width: int = 40) -> str:
    """Shorten plain text to a width."""
    text = plain(text)
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def wrapped(text: str, width: int, lines: int = 3) -> str:
    """Break a name into at most `lines` lines of a width."""
    return "\n".join(textwrap.wrap(plain(text), width, max_lines=lines, placeholder="…"))


def plural(noun: str, count: float) -> str:
    """Return a noun as it stands behind a count: in the plural unless that is 1."""
    return noun if count == 1 else f"{noun}s"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, as in ``1 head`` and ``2 heads``."""
    return f"{count} {plural(noun, count)}"


def points(fraction: float) -> str:
    """Format a difference of fractions in percentage points, with its sign; zero has none."""
    return _signed(100 * fraction, 1)


def _signed(number: float, digits: int) -> str:
    """Format a number with so many decimals and its sign; what rounds to zero has none."""
    text = f"{number:+.{digits}f}".replace("-", "−")
    return text if text.strip("+−0.") else text[1:]


def with_interval(form: Callable[[float], str], value: float, low: float, high: float) -> str:
    """Format a number with its interval: ``+1.0 (−2.1 to +4.1)``."""
    return f"{form(value)} ({form(low)} to {form(high)})"


def nats_a_token(change: float) -> str:
    """Format a change of a log-probability for each token, with its sign."""
    return _signed(change, 4)


def nats(change: float) -> str:
    """Format a change of a log-probability with its sign."""
    return _signed(change, 2 if abs(change) < 10 else 1)


def correlation(value: float) -> str:
    """Format a correlation with its sign."""
    return _signed(value, 2)


def parameters(billions: float) -> str:
    """Format a number of parameters with two significant digits or more: 1.5B, 0.63B, 1.1M."""
    number, unit = (billions, "B") if billions >= 0.1 else (1000 * billions, "M")
    digits = 2 if number < 99.5 else 0
    return f"{number:.{digits}g}{unit}" if digits else f"{number:.0f}{unit}"


def percentage(fraction: float) -> str:
    """Format a fraction in percent with one decimal, without the percent sign."""
    return points(fraction).lstrip("+")


def percent(fraction: float) -> str:
    """Format a fraction in percent with one decimal."""
    return f"{percentage(fraction)}%"


def aligned(rows: Sequence[Sequence[str]], left: int) -> str:
    """Return a table as text, its first `left` columns aligned left, the others right."""
    rows = [list(map(one_line, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = "<" * left + ">" * (len(widths) - left)
    lines = []
    for row in rows:
        columns = zip(row, sides, widths, strict=True)
        cells = [f"{cell:{side}{width}}" for cell, side, width in columns]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def duration(hours: float) -> str:
    """Return hours in words, as in ``12.0 min`` or ``3.4 h``."""
    return f"{hours:,.1f} h" if hours >= 1 else f"{60 * hours:.1f} min"


def shared_length(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return how many characters, or other items, two sequences have in common at their start."""
    unlike = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(unlike, min(len(one), len(other)))
