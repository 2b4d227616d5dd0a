r"""The default judge: whether an answer says what the gold answer says to a mathematician.

Answers are read by `parser`; what it cannot read equals only what has the same tokens. Numbers and
expressions are equal if their values are. Order counts in tuples, not in sets and in lists with
commas, where all else counts how often. Intervals, inequalities of one variable and sets of numbers
are one thing. A unit, a name before ``=`` and what is counted may be missing on one side; if both
sides have one, they have to agree.
"""

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from headsweep.grading import values
from headsweep.grading.lexer import tokens
from headsweep.grading.parser import parse
from headsweep.grading.regions import FLIPPED, region
from headsweep.grading.tree import Node, UnreadableError
from headsweep.grading.words import ANGLE, SHARE, unit_of

_MOST_ITEMS = 60  # of a list that is compared in any order
_DIGITS = 6  # that an approximation gives at least
_FLOAT_DIGITS, _FLOAT_ERROR = 15, 50
"""A decimal of so many digits is what a computer prints: the last may be off by so much."""
_ELLIPSIS = Node("name", text=r"\ldots")


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
    found = tokens(answer)
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
        first, second = region(a), region(b)
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
    if a.text not in (b.text, FLIPPED[b.text]):
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
