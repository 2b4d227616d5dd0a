"""What math-verify reads, as nobody has touched it: a process of its own, texts in, shapes out."""

import json
import logging
import sys
from typing import Any

from math_verify import LatexExtractionConfig, parse
from sympy import srepr


def main() -> None:
    """Read a list of texts as JSON and write their shapes."""
    logging.disable()
    reader = [LatexExtractionConfig(boxed_match_priority=0)]
    texts = json.load(sys.stdin)
    found = [parse(rf"\boxed{{{text}}}", reader, parsing_timeout=None) for text in texts]
    json.dump([shape(expressions) for expressions in found], sys.stdout)


def shape(expression: Any) -> Any:
    """Return all that a verdict can depend on: types, order of arguments, leaves, assumptions."""
    if isinstance(expression, list | tuple):
        return [shape(part) for part in expression]
    arguments = getattr(expression, "_unsorted_args", None) or getattr(expression, "args", ())
    if not arguments:
        return f"{type(expression).__name__} {srepr(expression)}"
    return [type(expression).__name__, *map(shape, arguments)]


if __name__ == "__main__":
    main()
