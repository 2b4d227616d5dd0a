r"""The judge of the ``authors`` preset: the rules of PRM800K's grader.

Source of the rules: https://github.com/openai/prm800k, ``prm800k/grading``, whose first step is
the normalisation of Hendrycks et al., "Measuring Mathematical Problem Solving With the MATH
Dataset" (2021). In order:

1. equal after Hendrycks' normalisation of LaTeX strings;
2. equal after PRM800K's own: units, commas and LaTeX dropped, case ignored;
3. otherwise tuples and intervals with the same brackets and length are compared by element:
   two fractions must be the same string, an integer equals only an integer, and other elements are
   equal if sympy simplifies their difference to zero. Elements with more than two letters or a
   large power are not simplified and count as different.

Two things differ. The original turns LaTeX into text with pylatexenc; here a short function handles
the macros that occur in answers. The original lets sympy evaluate any text as Python; here only
names, numbers, operators and parentheses are evaluated.
"""

import re
from collections.abc import Iterator

import sympy
from sympy.parsing import sympy_parser

from headsweep.grading.graders import TEXT, hendrycks

_TRANSFORMATIONS = (
    *sympy_parser.standard_transformations,
    sympy_parser.implicit_multiplication_application,
)
_UNITS = re.compile(
    r"(?:degree|cm|centimeter|meter|mile|second|minute|hour|day|week|month|year|foot|feet|inch|yard)"
    r"(?:es)?s? *(?:\^[0-9]+)?"
)
_LARGE_NUMBERS = {"million": "*10^6", "billion": "*10^9", "trillion": "*10^12"}
_THOUSANDS = re.compile(r"(\d),(\d\d\d)($|\D)")
_FRACTION = re.compile(r"^-?[0-9]+.?/0*[1-9][0-9]*.?$")
_GROUP = re.compile(r"[()\[\]]([^()\[\]]+)[()\[\]]")
_HARD = re.compile(r"\^\{|\^\(|\^[0-9]+\^|\^[0-9][0-9]+")
_INERT = re.compile(r"(?:[^\W_]|(?<=[^\W_])_(?=\d)|[-+*/(),^!<> ]|\.(?![^\W\d]))*")
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|.", re.DOTALL)
_MACROS = {
    "pi": "pi", "infty": "inf", "cup": "U", "cap": "∩", "cdot": "*", "times": "*", "pm": "±",
    "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠", "neq": "≠", "in": "∈", "approx": "≈",
    "circ": "∘", "alpha": "α", "beta": "β", "gamma": "γ", "theta": "θ", "lambda": "λ", "mu": "μ",
    "phi": "ϕ", "omega": "ω", "sin": "sin", "cos": "cos", "tan": "tan", "log": "log", "ln": "ln",
    "end": "]", "\\": ";", "{": "{", "}": "}", "%": "%", "$": "$", " ": " ", ",": " ", ";": " ",
    "quad": " ",
}  # fmt: skip


def equal(answer: str, gold: str) -> bool:
    """Return whether PRM800K's rules find an answer equal to the gold answer."""
    if hendrycks(answer) == hendrycks(gold):
        return True
    answer, gold = _normalise(answer), _normalise(gold)
    if answer == gold:
        return True
    if not answer:
        return False
    answers, golds = _elements(answer), _elements(gold)
    if len(golds) > 1 and (answer[0] != gold[0] or answer[-1] != gold[-1]):
        return False
    return len(answers) == len(golds) and all(map(_elements_equal, answers, golds))


def _normalise(text: str) -> str:
    if enclosed := TEXT.search(text):
        text = enclosed["text"]
    for sign in (r"\%", r"\$", "$", "%"):
        text = text.replace(sign, "")
    text = text.replace(" or ", " , ").replace(" and ", " , ")
    for word, factor in _LARGE_NUMBERS.items():
        text = text.replace(word, factor)
    text = _UNITS.sub("", text)
    text = re.sub(r"\^ *\\circ", "", text)
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    text = re.sub(r",\\! *", "", text)
    if (number := _integer(text)) is not None:
        text = str(number)
    if "\\" in text:
        text = _latex_to_text(text)
    text = re.sub(r"- *", "-", text)
    text = re.sub(r"([0-9]) +([0-9])", r"\1+\2", text)  # mixed numbers: 7 3/4 is 7+3/4
    text = re.sub(r"[ {}]", "", text).lower()
    if (number := _integer(_join_thousands(text))) is not None:
        text = str(number)
    return text


def _integer(text: str) -> int | None:
    """Return the integer that a text equals within 1e-7, if any."""
    try:
        number = float(text)
        nearest = round(number)
    except (ValueError, OverflowError):
        return None
    return nearest if abs(number - nearest) <= 1e-7 else None


def _join_thousands(text: str) -> str:
    while (joined := _THOUSANDS.sub(r"\1\2\3", text)) != text:
        text = joined
    return text


def _elements(text: str) -> list[str]:
    text = _join_thousands(text)
    if group := _GROUP.fullmatch(text):
        return [element.strip() for element in group[1].split(",")]
    return [text] if text else []


def _elements_equal(answer: str, gold: str) -> bool:
    if _FRACTION.search(answer) and _FRACTION.search(gold):
        return answer == gold
    if (_integer(_join_thousands(answer)) is None) != (_integer(_join_thousands(gold)) is None):
        return False
    difference = f"({gold})-({answer})"
    letters = {char for char in re.sub("sqrt|frac", "", difference) if char.isalpha()}
    if len(letters) > 2 or _HARD.search(difference) or not _INERT.fullmatch(difference):
        return False
    try:
        expression = sympy_parser.parse_expr(
            difference.replace("^", "**"), transformations=_TRANSFORMATIONS
        )
        return bool(sympy.simplify(expression) == 0)
    except MemoryError:
        raise
    except Exception:  # what sympy cannot parse or simplify is not equal, as in the original
        return False


def _latex_to_text(latex: str) -> str:
    latex = latex.replace(r"\tfrac", r"\frac").replace(r"\dfrac", r"\frac")
    latex = latex.replace(r"\frac", r" \frac")  # so that 7\frac34 reads as a mixed number
    try:
        return _until(iter(_TOKEN.findall(latex)), None).strip()
    except RecursionError:
        return latex


def _until(tokens: Iterator[str], end: str | None) -> str:
    parts = []
    for token in tokens:
        if token == end:
            break
        parts.append(_text(token, tokens))
    return "".join(parts)


def _text(token: str, tokens: Iterator[str]) -> str:
    if token == "{":
        return _until(tokens, "}")
    if token == r"\frac":
        return f"{_argument(tokens)}/{_argument(tokens)}"
    if token == r"\sqrt":
        return f"sqrt({_argument(tokens, optional=True)})"
    if token == r"\begin":
        _argument(tokens)
        return "["
    if token == "&":
        return " "
    if token in (r"\end", r"\mbox"):
        _argument(tokens)
    return _MACROS.get(token[1:], "") if token.startswith("\\") else token


def _argument(tokens: Iterator[str], *, optional: bool = False) -> str:
    for token in tokens:
        if optional and token == "[":
            _until(tokens, "]")  # the index of a root, which the original drops, too
        elif not token.isspace():
            return _text(token, tokens)
    return ""
