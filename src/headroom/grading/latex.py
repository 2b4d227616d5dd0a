"""LaTeX read as math-verify reads it, with the same outcome, in a fraction of the time.

Importing this module replaces three parts of latex2sympy2, which math-verify reads with:

- ANTLR's simple prediction (SLL) comes before its full one (LL): "the parser will either return a
  correct parse tree (i.e. the same parse tree that would be returned with the LL prediction mode),
  or it will report a syntax error" (PredictionMode, ANTLR 4). After an error LL decides.
- A parse tree is made once for each sequence of token types. The grammar has no predicate that
  looks at a token's text, so ``x^2 + 3`` and ``y^7 + 25`` have the same tree with other leaves.
- A plain number becomes sympy's at once, not by way of sympy's reader of Python, which imports all
  of sympy's names for each number.
"""

import re
from typing import Any, NamedTuple

import sympy
from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended import latex2sympy2

_PLAIN_INTEGER = re.compile(r"[0-9]{1,100}")
_PLAIN_DECIMAL = re.compile(r"[0-9]{1,50}\.[0-9]{1,50}")
_KEPT_TREES = 2048
_LONGEST_KEPT = 80  # characters; longer texts hardly share a tree, and theirs are large


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
