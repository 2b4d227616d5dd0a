"""Numbers told apart by their values: as sympy would, and only where it is clear."""

from typing import Any

import pytest
import sympy
from math_verify import grader

from headroom.grading import math_verify_judge as refutation
from headroom.grading.math_verify_judge import _parse, differ

UNEQUAL = [
    *((r"41", r"\sqrt{3} - 5i"), (r"\sqrt{550}", r"\sqrt{59}"), (r"1008\sqrt{6}", "3")),
    *((r"36x\sqrt{37x}", r"36x\sqrt{35x}"), ("x^2+1", "y^2+1"), ("-1+i", "12"), (r"72\pi", "72")),
    *((r"\frac{x-1}{x+1}", r"\frac{x+1}{x-1}"), (r"\sin 2", r"\cos 2"), ("e^{20}", "e^{21}")),
]
EQUAL = [
    *(("(x+1)^2", "x^2+2x+1"), (r"\frac{2}{\sqrt{2}}", r"\sqrt{2}"), (r"\sqrt{8}", r"2\sqrt{2}")),
    *(
        (r"\frac{1}{\sqrt{3}-\sqrt{2}}", r"\sqrt{3}+\sqrt{2}"),
        (r"\sin^2 x", r"1-\cos^2 x"),
        (r"\sqrt{x^2}", "|x|"),
    ),
]
UNSURE = [
    *((r"\sum_{k=1}^{9} \frac{1}{k+x}", "x"), (r"\int_0^1 e^{t^2} dt", "9"), ("0.3333333", "1/3")),
    *((r"\infty", r"\infty"), (r"10^{30}+1", r"10^{30}"), (r"f(x)", r"g(x)")),
]


@pytest.mark.parametrize(("first", "second"), UNEQUAL)
def test_clearly_different_values_need_no_simplification(first: str, second: str) -> None:
    a, b = _read(first), _read(second)
    assert differ(a, b)
    assert not refutation._simplifies_to_zero(a, b)


@pytest.mark.parametrize(("first", "second"), EQUAL)
def test_equal_expressions_are_never_told_apart(first: str, second: str) -> None:
    a, b = _read(first), _read(second)
    assert not differ(a, b)
    assert grader.sympy_symbolic_eq(a, b)


@pytest.mark.parametrize(("first", "second"), UNSURE)
def test_sympy_decides_where_it_is_not_clear(
    first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refutation, "_simplifies_to_zero", lambda a, b: "asked")
    assert grader.sympy_symbolic_eq(_read(first), _read(second)) is True


def test_what_cannot_be_evaluated_is_simplified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refutation, "_simplifies_to_zero", lambda a, b: True)
    row, column = sympy.Matrix([[1, 2]]), sympy.Matrix([1, 2])
    assert grader.sympy_symbolic_eq(row, column)  # of other shapes: no difference
    assert grader.sympy_symbolic_eq(row, row)


def _read(text: str) -> Any:
    return _parse(text)[0]
