"""Answers are read faster than by math-verify, and to the same expressions.

A seeded sample of what 33 variants answer to MATH; HEADROOM_ANSWERS=150000 reads them all.
"""

import os
import random

import pytest
import sympy
from latex2sympy2_extended import latex2sympy2
from math_verify import grader

from headroom.bench import grading as bench
from headroom.grading import math_verify_judge as latex
from headroom.grading.graders import canonical
from headroom.grading.math_verify_judge import _parse, differ

COUNT = int(os.environ.get("HEADROOM_ANSWERS", "250"))
HARD = [
    *("x^2 + 3", "y^7 + 25", "x^2 + 3", "n^1 + 0", "007", "0", "1,234", "1,234.5", "0.50", "00.5"),
    *(".5", "5.", "1e5", "1,2", "12,34", "3,,4", "x_{10}", "x_{11}", "i^2", "i^3", r"10\%"),
    *(r"7\frac{3}{4}", r"7\frac{4}{3}", r"\frac{d}{dx} x^2", r"\frac{d}{dy} y^3", "(1,2]", "(2,1]"),
    *(r"\text{Evelyn}", r"\text{ten}", "(3", "(4", "[5", "x =", "y =", "a=b=3", "c=d=4", "1<x<2"),
    *(r"5 \le y < 7", r"\sqrt[3]{2}", r"\sqrt[5]{7}", r"\log_2 8", r"\log_3 9", "x y", ""),
    *(r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}3\\4\end{pmatrix}", "1" * 101, "9!"),
    "\u0661",
]


def real_answers(folder):
    golds = bench._golds(folder / "math_train.jsonl.gz")
    pairs = bench.answers(golds, 33 if len(golds) < COUNT else 1, seed=5)
    texts = sorted({canonical(text) for pair in pairs for text in pair})
    return random.Random(5).sample(texts, min(COUNT, len(texts)))


def shape(expression):
    """Return all that a verdict can depend on: types, order of arguments, leaves, assumptions."""
    if isinstance(expression, list | tuple):
        return [shape(part) for part in expression]
    arguments = getattr(expression, "_unsorted_args", None) or getattr(expression, "args", ())
    if not arguments:
        return f"{type(expression).__name__} {sympy.srepr(expression)}"
    return [type(expression).__name__, *map(shape, arguments)]


@pytest.mark.parametrize("real", [False, True])
def test_texts_are_read_as_math_verify_reads_them(real, request, monkeypatch):
    texts = real_answers(request.getfixturevalue("headroom_data")) if real else HARD
    found = [shape(_parse(text)) for text in texts]
    monkeypatch.setattr(latex2sympy2, "PSParser", latex._Parser.__base__)
    monkeypatch.setattr(latex2sympy2._Latex2Sympy, "parse_number", latex._parse_any_number)
    for text, own in zip(texts, found, strict=True):
        assert shape(_parse(text)) == own, text


UNEQUAL = [
    *((r"41", r"\sqrt{3} - 5i"), (r"\sqrt{550}", r"\sqrt{59}"), (r"1008\sqrt{6}", "3")),
    *((r"36x\sqrt{37x}", r"36x\sqrt{35x}"), ("x^2+1", "y^2+1"), ("-1+i", "12"), (r"72\pi", "72")),
    *((r"\frac{x-1}{x+1}", r"\frac{x+1}{x-1}"), (r"\sin 2", r"\cos 2"), ("e^{20}", "e^{21}")),
]
EQUAL = [
    *(("(x+1)^2", "x^2+2x+1"), (r"\frac{2}{\sqrt{2}}", r"\sqrt{2}"), (r"\sqrt{8}", r"2\sqrt{2}")),
    *((r"\frac{1}{\sqrt{3}-\sqrt{2}}", r"\sqrt{3}+\sqrt{2}"), (r"\sin^2 x", r"1-\cos^2 x")),
    (r"\sqrt{x^2}", "|x|"),
]
UNSURE = [
    *((r"\sum_{k=1}^{9} \frac{1}{k+x}", "x"), (r"\int_0^1 e^{t^2} dt", "9"), ("0.3333333", "1/3")),
    *((r"\infty", r"\infty"), (r"10^{30}+1", r"10^{30}"), (r"f(x)", r"g(x)")),
]


@pytest.mark.parametrize("pair", [*UNEQUAL, *EQUAL])
def test_values_that_differ_need_no_simplification_and_equal_ones_never_differ(pair):
    a, b = (_parse(text)[0] for text in pair)
    assert differ(a, b) == (pair in UNEQUAL)
    assert bool(latex._simplifies_to_zero(a, b)) == (pair in EQUAL)
    assert grader.sympy_symbolic_eq(a, b) == (pair in EQUAL)


def test_sympy_decides_where_it_is_not_clear_or_nothing_can_be_evaluated(monkeypatch):
    monkeypatch.setattr(latex, "_simplifies_to_zero", lambda a, b: "asked")
    for pair in UNSURE:
        assert grader.sympy_symbolic_eq(*(_parse(text)[0] for text in pair)) is True, pair
    row, column = sympy.Matrix([[1, 2]]), sympy.Matrix([1, 2])
    assert grader.sympy_symbolic_eq(row, column)  # of other shapes: no difference
    assert grader.sympy_symbolic_eq(row, row)
