r"""Graders: how to extract a benchmark's answer from a text, and when it is right.

To add a grader, add an entry to `GRADERS` and its name to `BenchmarkGrader` in `choices.py`; to
change one, raise `GRADERS_VERSION` there. All of its functions must expect hostile text: they take
time linear in its length, and never evaluate it.
`pool`'s workers call them, within limits; other processes call only `canonical` and `shortcut`. A
pattern here is linear however it is applied: what repeats gives nothing back (``++``) where
something else could take it, and the pattern of a whole text begins with ``\A``.

Mathematical answers are compared by a judge: math-verify under the ``default`` preset, the rules of
PRM800K's grader under ``authors``. Both may run forever or use all memory on a hostile answer.
"""

import math
import re
from collections import deque
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from headsweep.grading.notation import (
    closing_brace,
    unwrapped,
    with_exponents,
    with_plain_thousands,
)
from headsweep.grading.numerals import final_number, number

Judge = Callable[[str, str], bool]
"""Takes an answer and the gold answer, in this order; the order can matter."""

TEXT = re.compile(r"^\\text\{(?P<text>.+?)\}$")
"""A whole answer inside ``\\text{}``."""

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
_EMPTY_BOX = re.compile(r"\A\W*\\(?:boxed|fbox)\s*+\{\s*+\}\W*\Z")
_FINAL = re.compile(r"####|<answer>|\banswer\b[^.\n]{0,60}?(?:\bis\b|[:\uff1a=])", re.IGNORECASE)
_ANY_BRACE = re.compile(r"[{}]")
_END = re.compile(r"[\s$]")  # of an answer without braces
_FRACTION = re.compile(r"\\[dt]frac")
_INTEGER = re.compile(r"\A(?:0|-?[1-9][0-9]{0,14})\Z")
_POSITIVE = r"(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)"
_NUMBER = re.compile(rf"(?:(?<![\w)])-)?{_POSITIVE}")
_BRACED = rf"(?:\{{[-\u2212]?{_POSITIVE}\}}|\d)"
_LATEX_RATIO = rf"\\[dtc]?frac{_BRACED}{_BRACED}"
_RATIO = re.compile(
    rf"""(?:(?<![\w)])[-\u2212])?(?:
        (?<![\w^.])(?P<whole>\d++(?:,\d{{3}})*+) (?:[ ]{_POSITIVE}[ ]?/[ ]?{_POSITIVE}
            | [ ]?{_LATEX_RATIO})
        | {_POSITIVE}(?:[eE][-+\u2212]?\d{{1,3}}(?!\w)|[ ]?/[ ]?{_POSITIVE})?
        | {_LATEX_RATIO} )""",
    re.VERBOSE,
)

_LONGEST_NUMBER = 400  # characters; a float has fewer
_MILLIONTH = Fraction(1, 10**6)
_SLASH = re.compile(r"\A(0|-?[1-9][0-9]*+)/(0|-?[1-9][0-9]*+)\Z")
_DECORATION = re.compile(r"[\s,$%\\]")

_LETTER = re.compile(r"\A\W*+(?:(?<=\\)text\s*+\{\W*+)?+([A-Za-z])\W*+\Z")
_BOXED_LETTER = re.compile(
    r"""\A (?: [\s{($*\[] | \\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox)\s*+\{ )*+
    ([A-Za-z])
    (?: [\s})$*\].,]*+ \Z | [\s$*\]]*+ [.):}] (?!\W*+(?:(?:and|or)\b|[A-Z][.):}])) )
    """,
    re.VERBOSE,
)
_STATED = re.compile(
    r"""
    (?: (?P<answer> \banswer | \b(?:correct|right|best) \s++ (?:option|choice) )
        | \b(?:option|choice) ) \b [\s*_]*+ (?:(?:is|must\ be|should\ be|has\ to\ be)\b)?+
    [\s*_]*+ (?:(?:therefore|thus|hence|then|clearly|indeed|so)\b)?+ [\s:*_$]*+
    (?:\\(?:text|textbf|mathrm)\{)?+ \(?+
    # "the answer is I believe (C)"
    (?! I (?: ['\u2019] | \s++ (?:believe|think|guess|suppose|am|get|got|chose|would|will) \b ) )
    (?P<letter>
        (?-i:[A-Z]) (?![^\W_])
        # "the answer is a prime": a small letter may be a word, unless its clause ends with it.
        | [a-z] (?= [*_$}).,;]++ (?:\s|\Z) | [^\S\n]*+ (?:\n|\Z) )
    )
    # "option A is wrong" states none.
    (?! [*_$})]*+ \s++ (?: (?:is|are)\s++ (?:not|wrong|incorrect|false|invalid) | isn't | cannot
        | can't | can\s++be\s++(?:eliminated|excluded|ruled) ) \b )
    # "A or B" and "A, B and C" are no choice; "B, and A is wrong" is one.
    (?! [*_$})]*+ (?: \s*+,\s*+ \(?(?-i:[A-Z])\)?(?![^\W_]) )*+
        \s*+ (?:,\s*+)?+ (?:/|(?:and|or)\b) \s*+ \(?+ (?-i:[A-HJ-Z]) (?![^\W_]) \)?+
        (?! \s++ (?:is|are|was|were|cannot|can't|isn't)\b ) )
    (?: (?= [*_$})]*+ \s++ is \s++ (?:the\s++)?+ (?:correct|right|best|answer) \b )
        (?P<correct>) )?+
    """,
    re.IGNORECASE | re.VERBOSE,
)
_IN_BRACKETS = re.compile(r"\(([A-Z])\)(?P<others>(?:\s*+(?:/|and\b|or\b)\s*+\([A-Z]\))++)?+")


def value_or_text(answer: str) -> str:
    r"""Return a form in which equal answers are mostly equal: a number's value, or Hendrycks' form.

    Numbers are those of `final_number`: ``6/2``, ``\frac{6}{2}``, ``x = 3.00`` and ``3 cm`` have
    one form, ``1,2`` is no number. The form takes linear time and no gold answer, and unlike a
    judge's verdicts it never makes a equal to b and b to c but not a to c.
    """
    value = final_number(answer)
    if value is not None:
        return str(value)
    text = hendrycks(answer)
    # Hendrycks' form of what is no number may be one: of `1 2` or `5 \text{ and } 6`.
    return text if number(text) is None else answer.strip()


def folded(answer: str) -> str:
    r"""Return a text without differences of case and white space, and without an outer ``\text{}``.

    Its other outer macros go, too: `unwrapped`.
    """
    return " ".join(unwrapped(answer).casefold().split())


class Grader(NamedTuple):
    """How the answers to one kind of benchmark are graded."""

    extract: Callable[[str], str | None]
    """Returns the final answer of a text, None if there is none."""
    equal: Judge | None
    """Returns whether an answer is right. None: the preset's judge decides."""
    form: Callable[[str], str] = value_or_text
    """Returns a form of an answer: those of equal form vote together, right or wrong."""


def gradable(text: str, stop_reason: str, preset: str) -> str:
    r"""Return the text of an answer, or nothing if it was cut before it gave a final answer.

    The last number or letter of a cut text is a step on its way. Final is what stands in a closed
    box, behind ``####``, in ``<answer>`` or behind a phrase such as "the answer is". SPRINT's
    authors grade cut answers like all others.
    """
    is_final = stop_reason != "length" or preset == "authors"
    return text if is_final or last_boxed(text) or _FINAL.search(text) else ""


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

    It may be a ratio of two, or a mixed number: in ``12 6/3`` no number is mixed, ``6/3`` is last.
    """
    text = with_exponents(with_plain_thousands(text))
    match = last_match(_RATIO, text)
    if match is None:
        return None
    answer = match[0]
    if match["whole"] and number(answer.replace(",", "")) is None:
        answer = text[match.end("whole") : match.end()].strip()
    return answer.replace(",", "").replace("\N{MINUS SIGN}", "-")


def boxed_or_number(text: str) -> str | None:
    """Return the content of the last box, else the last number or ratio of the text."""
    return last_boxed(text) or last_ratio(text)


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the last match of a pattern in a text."""
    last = deque(pattern.finditer(text), maxlen=1)
    return last[0] if last else None


def same_number(answer: str, gold: str) -> bool:
    """Return whether two numbers are equal within a millionth; integers must be identical.

    Numbers are those of `number`; the answer may have a name before it and a unit behind it. A gold
    answer that is written otherwise, such as ``3,5``, has to be given as it is.
    """
    first, second = final_number(answer), number(gold)
    if second is None:
        return any(map(str.isdecimal, gold)) and same_text(answer, gold)  # "nan" is no answer
    if first is None:
        return False
    if first.denominator == second.denominator == 1:
        return first == second
    return abs(first - second) <= _MILLIONTH * max(abs(first), abs(second))


def within_tolerance(answer: str, gold: str) -> bool:
    """Return whether two numbers differ by at most 1e-4, the rule of SPRINT's authors for GSM8K."""
    return abs(_value(_plain(answer)) - _value(_plain(gold))) <= 1e-4


def chosen_letter(text: str) -> str | None:
    """Return a multiple-choice letter: of the box, else stated, in brackets, or alone in the text.

    If there is a box, it alone decides.
    """
    boxed = last_boxed(text)
    if boxed is not None:
        match = _BOXED_LETTER.match(boxed)
        return match[1].upper() if match else _stated(boxed)
    if stated := _stated(text):
        return stated
    match = _in_brackets(text) or _LETTER.match(text)
    return match[1].upper() if match else None


def _stated(text: str) -> str | None:
    """Return the letter that a text states last as its answer, else the option it names last.

    What is said of other options behind the answer ("option A describes ...") does not count.
    """
    named = None
    answer = None
    for match in _STATED.finditer(text):
        named = match["letter"].upper()
        if match["answer"] is not None or match["correct"] is not None:
            answer = named
    return answer or named


def _in_brackets(text: str) -> re.Match[str] | None:
    """Return the last letter in brackets, unless it is one of several that are named together."""
    match = last_match(_IN_BRACKETS, text)
    return match if match and match["others"] is None else None


def same_text(answer: str, gold: str) -> bool:
    """Return whether two texts are equal, ignoring case and repeated white space."""
    return folded(answer) == folded(gold)


def boxed_or_line(text: str) -> str | None:
    """Return the content of the last box, else the last line that is not empty."""
    if box := last_boxed(text):
        return box
    line = text.strip().rpartition("\n")[2].strip()
    return None if not line or _EMPTY_BOX.match(line) else line


GRADERS = {
    "numeric": Grader(boxed_or_number, same_number),
    "choice": Grader(chosen_letter, same_text, folded),
    "exact": Grader(boxed_or_line, same_text, folded),
}
"""The graders of custom benchmarks, the same under every preset."""

BENCHMARKS = {
    ("math", "default"): Grader(last_boxed, None),
    ("math", "authors"): Grader(first_boxed, None),
    ("gsm8k", "default"): Grader(boxed_or_number, None),
    ("gsm8k", "authors"): Grader(last_number, within_tolerance),
}
"""The graders of the papers' benchmarks, by name and preset."""


def find_grader(name: str, preset: str) -> Grader:
    """Return the grader of this name under a preset."""
    return GRADERS.get(name) or BENCHMARKS[name, preset]


def _plain(number: str) -> str:
    return _DECORATION.sub("", number[:_LONGEST_NUMBER])


def _value(number: str) -> float:
    """Return the value of a number or of a ratio of two; NaN, which equals nothing, otherwise."""
    above, slash, below = number.partition("/")
    try:
        value = float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        return math.nan
    return value if math.isfinite(value) else math.nan


def read(grader: Grader, text: str) -> tuple[str, str, str] | None:
    """Return the final answer of a text, its canonical form, and its form for votes, if any."""
    answer = grader.extract(text)
    return None if answer is None else (answer, canonical(answer), grader.form(answer))


def read_final(grader: Grader, text: str) -> tuple[str, str, str] | None:
    """Return what `read` does of a text that is a final answer, as if it stood in a box."""
    alone = text.strip()
    if not alone:
        return None
    boxed = rf"\boxed{{{text}}}"
    fits = closing_brace(boxed, boxed.index("{")) == len(boxed) - 1  # its own braces may not
    as_it_is = alone, canonical(alone), grader.form(alone)
    return (read(grader, boxed) if fits else None) or as_it_is


def canonical(answer: str) -> str:
    r"""Return a form of an answer such that answers of equal form get equal verdicts.

    Both judges drop outer white space and read ``\dfrac`` and ``\tfrac`` as ``\frac``.
    """
    return _FRACTION.sub(r"\\frac", answer.strip())


def shortcut(answer: str, gold: str) -> bool | None:
    """Return the verdict on two plain integers of at most 15 digits, None for anything else.

    All graders compare them as strings or integers, or as 64-bit floats, which hold them exactly.
    They are equal if and only if the strings are.
    """
    if _INTEGER.match(answer) and _INTEGER.match(gold):
        return answer == gold
    return None


def hendrycks(answer: str) -> str:
    r"""Return a LaTeX answer in a normal form of spaces, sizes, units and abbreviations.

    ``\dfrac12`` and ``1/2`` both become ``\frac{1}{2}``. Time is linear in the length. The rules
    are those released with MATH (Hendrycks et al. 2021, Measuring Mathematical Problem Solving
    With the MATH Dataset), with PRM800K's change that an enclosing ``\text{}`` is dropped.
    """
    answer = answer.strip()
    if enclosed := TEXT.search(answer):
        answer = enclosed["text"].strip()
    text = answer
    for old, new in (
        ("\n", ""), (r"\!", ""), (r"\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac"),
        (r"\left", ""), (r"\right", ""), (r"^{\circ}", ""), (r"^\circ", ""), (r"\$", ""),
    ):  # fmt: skip
        text = text.replace(old, new)
    text, *units = text.split(r"\text{ ")  # a unit on the right
    if len(units) > 1:
        return answer
    text = text.replace(r"\%", "").replace(" .", " 0.").replace("{.", "{0.")
    if text.startswith("."):
        text = "0" + text
    name, *values = text.split("=")
    if len(values) == 1 and len(name) <= 2:  # "x = 5"
        text = values[0]
    try:
        text = _brace_fractions(_brace_roots(text).replace(" ", ""))
    except IndexError:  # a macro at the very end; the original gives up in the same cases
        return answer
    if text == "0.5":
        return r"\frac{1}{2}"
    if slash := _SLASH.match(text):
        return rf"\frac{{{slash[1]}}}{{{slash[2]}}}"
    return text


def _brace_roots(text: str) -> str:
    head, *tails = text.split(r"\sqrt")
    tails = [tail if tail[0] == "{" else f"{{{tail[0]}}}{tail[1:]}" for tail in tails]
    return r"\sqrt".join([head, *tails])


def _brace_fractions(text: str) -> str:
    head, *tails = text.split(r"\frac")
    for index, tail in enumerate(tails):
        if tail[0] != "{":
            if len(tail) < 2:
                return text
            rest = tail[1:] if tail[1] == "{" else f"{{{tail[1]}}}{tail[2:]}"
            tails[index] = f"{{{tail[0]}}}{rest}"
    return r"\frac".join([head, *tails])
