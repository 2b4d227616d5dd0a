r"""The default judge: whether an answer says what the gold answer says to a mathematician.

Answers are read by `parser`; what it cannot read equals only what has the same tokens. Numbers and
expressions are equal if their values are. Order counts in tuples, not in sets and in lists with
commas, where all else counts how often. Intervals, inequalities of one variable and sets of numbers
are one thing. A unit, a name before ``=`` and what is counted may be missing on one side; if both
sides have one, they have to agree.
"""

import math
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise
from typing import NamedTuple

from headsweep.grading import values
from headsweep.grading.lexer import tokens
from headsweep.grading.notation import without_label
from headsweep.grading.parser import parse
from headsweep.grading.tree import EMPTY, REALS, Node, UnreadableError
from headsweep.grading.words import ANGLE, SHARE, unit_of

_MOST_ITEMS = 60  # of a list that is compared in any order
_DIGITS = 6  # that an approximation gives at least
_FLOAT_DIGITS, _FLOAT_ERROR = 15, 50
"""A decimal of so many digits is what a computer prints: the last may be off by so much."""
_ELLIPSIS = Node("name", text=r"\ldots")
_INFINITY = Node("name", text=r"\infty")
_FLIPPED = {"<": ">", ">": "<", r"\leq": r"\geq", r"\geq": r"\leq", "=": "=", r"\neq": r"\neq"}


def equal(answer: str, gold: str) -> bool:
    """Return whether an answer is the gold answer."""
    first, second = _read(answer), _read(gold)
    if first.texts == second.texts:
        return bool(first.texts)
    if first.node is None or second.node is None:
        return False
    try:
        return _same(first.node, second.node)
    except UnreadableError:
        return False


class _Reading(NamedTuple):
    texts: tuple[str, ...]
    node: Node | None


@lru_cache(maxsize=4096)
def _read(answer: str) -> _Reading:
    found = tokens(without_label(answer))
    try:
        node = parse(found)
    except UnreadableError:
        node = None
    return _Reading(tuple(token.text for token in found), node)


def _same(a: Node, b: Node) -> bool:
    """Return whether two parts say the same; `b` is the gold answer's."""
    a, b = _bare(a), _bare(b)
    if a == b:
        return True
    if a.kind != b.kind or a.kind in ("union", "builder", "relation", "list"):
        first, second = _region(a), _region(b)
        if first and second:
            return first.agrees(second)
    if "relation" in (a.kind, b.kind):
        return _same_relations(a, b)
    if {a.kind, b.kind} <= {"list", "set"}:
        return _same_items(a, b)
    if "list" in (a.kind, b.kind):
        return False
    if {a.kind, b.kind} == {"matrix", "tuple"}:
        a, b = _vector(a), _vector(b)
    if a.kind == b.kind and a.kind in ("tuple", "ratio", "matrix", "row", "union", "builder"):
        return (a.text, len(a.parts)) == (b.text, len(b.parts)) and all(
            map(_same, a.parts, b.parts)
        )
    if b.kind == "based" and a.kind == "number":  # the question has said the base
        return a.text == b.text.partition("_")[0]
    if "words" in (a.kind, b.kind):
        return a.kind == b.kind and a.text == b.text
    return _same_quantities(a, b)


def _bare(node: Node) -> Node:
    """Return a tuple without a unit behind it, and 3/4 of "3/4 or 0.75"."""
    if node.kind == "list" and node.text == "or":
        distinct = _distinct(node)
        return distinct[0] if len(distinct) == 1 else node
    is_bare = node.kind == "quantity" and node.parts[0].kind in ("tuple", "union", "matrix", "set")
    return node.parts[0] if is_bare else node


def _vector(node: Node) -> Node:
    """Return a matrix of one column as a tuple."""
    if node.kind == "matrix" and all(len(row.parts) == 1 for row in node.parts):
        return Node("tuple", tuple(row.parts[0] for row in node.parts), node.text)
    return node


def _same_items(a: Node, b: Node) -> bool:
    """Return whether lists or sets have the same values, each as often; a set has each once."""
    first, second = (
        _distinct(node) if "set" in (a.kind, b.kind) else node.parts for node in (a, b)
    )
    if len(first) != len(second):
        return False
    labels = [_label(item) for item in (*first, *second)]
    is_ordered = _ELLIPSIS in second or (
        len(set(filter(None, labels))) > 1 and not all(labels)  # x = 1, y = 2 beside 1, 2
    )
    if is_ordered or len(first) > _MOST_ITEMS:
        return all(map(_same, first, second))
    rest = list(second)
    for item in first:
        place = next((place for place, other in enumerate(rest) if _same(item, other)), None)
        if place is None:
            return False
        del rest[place]
    return True


def _distinct(node: Node) -> tuple[Node, ...]:
    kept: list[Node] = []
    for item in node.parts[:_MOST_ITEMS]:
        if not any(_same(item, other) for other in kept):
            kept.append(item)
    return (*kept, *node.parts[_MOST_ITEMS:])


def _label(node: Node) -> str | None:
    """Return the name that an equation gives a value to."""
    if node.kind != "relation" or {*node.text.split()} != {"="}:
        return None
    left = node.parts[0]
    return repr(left) if left.kind == "words" or _is_named(left) else None


def _is_named(node: Node) -> bool:
    """Return whether a part consists of names: x, f(x), (x, y), or `abc` as the name of a value."""
    is_many = node.kind in ("product", "tuple", "call")
    return node.kind == "name" or (is_many and all(map(_is_named, node.parts)))


def _same_relations(a: Node, b: Node) -> bool:
    a, b = _turned(a), _turned(b)
    if a.kind != b.kind:  # x = 5 is 5
        relation, other = (a, b) if a.kind == "relation" else (b, a)
        if {*relation.text.split()} != {"="}:
            return False
        if _label(relation) is not None:
            relation = relation._replace(parts=relation.parts[1:])
        return all(_same(*_in_order(side, other, a)) for side in relation.parts)
    labels = _label(a), _label(b)
    if labels[0] is not None and labels[0] == labels[1]:
        return all(_same(side, b.parts[-1]) for side in (*a.parts[1:], *b.parts[1:-1]))
    if len(a.parts) != len(b.parts):
        return False
    if len(a.parts) > 2 or r"\in" in (a.text, b.text):
        return a.text == b.text and all(map(_same, a.parts, b.parts))
    if a.text not in (b.text, _FLIPPED[b.text]):
        return False
    factor = values.proportional(a.parts, b.parts)  # type: ignore[arg-type]
    if a.text in ("=", r"\neq"):
        return factor != 0
    return factor > 0 if a.text == b.text else factor < 0


def _in_order(value: Node, other: Node, a: Node) -> tuple[Node, Node]:
    return (value, other) if a.kind == "relation" else (other, value)


def _turned(node: Node) -> Node:
    """Return an equation with its name on the left: 5 = x as x = 5."""
    if node.kind == "relation" and node.text == "=" and not _label(node):
        turned = node._replace(parts=node.parts[::-1])
        return turned if _label(turned) else node
    return node


def _same_quantities(a: Node, b: Node) -> bool:
    """Return whether two expressions are equal, with their units."""
    (first, unit), (second, other) = _measured(a), _measured(b)
    if unit and other:
        if unit[0] != other[0]:
            return False
        return _same_values(_times(first, unit[1]), _times(second, other[1]))
    if _same_values(first, second):
        return True
    measured = unit or other
    if not measured or measured[0] not in (ANGLE, SHARE):
        return False
    return values.equal(a, b)


def _measured(node: Node) -> tuple[Node, tuple[str, Fraction] | None]:
    if node.kind != "quantity":
        return node, None
    return node.parts[0], unit_of(node.text.split())


def _times(node: Node, factor: Fraction) -> Node:
    return node if factor == 1 else Node("product", (Node("number", number=factor), node))


def _same_values(a: Node, b: Node) -> bool:
    return values.equal(a, b) or _approximates(a, b) or _approximates(b, a)


def _approximates(a: Node, b: Node) -> bool:
    """Return whether a decimal of enough digits is another value, rounded or cut off."""
    is_negative = a.kind == "negative"
    if is_negative:
        a = a.parts[0]
        b = b.parts[0] if b.kind == "negative" else Node("negative", (b,))
    whole, point, decimals = a.text.partition(".")
    if a.kind != "number" or not point or len((whole + decimals).lstrip("0")) < _DIGITS:
        return False
    if not (whole + decimals).isdecimal():
        return False
    value = values.real(b)
    if value is None or not math.isfinite(value):
        return False
    gap = abs(Fraction(value) - a.number) * 10 ** len(decimals)
    if len((whole + decimals).lstrip("0")) >= _FLOAT_DIGITS:
        return gap < _FLOAT_ERROR
    return gap < Fraction(1, 2) + Fraction(1, 1000) or (gap < 1 and value > a.number)


class _Region(NamedTuple):
    """A set of real numbers, and the variable that is said to be in it, if one is."""

    name: str | None
    spans: tuple[tuple[float, bool, float, bool], ...]
    """Ends, and whether they belong to it, in order."""

    def agrees(self, other: "_Region") -> bool:
        """Return whether both are one set, of one variable if both name one."""
        if self.name and other.name and self.name != other.name:
            return False
        return len(self.spans) == len(other.spans) and all(map(_same_span, self.spans, other.spans))


_ALL = (-math.inf, False, math.inf, False)
_Span = tuple[float, bool, float, bool]


def _same_span(a: _Span, b: _Span) -> bool:
    return a[1::2] == b[1::2] and _is_close(a[0], b[0]) and _is_close(a[2], b[2])


_is_close = partial(math.isclose, rel_tol=1e-13)


def _region(node: Node) -> _Region | None:
    """Return the set of real numbers that an answer is, or that an inequality is true in."""
    if node == EMPTY:
        return _Region(None, ())
    if node.text == REALS and node.kind == "name":
        return _Region(None, (_ALL,))
    if node.kind == "tuple" and len(node.parts) == 2:
        low, high = map(_end, node.parts)
        if low is None or high is None or low >= high:
            return None
        return _Region(None, ((low, node.text[0] == "[", high, node.text[1] == "]"),))
    if node.kind == "set":
        points = [_end(part) for part in node.parts]
        if None in points:
            return None
        return _joined(None, [(point, True, point, True) for point in points if point is not None])
    if node.kind == "union":
        regions = [_region(part) for part in node.parts]
        if None in regions:
            return None
        return _joined(None, [span for region in regions if region for span in region.spans])
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


def _of_conditions(parts: tuple[Node, ...], joint: str, name: str | None) -> _Region | None:
    """Return where all inequalities of a list are true, or, with an "or", any of them."""
    regions = [_of_relation(part) for part in parts]
    names = {region.name for region in regions if region} | ({name} if name else set())
    if None in regions or len(names) != 1:
        return None
    found = [region for region in regions if region]
    if joint == "or":
        return _joined(found[0].name, [span for region in found for span in region.spans])
    spans = found[0].spans
    for region in found[1:]:
        spans = tuple(
            _met(first, second)
            for first in spans
            for second in region.spans
            if _is_span(_met(first, second))
        )
    if not spans and joint == ",":
        return _joined(found[0].name, [span for region in found for span in region.spans])
    return found[0]._replace(spans=spans)


def _met(a: _Span, b: _Span) -> _Span:
    low, low_in = max((a[0], not a[1]), (b[0], not b[1]))
    high, high_in = min((a[2], a[3]), (b[2], b[3]))
    return low, not low_in, high, high_in


def _is_span(span: _Span) -> bool:
    return span[0] < span[2] or (span[0] == span[2] and span[1] and span[3])


def _of_relation(node: Node) -> _Region | None:
    """Return where an inequality of one variable is true, such as 1 < x ≤ 2; None of others."""
    if node.kind != "relation":
        return None
    signs = node.text.split()
    if signs == [r"\in"] and node.parts[0].kind == "name":
        region = _region(node.parts[1])
        return region and region._replace(name=node.parts[0].text)
    names = {part.text for part in node.parts if part.kind == "name" and part != _INFINITY}
    if len(names) != 1 or "=" in signs or r"\in" in signs:
        return None
    (name,) = names
    spans: tuple[_Span, ...] = (_ALL,)
    for sign, (left, right) in zip(signs, pairwise(node.parts), strict=True):
        if left == Node("name", text=name):
            bound = _end(right)
        elif right == Node("name", text=name):
            bound, sign = _end(left), _FLIPPED[sign]
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
    return _Region(name, spans)


def _joined(name: str | None, spans: list[_Span]) -> _Region:
    """Return spans in order, those that meet as one."""
    kept: list[_Span] = []
    for span in sorted(spans, key=lambda span: (span[0], not span[1])):
        if kept and (span[0], not (span[1] or kept[-1][3])) <= (kept[-1][2], False):
            low, low_in, high, high_in = kept[-1]
            high, high_in = max((high, high_in), (span[2], span[3]))
            kept[-1] = low, low_in, high, high_in
        else:
            kept.append(span)
    return _Region(name, tuple(kept))
