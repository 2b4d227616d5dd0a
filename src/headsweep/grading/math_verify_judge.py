"""The default judge: math-verify (https://github.com/huggingface/Math-Verify), made faster.

Only its LaTeX grammar parses answers; its other parser, which passes text to `eval` through sympy,
is not used. Its time limits are switched off: they rely on signals that do not interrupt C code,
and the worker sets its own limits.

Importing this module patches two parts of latex2sympy2, math-verify's parser, without changing
what is parsed:

- ANTLR's simple prediction (SLL) is tried before its full one (LL): "the parser will either return
  a correct parse tree (i.e. the same parse tree that would be returned with the LL prediction
  mode), or it will report a syntax error" (PredictionMode, ANTLR 4). After an error LL decides.
- A plain number is converted directly, not through sympy's Python parser, which imports all of
  sympy's names for each number.

`headsweep.grading.notation` puts answers into a form that math-verify reads. Where the gold answer
is a number and the answer gives this number, math-verify is not asked.

It also adds a test before math-verify's last and slowest comparison, whether sympy simplifies
``a - b`` to zero: if the difference is clearly not zero at a point where every symbol is a positive
number, no correct simplification makes it zero, and the verdict is "not equal" without one.
"""

import re
from functools import lru_cache
from typing import Any

import sympy
from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended import latex2sympy2
from math_verify import LatexExtractionConfig, grader, parse, verify
from sympy.concrete.expr_with_limits import ExprWithLimits

from headsweep.grading.notation import (
    bases_differ,
    final_number,
    number,
    readable,
    spaced_integers,
)

_READER = [LatexExtractionConfig(boxed_match_priority=0)]
_CACHED_LENGTH = 200  # characters; longer answers rarely repeat and would fill the memory
_PLAIN_INTEGER = re.compile(r"[0-9]{1,100}")
_PLAIN_DECIMAL = re.compile(r"[0-9]{1,50}\.[0-9]{1,50}")
_DIGITS = 15
_KNOWN_BITS = 20  # precision, as sympy tracks it, below which a value is ignored
_GAP = 1e-6  # relative; below it simplification decides, because decimals are rounded
_SLOW = (ExprWithLimits, sympy.Derivative, sympy.Limit)  # faster to simplify than to evaluate


def equal(answer: str, gold: str) -> bool:
    """Return whether math-verify finds an answer equal to the gold answer.

    Numbers must also agree in three digits, but for a factor of 100, as 50% is 50 and 1/2. By
    itself math-verify takes all small numbers for equal, and some of many digits
    (https://github.com/huggingface/Math-Verify/issues/14). Nor does it look at numbers' bases, and
    it adds integers with only spaces between them.
    """
    value = number(gold)
    if value is not None and final_number(answer) == value:
        return True
    if bases_differ(answer, gold):
        return False
    integers, wanted = spaced_integers(answer), spaced_integers(gold)
    if integers or wanted:
        return integers == wanted
    expected, parsed = _read(gold), _read(answer)
    same = verify(expected, parsed, timeout_seconds=None)
    return same and not _apart(expected[0], parsed[0])


def _apart(a: Any, b: Any) -> bool:
    """Return whether two expressions are real numbers that differ in their first three digits."""
    if a == b or not all(isinstance(part, sympy.Expr) and part.is_number for part in (a, b)):
        return False
    first, second = (part.doit().evalf(_DIGITS) for part in (a, b))  # 50% is parsed unevaluated
    if not (first.is_Float and second.is_Float):  # complex, infinite, or zero
        return bool(first.is_zero != second.is_zero)
    return all(abs(first * scale - second) > 1e-3 * abs(second) for scale in (1, 100, 0.01))


def _read(answer: str) -> list[Any]:
    return (_read_cached if len(answer) <= _CACHED_LENGTH else _parse)(answer)


def _parse(answer: str) -> list[Any]:
    return parse(rf"\boxed{{{readable(answer)}}}", _READER, parsing_timeout=None)


_read_cached = lru_cache(maxsize=4096)(_parse)


class _Parser(latex2sympy2.PSParser):
    """The LaTeX parser: simple prediction first, full prediction after an error."""

    def math(self) -> Any:
        """Parse the grammar's root."""
        for mode in (PredictionMode.SLL, PredictionMode.LL):
            self._interp.predictionMode = mode
            try:
                return super().math()
            except Exception as error:
                if type(error) is not Exception:  # latex2sympy2 raises plain ones on bad syntax
                    raise
                self.reset()
        raise ValueError("not in the grammar")


def _parse_number(converter: Any, text: str) -> sympy.Number:
    text = text.replace(",", "")
    if _PLAIN_INTEGER.fullmatch(text):
        return sympy.Integer(int(text))
    if _PLAIN_DECIMAL.fullmatch(text):
        return sympy.Float(text)
    return _parse_any_number(converter, text)


_parse_any_number = latex2sympy2._Latex2Sympy.parse_number
latex2sympy2._Latex2Sympy.parse_number = _parse_number
latex2sympy2.PSParser = _Parser


def differ(a: Any, b: Any) -> bool:
    """Return whether two expressions have clearly different values at a positive point.

    False if their difference is not an expression, such as a matrix, or slow to evaluate.
    """
    difference = a - b
    if not isinstance(difference, sympy.Expr) or difference.has(*_SLOW):
        return False
    symbols = sorted(difference.free_symbols, key=str)
    point = {symbol: sympy.Rational(31 + 17 * place, 29) for place, symbol in enumerate(symbols)}
    gap = _size(difference.evalf(_DIGITS, subs=point))
    return gap > 0 and gap > _GAP * (1 + _size(b.evalf(_DIGITS, subs=point)))


def _size(value: Any) -> float:
    """Return the larger of a number's real and imaginary parts; 0 if neither is precise enough."""
    precise = (part for part in value.as_real_imag() if part.is_Float and part._prec >= _KNOWN_BITS)
    return max((abs(float(part)) for part in precise), default=0.0)


def _symbolically_equal(a: Any, b: Any) -> bool:
    """Return whether sympy simplifies a − b to zero, without trying if they clearly differ."""
    try:
        if differ(a, b):
            return False
    except MemoryError:
        raise
    except Exception:  # sympy cannot evaluate it, but may be able to simplify it
        pass
    return bool(_simplifies_to_zero(a, b))


_simplifies_to_zero = grader.sympy_symbolic_eq
grader.sympy_symbolic_eq = _symbolically_equal
