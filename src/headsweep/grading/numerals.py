r"""Numbers as models write them: decimals, ratios, mixed numbers, powers."""

import math
from fractions import Fraction
from typing import Any

from headsweep.grading.lexer import tokens
from headsweep.grading.parser import parse
from headsweep.grading.tree import Node, UnreadableError

_LONGEST = 400  # characters of a number; a float has fewer
_MOST_BITS = 20_000  # of an exact number
_MOST_FACTORIAL = 1000
_SIGNS = {"percent", "degree", "$", "€", "£", "¥", "₹"}
"""What may stand beside a number that is written as one."""
_ARITHMETIC = ("sum", "negative", "product", "quotient", "power", "factorial")
_NUMERALS = ("negative", "quotient")


def number(text: str) -> Fraction | None:
    r"""Return the value of a number, None if the text is anything else.

    A number is a decimal, with or without well-formed thousands or a power of ten, a ratio, a mixed
    number (``3 1/2``), a repeating decimal (``0.\overline{3}``) or a power of integers. Signs of
    currencies, percent and degrees are ignored. ``1,2``, ``1 2`` and ``2 + 3`` are no numbers.
    """
    return _number(text, is_alone=True)


def final_number(answer: str) -> Fraction | None:
    r"""Return the number that an answer gives, None if it gives none.

    It may have a name before it and a unit behind it, and stand in ``\text{}``: ``x = 5 cm``.
    """
    return _number(answer, is_alone=False)


def _number(text: str, *, is_alone: bool) -> Fraction | None:
    if len(text) > _LONGEST:
        return None
    if text.isdecimal():  # as most are
        return Fraction(int(text))
    try:
        node = parse(tokens(text))
        if not is_alone and (node.kind, node.text) == ("relation", "="):
            if node.parts[0].kind not in ("name", "words") or len(node.parts) > 2:
                return None
            node = node.parts[1]
        if node.kind == "quantity" and (not is_alone or node.text in _SIGNS):
            (node,) = node.parts
        return exact(node) if _is_numeral(node) else None
    except UnreadableError:
        return None


def _is_numeral(node: Node) -> bool:
    """Return whether an expression is written as a number, with nothing left to compute."""
    if node.kind == "product" and len(node.parts) == 2:  # 3 * 10^8, 5 million
        factor, scale = node.parts
        ten = Node("number", text="10", number=Fraction(10))
        is_scale = scale.parts[:1] == (ten,) or (scale.kind == "number" and not scale.text)
        return is_scale and _is_numeral(factor) and _is_numeral(scale)
    if node.kind == "power":
        return all(part.kind in ("number", "negative") for part in node.parts)
    return node.kind == "number" or (node.kind in _NUMERALS and all(map(_is_numeral, node.parts)))


def exact(node: Node) -> Fraction | None:
    """Return the value of an expression if it is rational by arithmetic alone, and not too long.

    Raises:
        UnreadableError: it divides by zero.
    """
    if node.kind == "number":
        return node.number
    if node.kind not in _ARITHMETIC:
        return None
    values = []
    for part in node.parts:
        value = exact(part)
        if value is None or _bits(value) > _MOST_BITS:
            return None
        values.append(value)
    first, last = values[0], values[-1]
    if node.kind == "sum":
        return sum(values, Fraction(0))
    if node.kind == "negative":
        return -first
    if node.kind == "product":
        return _product(values)
    if node.kind == "factorial":
        is_small = first.denominator == 1 and 0 <= first <= _MOST_FACTORIAL
        return Fraction(math.factorial(int(first))) if is_small else None
    if node.kind == "quotient":
        return first / divisor(last)
    if last.denominator != 1 or abs(last) * _bits(first) > _MOST_BITS:
        return None
    return (first if last >= 0 else divisor(first)) ** int(last)


def _product(values: list[Fraction]) -> Fraction | None:
    product = Fraction(1)
    for value in values:
        product *= value
        if _bits(product) > _MOST_BITS:
            return None
    return product


def _bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()


def divisor(value: Any) -> Any:
    """Return a number that something is divided by; raises UnreadableError if it is zero."""
    if value == 0:
        raise UnreadableError("a division by zero")
    return value
