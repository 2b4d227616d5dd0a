r"""Judges: is an extracted answer equal to the gold answer?

The ``default`` preset uses math-verify, the ``authors`` preset the rules of PRM800K's grader.
Both may run forever or use all memory on a hostile answer, so they are called in `pool`'s workers
only. The functions of this module are cheap and safe in any process:

- `canonical` rewrites an answer without effect on either judge: both drop outer white space and
  read ``\dfrac`` and ``\tfrac`` as ``\frac``. Answers with the same canonical form are judged once.
- `shortcut` decides on two plain integers of at most 15 digits. math-verify compares them as
  integers; PRM800K's rules compare the strings, then the integers, which 64-bit floats hold
  exactly. Under both, they are equal if and only if the strings are equal.
"""

import re
from collections.abc import Callable

Judge = Callable[[str, str], bool]
"""Takes an answer and the gold answer, in this order; the order can matter."""

_FRACTION = re.compile(r"\\[dt]frac")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,14}")
TEXT = re.compile(r"^\\text\{(?P<text>.+?)\}$")
"""A whole answer inside ``\\text{}``."""


def canonical(answer: str) -> str:
    """Return a form of an answer such that answers of equal form get equal verdicts."""
    return _FRACTION.sub(r"\\frac", answer.strip())


def shortcut(answer: str, gold: str) -> bool | None:
    """Return the verdict on two plain integers, None for anything else."""
    if _INTEGER.fullmatch(answer) and _INTEGER.fullmatch(gold):
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
    if slash := re.fullmatch(r"(0|-?[1-9]\d*)/(0|-?[1-9]\d*)", text, re.ASCII):
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
