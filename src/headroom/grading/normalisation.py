r"""Normalisation of LaTeX answers, as in the release of the MATH dataset.

Source of the rules: Hendrycks et al., "Measuring Mathematical Problem Solving With the MATH
Dataset" (2021), with the change of PRM800K (https://github.com/openai/prm800k) that an enclosing
``\text{}`` is dropped.
"""

import re

TEXT = re.compile(r"^\\text\{(?P<text>.+?)\}$")
"""A whole answer inside ``\\text{}``."""


def hendrycks(answer: str) -> str:
    r"""Return an answer without what LaTeX allows to vary: spaces, sizes, units, short forms.

    ``\dfrac12`` and ``1/2`` both become ``\frac{1}{2}``. Time is linear in the length.
    """
    answer = answer.strip()
    if text := TEXT.search(answer):
        answer = text["text"].strip()
    try:
        return _strip(answer)
    except IndexError:  # a macro at the very end: the original gives up in the same places
        return answer


def _strip(text: str) -> str:
    for old, new in (
        ("\n", ""), (r"\!", ""), (r"\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac"),
        (r"\left", ""), (r"\right", ""), (r"^{\circ}", ""), (r"^\circ", ""), (r"\$", ""),
    ):  # fmt: skip
        text = text.replace(old, new)
    if text.count(r"\text{ ") > 1:
        raise IndexError("one unit at most")
    text = text.split(r"\text{ ")[0]  # a unit on the right
    text = text.replace(r"\%", "").replace(" .", " 0.").replace("{.", "{0.")
    if text.startswith("."):
        text = "0" + text
    name, *values = text.split("=")
    if len(values) == 1 and len(name) <= 2:  # "x = 5"
        text = values[0]
    text = _brace_roots(text).replace(" ", "")
    text = _brace_fractions(text)
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
