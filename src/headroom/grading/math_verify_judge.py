"""The default judge: math-verify (https://github.com/huggingface/Math-Verify).

Only its LaTeX grammar reads the answer; its other reader hands text to `eval` through sympy and
is left out. Its time limits are switched off: they are signals that C code does not hear, and
the worker has limits of its own.

Reading takes nine tenths of the time, and most of that goes into ANTLR's full prediction (LL) where
its simple one (SLL) would do: "the parser will either return a correct parse tree (i.e. the same
parse tree that would be returned with the LL prediction mode), or it will report a syntax error"
(PredictionMode, ANTLR 4). So answers are read with SLL, and again with LL after an error.
"""

from functools import lru_cache
from typing import Any

from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended import latex2sympy2
from math_verify import LatexExtractionConfig, parse, verify

_READER = [LatexExtractionConfig(boxed_match_priority=0)]
_CACHED_LENGTH = 200  # characters; longer answers hardly come twice and must not fill the memory


class _TwoStageParser(latex2sympy2.PSParser):
    """The parser of LaTeX, trying the simple prediction first."""

    def math(self) -> Any:
        """Parse the grammar's root."""
        self._interp.predictionMode = PredictionMode.SLL
        try:
            return super().math()
        except Exception:  # the listener of errors raises it, as plain as that
            self.reset()
            self._interp.predictionMode = PredictionMode.LL
            return super().math()


latex2sympy2.PSParser = _TwoStageParser


def equal(answer: str, gold: str) -> bool:
    """Return whether math-verify finds an answer equal to the gold answer."""
    return verify(_read(gold), _read(answer), timeout_seconds=None)


def _read(answer: str) -> list[Any]:
    return (_read_cached if len(answer) <= _CACHED_LENGTH else _parse)(answer)


def _parse(answer: str) -> list[Any]:
    return parse(rf"\boxed{{{answer}}}", _READER, parsing_timeout=None)


_read_cached = lru_cache(maxsize=4096)(_parse)
