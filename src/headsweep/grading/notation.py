r"""How models write answers: thousands, powers of ten, and what stands around an answer.

Both may meet hostile text: they take time linear in its length, as all of `graders` does.
"""

import re

_WRAPPER = re.compile(
    r"\A(?:\\(?:text|textbf|textit|textrm|textnormal|mbox|mathrm|mathbf|mathit|underline)\s*+)?\{"
)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_DEPTH = 3  # of wrappers around an answer

_THIN = r"(?:\\,|[\u2009\u202f])"
_THIN_SPACE = re.compile(_THIN)
_THIN_THOUSANDS = re.compile(
    rf"(?<![\d.,\\^_\u2009\u202f])\d{{1,3}}(?:{_THIN}\d{{3}})++(?!\d|{_THIN}\d)"
)
_SUPERSCRIPTS = str.maketrans(
    "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079", "-0123456789"
)
_POWER_OF_TEN = re.compile(
    r"""(?<![\w.,/^]) (?: (?P<factor>\d[\d,]*+(?:\.\d++)?+|\.\d++)
        \s*+ (?:\\times|\\cdot|[*x\u00b7\u00d7\u22c5]) \s*+ )? 10
    (?: \s*+(?:\^|\*\*)\s*+
            (?: \{\s*+(?P<braced>[-+\u2212]?+\d{1,2})\s*+\} | (?P<bare>-?\d{1,2})(?!\d) )
        | (?P<raised>\u207b?+[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]{1,2}) )""",
    re.VERBOSE,
)


def with_exponents(text: str) -> str:
    r"""Return a text with its powers of ten written short: ``3 \times 10^8`` as ``3e8``.

    ``10^8`` alone is ``1e8``.
    """
    return _POWER_OF_TEN.sub(_exponent, text)


def _exponent(match: re.Match[str]) -> str:
    raised = match["raised"]
    power = raised.translate(_SUPERSCRIPTS) if raised else match["braced"] or match["bare"]
    return f"{match['factor'] or 1}e{power}"


def with_plain_thousands(text: str) -> str:
    r"""Return a text whose thousands no LaTeX parts: ``1{,}000`` as ``1,000``."""
    marked = text.replace("{,}", ",").replace(r"\!", "")
    return _THIN_THOUSANDS.sub(lambda match: _THIN_SPACE.sub("", match[0]), marked)


def unwrapped(text: str) -> str:
    r"""Return a text without the ``{}``, ``\text{}``, ``\mathbf{}``, ... that enclose all of it."""
    text = text.strip()
    for _ in range(_DEPTH):
        wrapper = _WRAPPER.match(text)
        if wrapper is None or closing_brace(text, wrapper.end() - 1) != len(text) - 1:
            break
        text = text[wrapper.end() : -1].strip()
    return text


def closing_brace(text: str, start: int, braces: re.Pattern[str] = _BRACE) -> int | None:
    """Return the position of the brace that closes the one at `start`.

    By default an escaped brace is text, not a brace.
    """
    depth = 0
    for brace in braces.finditer(text, start):
        if brace[0] == "{":
            depth += 1
        elif brace[0] == "}":
            depth -= 1
            if depth == 0:
                return brace.start()
    return None
