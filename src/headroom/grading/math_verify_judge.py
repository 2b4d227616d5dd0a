"""The default judge: math-verify (https://github.com/huggingface/Math-Verify), made faster.

Only its LaTeX grammar reads the answer; its other reader hands text to `eval` through sympy and
is left out. Its time limits are switched off: they are signals that C code does not hear, and
the worker has limits of its own.

Importing this module replaces three parts of latex2sympy2, which math-verify reads with; what is
read is the same:

- ANTLR's simple prediction (SLL) comes before its full one (LL): "the parser will either return a
  correct parse tree (i.e. the same parse tree that would be returned with the LL prediction mode),
  or it will report a syntax error" (PredictionMode, ANTLR 4). After an error LL decides.
- A parse tree is made once for each sequence of token types. The grammar has no predicate that
  looks at a token's text, so ``x^2 + 3`` and ``y^7 + 25`` have the same tree with other leaves.
- A plain number becomes sympy's at once, not by way of sympy's reader of Python, which imports all
  of sympy's names for each number.

It also puts a question before math-verify's last and slowest comparison, which asks whether sympy
simplifies ``a - b`` to zero: is the difference clearly not zero where every symbol stands for a
positive number? Then no simplification that is right makes it zero, and the verdict is the same
without it.
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
_CACHED_LENGTH = 200  # characters; longer answers hardly come twice and must not fill the memory
_PLAIN_INTEGER = re.compile(r"[0-9]{1,100}")
_PLAIN_DECIMAL = re.compile(r"[0-9]{1,50}\.[0-9]{1,50}")
_KEPT_TREES = 2048
_LONGEST_KEPT = 80  # characters; longer texts hardly share a tree, and theirs are large
_DIGITS = 15
_KNOWN_BITS = 20
"""Accuracy that a value needs to count; sympy knows how many bits of it are right."""
_GAP = 1e-6
"""Difference, relative to the values, below which sympy decides: decimals are rounded."""
_SLOW = (ExprWithLimits, sympy.Derivative, sympy.Limit)
"""Sums, integrals and the like, whose value may take longer than their simplification."""


def equal(answer: str, gold: str) -> bool:
    """Return whether math-verify finds an answer equal to the gold answer."""
    return verify(_read(gold), _read(answer), timeout_seconds=None)


def _read(answer: str) -> list[Any]:
    return (_read_cached if len(answer) <= _CACHED_LENGTH else _parse)(answer)


def _parse(answer: str) -> list[Any]:
    return parse(rf"\boxed{{{answer}}}", _READER, parsing_timeout=None)


_read_cached = lru_cache(maxsize=4096)(_parse)


class _Parsed(NamedTuple):
    """What became of a sequence of token types."""

    leaves: list[Any]
    """The tokens of the tree."""
    tree: Any
    """The tree, None after a syntax error."""


_parsed: dict[tuple[int, ...], _Parsed] = {}
"""The latest sequences, by their types."""


class _Parser(latex2sympy2.PSParser):
    """The parser of LaTeX. A tree that it returns holds until the next text of the same form.

    While it walks a tree, latex2sympy2 reads parts of the same text again: arguments of functions.
    They are shorter than the whole, so theirs are other trees.
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
        """Return the tree of this sequence of token types, its leaves those of the stream."""
        stream.fill()
        types = tuple(token.type for token in stream.tokens)
        known = _parsed.pop(types, None)
        if known is None:
            known = _Parsed(stream.tokens, self._parse())
        else:
            for leaf, token in zip(known.leaves, stream.tokens, strict=True):
                leaf.source, leaf.start, leaf.stop = token.source, token.start, token.stop
        _parsed[types] = known  # the last to be dropped
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
                if type(error) is not Exception:  # latex2sympy2's syntax errors are as plain
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
