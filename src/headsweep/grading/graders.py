r"""Graders: how to extract a benchmark's answer from a text, and when it is right.

To add a grader, add an entry to `GRADERS`, and in `choices.py` its name to `BenchmarkGrader` and
what it compares to `COMPARED`; to change one, raise `GRADERS_VERSION` there. All of its functions
must expect hostile text: they take time linear in its length, and never evaluate it.
`pool`'s workers call them, within limits; other processes call only `canonical` and `shortcut`. A
pattern here is linear however it is applied: what repeats gives nothing back (``++``) where
something else could take it, and the pattern of a whole text begins with ``\A``.

Mathematical answers are compared by a judge: `judge` under the ``default`` preset, the rules of
PRM800K's grader under ``authors``, which may run forever or use all memory on a hostile answer.
"""

import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from headsweep.grading.extraction import (
    Extract,
    behind_thoughts,
    boxed_or_line,
    boxed_or_number,
    first_boxed,
    last_boxed,
    last_number,
)
from headsweep.grading.letters import boxed_letter, chosen_letter
from headsweep.grading.notation import closing_brace, unwrapped
from headsweep.grading.numerals import final_number, number

Judge = Callable[[str, str], bool]
"""Takes an answer and the gold answer, in this order; the order can matter."""

TEXT = re.compile(r"^\\text\{(?P<text>.+?)\}$")
"""A whole answer inside ``\\text{}``."""

_INTEGER = re.compile(r"\A(?:0|-?[1-9][0-9]{0,14})\Z")
_MILLIONTH = Fraction(1, 10**6)
_SLASH = re.compile(r"\A(0|-?[1-9][0-9]*+)/(0|-?[1-9][0-9]*+)\Z")
_FRACTION = re.compile(r"(?<!\\)\\[dt]frac")


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

    Its other outer macros go, too, and a stop at its end. Accents have one form.
    """
    text = unwrapped(_without_stop(unicodedata.normalize("NFC", answer)))
    return " ".join(_without_stop(text).casefold().split())


def _without_stop(text: str) -> str:
    text = text.strip()
    return text if text.endswith("..") else text.removesuffix(".")


class Grader(NamedTuple):
    """How the answers to one kind of benchmark are graded."""

    extract: Extract
    equal: Judge | None
    """Returns whether an answer is right. None: the preset's judge decides."""
    form: Callable[[str], str] = value_or_text
    """Returns a form of an answer: those of equal form vote together, right or wrong."""


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
    try:
        return abs(float(answer.replace(",", "")) - float(gold.replace(",", ""))) <= 1e-4
    except ValueError:  # no number
        return False


def same_text(answer: str, gold: str) -> bool:
    """Return whether two texts are equal, ignoring case and repeated white space."""
    return folded(answer) == folded(gold)


def same_letter(answer: str, gold: str) -> bool:
    """Return whether a letter is that of the gold answer, which may stand in brackets."""
    return answer.upper() == (boxed_letter(gold) or gold).upper()


GRADERS = {
    "numeric": Grader(behind_thoughts(boxed_or_number), same_number),
    "choice": Grader(behind_thoughts(chosen_letter), same_letter, folded),
    "exact": Grader(behind_thoughts(boxed_or_line), same_text, folded),
}
"""The graders of custom benchmarks, the same under every preset."""

BENCHMARKS = {
    ("math", "default"): Grader(behind_thoughts(last_boxed), None),
    ("math", "authors"): Grader(first_boxed, None),
    ("gsm8k", "default"): Grader(behind_thoughts(boxed_or_number), None),
    ("gsm8k", "authors"): Grader(last_number, within_tolerance),
}
"""The graders of the papers' benchmarks, by name and preset."""


def find_grader(name: str, preset: str) -> Grader:
    """Return the grader of this name under a preset."""
    return GRADERS.get(name) or BENCHMARKS[name, preset]


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
