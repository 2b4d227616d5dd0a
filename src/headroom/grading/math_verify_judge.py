"""The default judge: math-verify (https://github.com/huggingface/Math-Verify), made faster.

Only its LaTeX grammar parses answers; its other parser, which passes text to `eval` through sympy,
is not used. Its time limits are switched off: they rely on signals that do not interrupt C code,
and the worker sets its own limits.

Importing this module patches three parts of latex2sympy2, math-verify's parser, without changing
what is parsed:

- ANTLR's simple prediction (SLL) is tried before its full one (LL): "the parser will either return
  a correct parse tree (i.e. the same parse tree that would be returned with the LL prediction
  mode), or it will report a syntax error" (PredictionMode, ANTLR 4). After an error LL decides.
- A parse tree is made once for each sequence of token types. No predicate of the grammar looks at a
  token's text, so ``x^2 + 3`` and ``y^7 + 25`` have the same tree with different leaves.
- A plain number is converted directly, not through sympy's Python parser, which imports all of
  sympy's names for each number.

It also adds a test before math-verify's last and slowest comparison, whether sympy simplifies
``a - b`` to zero: if the difference is clearly not zero at a point where every symbol is a positive
number, no correct simplification makes it zero, and the verdict is "not equal" without one.
"""

import re
from functools import lru_cache
from typing import Any, NamedTuple

import sympy
from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended import latex2sympy2
from math_verify import LatexExtractionConfig, grader, parse, verify
from sympy.concrete.expr_with_limits import ExprWithLimits

_READER = [LatexExtractionConfig(boxed_match_priority=0)]
_CACHED_LENGTH = 200  # characters; longer answers rarely repeat and would fill the memory
_PLAIN_INTEGER = re.compile(r"[0-9]{1,100}")
_PLAIN_DECIMAL = re.compile(r"[0-9]{1,50}\.[0-9]{1,50}")
_KEPT_TREES = 2048
_LONGEST_KEPT = 80  # characters; longer texts rarely share a tree, and their trees are large
_DIGITS = 15
_KNOWN_BITS = 20
"""Precision, as sympy tracks it, below which a value is ignored."""
_GAP = 1e-6
"""Relative difference below which simplification decides, because decimals are rounded."""
_SLOW = (ExprWithLimits, sympy.Derivative, sympy.Limit)
"""Sums, integrals and the like, which may take longer to evaluate than to simplify."""


def equal(answer: str, gold: str) -> bool:
    """Return whether math-verify finds an answer equal to the gold answer."""
    return verify(_read(gold), _read(answer), timeout_seconds=None)


def _read(answer: str) -> list[Any]:
    return (_read_cached if len(answer) <= _CACHED_LENGTH else _parse)(answer)


def _parse(answer: str) -> list[Any]:
    return parse(rf"\boxed{{{answer}}}", _READER, parsing_timeout=None)


_read_cached = lru_cache(maxsize=4096)(_parse)


class _Parsed(NamedTuple):
    """The parse of a sequence of token types."""

    leaves: list[Any]
    """The tokens of the tree."""
    tree: Any
    """The tree; None after a syntax error."""


_parsed: dict[tuple[int, ...], _Parsed] = {}
"""The most recently used parses, by token types."""


class _Parser(latex2sympy2.PSParser):
    """The LaTeX parser. A returned tree is valid until the next text with the same token types.

    While latex2sympy2 walks a tree, it parses arguments of functions again. They are shorter than
    the whole text, so their trees are different ones.
    """

    def math(self) -> Any:
        """Parse the grammar's root."""
        stream = self.getTokenStream()
        short = stream.tokenSource.inputStream.size <= _LONGEST_KEPT
        tree = self._kept(stream) if short else self._parse()
        if tree is None:
            raise ValueError("not in the grammar")
        return tree

    def _kept(self, stream: Any) -> Any:
        """Return the tree for the stream's token types, with the stream's tokens as leaves."""
        stream.fill()
        types = tuple(token.type for token in stream.tokens)
        known = _parsed.pop(types, None)
        if known is None:
            known = _Parsed(stream.tokens, self._parse())
        else:
            for leaf, token in zip(known.leaves, stream.tokens, strict=True):
                leaf.source, leaf.start, leaf.stop = token.source, token.start, token.stop
        _parsed[types] = known  # now the most recently used
        if len(_parsed) > _KEPT_TREES:
            del _parsed[next(iter(_parsed))]
        return known.tree

    def _parse(self) -> Any:
        """Return the tree, None after a syntax error."""
        for mode in (PredictionMode.SLL, PredictionMode.LL):
            self._interp.predictionMode = mode
            try:
                return super().math()
            except Exception as error:
                if type(error) is not Exception:  # latex2sympy2 raises plain ones on bad syntax
                    raise
                self.reset()
        return None


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
    known = (part for part in value.as_real_imag() if part.is_Float and part._prec >= _KNOWN_BITS)
    return max((abs(float(part)) for part in known), default=0.0)


def _symbolically_equal(a: Any, b: Any) -> bool:
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
