r"""Judges: is an extracted answer equal to the gold answer?

The ``default`` preset asks math-verify, the ``authors`` preset the rules of PRM800K's grader.
Both may run for ever or eat all memory on a hostile answer, so they are called in `pool`'s
workers only. What this module itself computes is cheap and safe anywhere:

- `canonical` rewrites an answer in a way that no judge can see: both drop outer white space and
  read ``\dfrac`` and ``\tfrac`` as ``\frac``. Answers with the same canonical form are judged once.
- `shortcut` settles two plain integers of at most 15 digits. math-verify reads both as integers
  and compares those; PRM800K's rules compare their strings, then the integers themselves, exact
  as 64-bit floats. Both therefore say "equal" if and only if the strings are equal.
"""

import re
from collections.abc import Callable

from headroom.errors import GradingError

Judge = Callable[[str, str], bool]
"""Takes an answer and the gold answer, in this order; the order can matter."""

_FRACTION = re.compile(r"\\[dt]frac")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,14}")


def canonical(answer: str) -> str:
    """Return the form of an answer under which equal forms get equal verdicts."""
    return _FRACTION.sub(r"\\frac", answer.strip())


def shortcut(answer: str, gold: str) -> bool | None:
    """Return the verdict on two plain integers, None for anything else."""
    if _INTEGER.fullmatch(answer) and _INTEGER.fullmatch(gold):
        return answer == gold
    return None


def load_judge(preset: str) -> Judge:
    """Import and return the judge of a preset; this loads sympy.

    Raises:
        GradingError: the preset is not ``default`` or ``authors``.
    """
    if preset == "default":
        from headroom.grading.math_verify_judge import equal
    elif preset == "authors":
        from headroom.grading.prm800k_judge import equal
    else:
        raise GradingError(f"no judge for preset {preset!r}; choose 'default' or 'authors'")
    return equal
