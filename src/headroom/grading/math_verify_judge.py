"""The default judge: math-verify (https://github.com/huggingface/Math-Verify).

Only its LaTeX grammar reads the answer; its other reader hands text to `eval` through sympy and
is left out. Its time limits are switched off: they are signals that C code does not hear, and
the worker has limits of its own.
"""

from functools import lru_cache
from typing import Any

from math_verify import LatexExtractionConfig, parse, verify

import headroom.grading.latex  # reads the same, faster
import headroom.grading.refutation  # noqa: F401  (decides the same, faster)

_READER = [LatexExtractionConfig(boxed_match_priority=0)]
_CACHED_LENGTH = 200  # characters; longer answers hardly come twice and must not fill the memory


def equal(answer: str, gold: str) -> bool:
    """Return whether math-verify finds an answer equal to the gold answer."""
    return verify(_read(gold), _read(answer), timeout_seconds=None)


def _read(answer: str) -> list[Any]:
    return (_read_cached if len(answer) <= _CACHED_LENGTH else _parse)(answer)


def _parse(answer: str) -> list[Any]:
    return parse(rf"\boxed{{{answer}}}", _READER, parsing_timeout=None)


_read_cached = lru_cache(maxsize=4096)(_parse)
