r"""Extraction: where in a text its final answer stands.

Under the ``default`` preset it is looked for behind the thoughts of ``<think>``, in this order: the
last box; behind ``####``; in ``<answer>``; behind a phrase such as "the answer is"; at the end.
"""

import re
from collections import deque
from collections.abc import Callable

from headsweep.grading.notation import closing_brace, with_exponents, with_plain_thousands
from headsweep.grading.numerals import final_number, number

Extract = Callable[[str], str | None]
"""Returns the final answer of a text, None if there is none."""

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
_EMPTY_BOX = re.compile(r"\A\W*\\(?:boxed|fbox)\s*+\{\s*+\}\W*\Z")
_THOUGHT = "</think>"
_MARKED = re.compile(r"####[^\S\n]*+([^\n]*+)")
_TAGGED = re.compile(r"<answer>([^<]*+)", re.IGNORECASE)
_PHRASE = re.compile(
    r"""\banswer\b (?: \s++(?:to|for|of|in)\b [^.\n:=]{0,60}? )? [\s*_`]*+
    (?: (?:is|(?:must|should|would|will)\s+be)\b | [:\uff1a=] )
    [\s*:_]*+ (?P<said> (?: [^.\n] | \.(?=\S) )*+ )""",
    re.IGNORECASE | re.VERBOSE,
)
_MARKUP = "*`_ \t\r\n"
_AFTERTHOUGHT = re.compile(r"[,;]\s|\s(?:because|since|as|so|which|for|after|and|if|when)\b|\(")
_ARITHMETIC = re.compile(r"[-+*/^(){}\d\s.,$\\]++(?:[a-z{}]++[-+*/^(){}\d\s.,$\\]++)*+")
_ANY_BRACE = re.compile(r"[{}]")
_END = re.compile(r"[\s$]")  # of an answer without braces
_FRACTION = re.compile(r"\\[dt]frac")
_POSITIVE = r"(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)"
_NUMBER = re.compile(rf"(?:(?<![\w)])-)?{_POSITIVE}")
_BRACED = rf"(?:\{{[-\u2212]?{_POSITIVE}\}}|\d)"
_LATEX_RATIO = rf"\\[dtc]?frac{_BRACED}{_BRACED}"
_ROOT = rf"\\sqrt(?:\[\d\])?(?:\{{{_POSITIVE}\}}|\d)"
_RATIO = re.compile(
    rf"""(?:(?<![\w)])[-\u2212])?(?:
        (?<![\w^.])(?P<whole>\d++(?:,\d{{3}})*+) (?:[ ]{_POSITIVE}[ ]?/[ ]?{_POSITIVE}
            | [ ]?{_LATEX_RATIO})
        | {_POSITIVE}(?:[eE][-+\u2212]?\d{{1,3}}(?!\w)|[ ]?/[ ]?{_POSITIVE}
            |[ ]?(?:\^|\*\*)[ ]?(?:\{{-?\d{{1,4}}\}}|-?\d{{1,4}}(?!\d))|[ ]?{_ROOT})?
        | {_LATEX_RATIO} | {_ROOT} )""",
    re.VERBOSE,
)


def behind_thoughts(extract: Extract) -> Extract:
    """Return an extraction that looks behind ``</think>`` first, and then in the whole text."""

    def extracted(text: str) -> str | None:
        spoken = text.rpartition(_THOUGHT)[2] if _THOUGHT in text else text
        answer = extract(spoken)
        return extract(text) if answer is None and spoken is not text else answer

    return extracted


def gradable(text: str, stop_reason: str, preset: str) -> str:
    r"""Return the text of an answer, or nothing if it was cut before it gave a final answer.

    The last number or letter of a cut text is a step on its way. Final is what stands in a closed
    box, behind ``####``, in ``<answer>`` or behind a phrase such as "the answer is". SPRINT's
    authors grade cut answers like all others.
    """
    is_final = stop_reason != "length" or preset == "authors"
    return text if is_final or states_answer(text) else ""


def states_answer(text: str) -> bool:
    """Return whether a text says of something that it is its final answer."""
    return last_boxed(text) is not None or said(text) is not None


def tagged(text: str) -> str | None:
    """Return what stands in the last ``<answer>``."""
    match = last_match(_TAGGED, text)
    return match and match[1].strip()


def said(text: str) -> str | None:
    """Return what stands last behind ``####``, else in ``<answer>``, else behind a phrase."""
    for pattern in (_MARKED, _TAGGED, _PHRASE):
        match = last_match(pattern, text)
        answer = match[match.lastindex or 0].strip(_MARKUP) if match else ""
        if answer:
            return answer
    return None


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last ``\boxed`` or ``\fbox``.

    ``\boxed 9`` counts as ``\boxed{9}``. An empty box has no answer, nor has a box that is never
    closed, as in a truncated text.
    """
    box = last_match(_BOX, text)
    if box is None:
        return None
    start = box.end()
    if not text.startswith("{", start):
        return _END.split(text[start:], maxsplit=1)[0].rstrip(".,") or None
    end = closing_brace(text, start)
    return None if end is None else text[start + 1 : end].strip() or None


def first_boxed(text: str) -> str | None:
    r"""Return the content of the first ``\boxed{``, as SPRINT's authors do.

    As in their code, escaped braces count as braces, and a box that is never closed holds the rest
    of the text.
    """
    start = text.find(r"\boxed{")
    if start < 0:
        return None
    start += len(r"\boxed")
    end = closing_brace(text, start, _ANY_BRACE)
    inside = text[start + 1 : end].strip()
    return inside.removesuffix("}").strip() if end is None else inside


def last_number(text: str) -> str | None:
    """Return the last number of a text, without thousands commas; of a ratio the part below.

    SPRINT's authors read GSM8K so.
    """
    match = last_match(_NUMBER, text)
    return None if match is None else match[0].replace(",", "")


def last_ratio(text: str) -> str | None:
    """Return the last number of a text, without thousands commas.

    It may be a ratio of two, a power or a root, or a mixed number: in ``12 6/3`` no number is
    mixed, ``6/3`` is last.
    """
    text = with_exponents(with_plain_thousands(text))
    match = last_match(_RATIO, text)
    return match and _ratio(match, text)


def first_ratio(text: str) -> str | None:
    """Return the first number of a text, as `last_ratio` does the last."""
    text = with_exponents(with_plain_thousands(text))
    match = _RATIO.search(text)
    return match and _ratio(match, text)


def _ratio(match: re.Match[str], text: str) -> str:
    answer = match[0]
    if match["whole"] and number(answer.replace(",", "")) is None:
        answer = text[match.end("whole") : match.end()].strip()
    return answer.replace(",", "").replace("\N{MINUS SIGN}", "-")


def boxed_or_number(text: str) -> str | None:
    """Return the content of the last box, else the number that is said, else the last one."""
    return last_boxed(text) or _said_number(text) or last_ratio(text)


def _said_number(text: str) -> str | None:
    """Return the number that a text says to be its answer: of "5 apples, for 2 + 3 = 5" the first.

    Of an equation it is the right side.
    """
    answer = said(text)
    if answer is None:
        return None
    value = final_number(answer)
    clause = _AFTERTHOUGHT.split(answer, maxsplit=1)[0].rpartition("=")[2]
    if value is None and any(map(str.isdecimal, clause)) and _ARITHMETIC.fullmatch(clause):
        return clause.strip(" $.*")
    last = last_ratio(answer)
    if value is not None:
        return last if last and number(last) == value else answer
    return first_ratio(clause) or last


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the last match of a pattern in a text."""
    last = deque(pattern.finditer(text), maxlen=1)
    return last[0] if last else None


def boxed_or_line(text: str) -> str | None:
    """Return the content of the last box, else the last line that is not empty."""
    if box := last_boxed(text):
        return box
    line = text.strip().rpartition("\n")[2].strip()
    return None if not line or _EMPTY_BOX.match(line) else line
