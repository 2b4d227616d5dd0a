"""Answer extraction: the final answer in the text of a model.

Every function takes time linear in the text's length, whatever the text is.
"""

import re
from collections import deque

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped brace is text, not a brace
_ANY_BRACE = re.compile(r"[{}]")
_UNBRACED = re.compile(r"[^\s$]*")
_NUMBER = re.compile(r"(?:(?<![\w)])-)?(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)")


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last ``\boxed`` or ``\fbox``.

    ``\boxed 9`` counts as ``\boxed{9}``. An empty box and a box that is never closed, as an
    answer cut short leaves it, hold no answer.
    """
    box = last_match(_BOX, text)
    if box is None:
        return None
    start = box.end()
    if not text.startswith("{", start):
        content = _UNBRACED.match(text, start)
        return (content[0].rstrip(".,") if content else "") or None
    end = _closing_brace(text, start)
    return None if end is None else text[start + 1 : end].strip() or None


def first_boxed(text: str) -> str | None:
    r"""Return the content of the first ``\boxed{``, as SPRINT's authors grade.

    As in their code every brace counts, an escaped one too, and a box that is never closed holds
    the rest of the text.
    """
    start = text.find(r"\boxed{")
    if start < 0:
        return None
    start += len(r"\boxed")
    end = _closing_brace(text, start, _ANY_BRACE)
    if end is None:
        return text[start + 1 :].strip().removesuffix("}").strip()
    return text[start + 1 : end].strip()


def last_number(text: str) -> str | None:
    """Return the last number of a text, without thousands commas."""
    number = last_match(_NUMBER, text)
    return None if number is None else number[0].replace(",", "")


def boxed_or_number(text: str) -> str | None:
    """Return the content of the last box, else the last number of the text."""
    return last_boxed(text) or last_number(text)


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the last match of a pattern in a text."""
    found = deque(pattern.finditer(text), maxlen=1)
    return found[0] if found else None


def _closing_brace(text: str, start: int, braces: re.Pattern[str] = _BRACE) -> int | None:
    """Return the place of the brace that closes the one at `start`."""
    depth = 0
    for brace in braces.finditer(text, start):
        if brace[0] == "{":
            depth += 1
        elif brace[0] == "}":
            depth -= 1
            if depth == 0:
                return brace.start()
    return None
