"""Unequal numbers told apart by their values, before sympy simplifies their difference.

Importing this module puts a question before math-verify's last and slowest comparison, which asks
whether sympy simplifies ``a - b`` to zero: is the difference clearly not zero where every symbol
stands for a positive number? Then no simplification that is right makes it zero, and the verdict
is the same without it.
"""

from typing import Any

import sympy
from math_verify import grader
from sympy.concrete.expr_with_limits import ExprWithLimits

_DIGITS = 15
_KNOWN_BITS = 20
"""Accuracy that a value needs to count; sympy knows how many bits of it are right."""
_GAP = 1e-6
"""Difference, relative to the values, below which sympy decides: decimals are rounded."""
_SLOW = (ExprWithLimits, sympy.Derivative, sympy.Limit)
"""Sums, integrals and the like, whose value may take longer than their simplification."""


def differ(a: Any, b: Any) -> bool:
    """Tell whether two expressions have clearly different values somewhere.

    Args:
        a: an expression; False for anything else, such as a matrix.
        b: likewise.
    """
    difference = a - b
    if not isinstance(difference, sympy.Expr) or difference.has(*_SLOW):
        return False
    symbols = sorted(difference.free_symbols, key=str)
    point = {symbol: sympy.Rational(31 + 17 * place, 29) for place, symbol in enumerate(symbols)}
    gap = _size(difference.evalf(_DIGITS, subs=point))
    return gap > 0 and gap > _GAP * (1 + _size(b.evalf(_DIGITS, subs=point)))


def _size(value: Any) -> float:
    """Return the larger of a number's parts; 0 where none is known well enough."""
    known = (part for part in value.as_real_imag() if part.is_Float and part._prec >= _KNOWN_BITS)
    return max((abs(float(part)) for part in known), default=0.0)


def _symbolically_equal(a: Any, b: Any) -> bool:
    try:
        if differ(a, b):
            return False
    except MemoryError:
        raise
    except Exception:  # sympy cannot evaluate it; it may simplify it
        pass
    return bool(_simplifies_to_zero(a, b))


_simplifies_to_zero = grader.sympy_symbolic_eq
grader.sympy_symbolic_eq = _symbolically_equal
