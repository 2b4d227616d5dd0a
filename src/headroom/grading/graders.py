"""Graders: where a benchmark's answer stands in a text, and when it is right.

A grader of one's own is one more entry of `GRADERS` (and of `Grader` in `config/questions.py`,
which names it). Both of its functions meet hostile text: they take time linear in its length and
never evaluate it.
"""

import math
import re
from collections.abc import Callable
from typing import NamedTuple

from headroom.errors import GradingError
from headroom.grading.extraction import (
    boxed_or_number,
    first_boxed,
    last_boxed,
    last_match,
    last_number,
)
from headroom.grading.judge import Judge

_LONGEST_NUMBER = 400  # characters; a float has fewer
_LONGEST_CHOICE = 40  # characters; bounds the pattern of a lone letter
_DECORATION = re.compile(r"[\s,$%\\]")
_RATIO = re.compile(r"([^/]+)/([^/]+)")
_RELATIVE_TOLERANCE = 1e-6
_AUTHORS_TOLERANCE = 1e-4

_LETTER = re.compile(r"\W*(?:\\text\s*\{)?\W*([A-Za-z])\W*")
_STATED = re.compile(r"\b(?:answer|option|choice)\b(?:\s+is)?\s*:?\s*\(?([A-Z])\b", re.IGNORECASE)
_IN_BRACKETS = re.compile(r"\(([A-Z])\)")


class Grader(NamedTuple):
    """How the answers to one kind of benchmark are graded."""

    extract: Callable[[str], str | None]
    """Returns the final answer of a text, None if there is none."""
    equal: Judge | None
    """Tells whether an answer is right; None: a judge that needs a process of its own does."""


def same_number(answer: str, gold: str) -> bool:
    """Tell whether two numbers are equal, within a millionth; integers have to be the same.

    Commas, dollar and percent signs are passed over; ``3/4`` is a number.
    """
    first, second = _plain(answer), _plain(gold)
    if first.isdecimal() and second.isdecimal():
        return first.lstrip("0") == second.lstrip("0")
    values = _value(first), _value(second)
    if None in values:
        return False
    return math.isclose(*values, rel_tol=_RELATIVE_TOLERANCE)  # type: ignore[arg-type]


def chosen_letter(text: str) -> str | None:
    """Return the letter of a multiple choice: boxed, stated, in brackets, or all that there is."""
    boxed = _letter(last_boxed(text) or "")
    found = boxed or last_match(_STATED, text) or last_match(_IN_BRACKETS, text) or _letter(text)
    return found[1].upper() if found else None


def same_text(answer: str, gold: str) -> bool:
    """Tell whether two texts are equal but for case and white space."""
    return _folded(answer) == _folded(gold)


def boxed_or_line(text: str) -> str | None:
    """Return the content of the last box, else the last line that is not empty."""
    lines = text.strip().rsplit("\n", 1)
    return last_boxed(text) or lines[-1].strip() or None


GRADERS = {
    "numeric": Grader(boxed_or_number, same_number),
    "choice": Grader(chosen_letter, same_text),
    "exact": Grader(boxed_or_line, same_text),
}
"""The graders of custom benchmarks; their rules are the same under every preset."""


def within_tolerance(answer: str, gold: str) -> bool:
    """Tell whether two numbers differ by 1e-4 at most, as SPRINT's authors judge GSM8K."""
    values = _value(_plain(answer)), _value(_plain(gold))
    if None in values:
        return False
    return abs(values[0] - values[1]) <= _AUTHORS_TOLERANCE  # type: ignore[operator]


BENCHMARKS = {
    ("math", "default"): Grader(last_boxed, None),
    ("math", "authors"): Grader(first_boxed, None),
    ("gsm8k", "default"): Grader(boxed_or_number, None),
    ("gsm8k", "authors"): Grader(last_number, within_tolerance),
}
"""The graders of the papers' benchmarks, by family and preset."""


def find_grader(family: str, preset: str) -> Grader:
    """Return the grader of a benchmark family under a preset.

    Raises:
        GradingError: there is none.
    """
    grader = GRADERS.get(family) or BENCHMARKS.get((family, preset))
    if grader is None:
        known = ", ".join(map("/".join, BENCHMARKS))
        raise GradingError(f"no extraction rule {family}/{preset}; choose one of {known}")
    return grader


def _letter(text: str) -> re.Match[str] | None:
    return _LETTER.fullmatch(text.strip()) if len(text) <= _LONGEST_CHOICE else None


def _plain(number: str) -> str:
    return _DECORATION.sub("", number[:_LONGEST_NUMBER])


def _value(number: str) -> float | None:
    """Return the value of a number or of a ratio of two; None if it has none."""
    ratio = _RATIO.fullmatch(number)
    try:
        value = float(ratio[1]) / float(ratio[2]) if ratio else float(number)
    except (ValueError, ZeroDivisionError):
        return None
    return value if math.isfinite(value) else None


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
