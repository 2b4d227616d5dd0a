"""Sets of real numbers: intervals, inequalities of one variable, and sets are one thing."""

import math
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from headsweep.grading import values
from headsweep.grading.tree import EMPTY, REALS, Node, UnreadableError, negative

_INFINITY = Node("name", text=r"\infty")
FLIPPED = {"<": ">", ">": "<", r"\leq": r"\geq", r"\geq": r"\leq", "=": "=", r"\neq": r"\neq"}
"""Relations as they are read from right to left."""


class Region(NamedTuple):
    """A set of real numbers, and the variable that is said to be in it, if one is."""

    name: str | None
    spans: tuple[tuple[float, bool, float, bool], ...]
    """Ends, and whether they belong to it, in order."""

    def agrees(self, other: "Region") -> bool:
        """Return whether both are one set, of one variable if both name one."""
        if self.name and other.name and self.name != other.name:
            return False
        return len(self.spans) == len(other.spans) and all(map(_same_span, self.spans, other.spans))


_ALL = (-math.inf, False, math.inf, False)
_Span = tuple[float, bool, float, bool]


def _same_span(a: _Span, b: _Span) -> bool:
    return a[1::2] == b[1::2] and _is_close(a[0], b[0]) and _is_close(a[2], b[2])


_is_close = partial(math.isclose, rel_tol=1e-13)


def region(node: Node) -> Region | None:
    """Return the set of real numbers that an answer is, or that an inequality is true in."""
    if node == EMPTY:
        return Region(None, ())
    if node.text == REALS and node.kind == "name":
        return Region(None, (_ALL,))
    if node.kind == "tuple" and len(node.parts) == 2:
        low, high = map(_end, node.parts)
        if low is None or high is None or low >= high:
            return None
        return Region(None, ((low, node.text[0] == "[", high, node.text[1] == "]"),))
    if node.kind == "set":
        points = [_end(part) for part in node.parts]
        if None in points:
            return None
        return _joined(None, [(point, True, point, True) for point in points if point is not None])
    if node.kind == "union":
        regions = [region(part) for part in node.parts]
        if None in regions:
            return None
        return _joined(None, [span for each in regions if each for span in each.spans])
    if node.kind == "builder":
        return _of_conditions(node.parts[1:], node.text, node.parts[0].text)
    if node.kind == "list":
        return _of_conditions(node.parts, node.text, None)
    return _of_relation(node) if node.kind == "relation" else None


def _end(node: Node) -> float | None:
    if node == _INFINITY:
        return math.inf
    if node == Node("negative", (_INFINITY,)):
        return -math.inf
    try:
        return values.real(node)
    except UnreadableError:
        return None


def _of_conditions(parts: tuple[Node, ...], joint: str, name: str | None) -> Region | None:
    """Return where all inequalities of a list are true, or, with an "or", any of them."""
    regions = [_of_relation(part) for part in parts]
    names = {each.name for each in regions if each} | ({name} if name else set())
    if None in regions or len(names) != 1:
        return None
    found = [each for each in regions if each]
    if joint == "or":
        return _joined(found[0].name, [span for each in found for span in each.spans])
    spans = found[0].spans
    for each in found[1:]:
        spans = tuple(
            _met(first, second)
            for first in spans
            for second in each.spans
            if _is_span(_met(first, second))
        )
    if not spans and joint == ",":
        return _joined(found[0].name, [span for each in found for span in each.spans])
    return found[0]._replace(spans=spans)


def _met(a: _Span, b: _Span) -> _Span:
    low = max((a[0], not a[1]), (b[0], not b[1]))
    high = min(a[2:], b[2:])
    return low[0], not low[1], *high


def _is_span(span: _Span) -> bool:
    return span[0] < span[2] or (span[0] == span[2] and span[1] and span[3])


def _of_relation(node: Node) -> Region | None:
    """Return where an inequality of one variable is true, such as 1 < x ≤ 2; None of others."""
    if node.kind != "relation":
        return None
    signs = node.text.split()
    if signs == [r"\in"] and node.parts[0].kind == "name":
        within = region(node.parts[1])
        return within and within._replace(name=node.parts[0].text)
    first = node.parts[0]
    if node.text in ("<", r"\leq") and (first.kind, first.text) == ("call", "|"):  # |x| < 2
        parts = negative(node.parts[1]), first.parts[0], node.parts[1]
        return _of_relation(Node("relation", parts, f"{node.text} {node.text}"))
    names = {part.text for part in node.parts if part.kind == "name" and part != _INFINITY}
    if len(names) != 1 or "=" in signs or r"\in" in signs:
        return None
    (name,) = names
    spans: tuple[_Span, ...] = (_ALL,)
    for sign, (left, right) in zip(signs, pairwise(node.parts), strict=True):
        if left == Node("name", text=name):
            bound = _end(right)
        elif right == Node("name", text=name):
            bound = _end(left)
            sign = FLIPPED[sign]
        else:
            return None
        if bound is None:
            return None
        allowed: list[_Span] = []
        if sign in ("<", r"\leq", r"\neq"):
            allowed.append((-math.inf, False, bound, sign == r"\leq"))
        if sign in (">", r"\geq", r"\neq"):
            allowed.append((bound, sign == r"\geq", math.inf, False))
        spans = tuple(_met(a, b) for a in spans for b in allowed if _is_span(_met(a, b)))
    return Region(name, spans)


def _joined(name: str | None, spans: list[_Span]) -> Region:
    """Return spans in order, those that meet as one."""
    kept: list[_Span] = []
    for span in sorted(spans, key=lambda span: (span[0], not span[1])):
        if kept and (span[0], not (span[1] or kept[-1][3])) <= (kept[-1][2], False):
            low, low_in, high, high_in = kept[-1]
            high, high_in = max((high, high_in), (span[2], span[3]))
            kept[-1] = low, low_in, high, high_in
        else:
            kept.append(span)
    return Region(name, tuple(kept))
