r"""Trees of final answers: their nodes, and how arithmetic joins them.

A unit goes to the outside: 3 · 5 cm is (3 · 5) cm. What multiplies a matrix multiplies its entries.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple


class UnreadableError(ValueError):
    """An answer that is outside of the grammar, or too large to compute with."""


class Node(NamedTuple):
    """A part of an answer: what it is, its parts, and what else tells it from others."""

    kind: str
    parts: tuple["Node", ...] = ()
    text: str = ""
    number: Fraction = Fraction(0)


EMPTY = Node("set")
REALS = r"\mathbb{R}"
_ONE = Node("number", text="1", number=Fraction(1))
_NO_FACTORS = ("tuple", "set", "words", "quantity", "based", "relation", "list")


def times(a: Node, b: Node) -> Node:
    """Return a product; of a number and a matrix, the matrix of their products."""
    if b.kind == "matrix":
        a, b = b, a
    if a.kind == "matrix" and b.kind != "matrix":
        return each(a, lambda entry: times(entry, b))
    if a.kind == "quantity" and b.kind != "quantity":
        return a._replace(parts=(times(a.parts[0], b),))
    if b.kind == "quantity" and a.kind != "quantity":
        return b._replace(parts=(times(a, b.parts[0]),))
    if {a.kind, b.kind} & {*_NO_FACTORS, "matrix"}:
        raise UnreadableError(f"{a.kind} times {b.kind}")
    # Flat, so that no chain is deep.
    return Node("product", (*a.parts, b) if a.kind == "product" else (a, b))


def sum_of(parts: list[Node]) -> Node:
    """Return a sum; of quantities of one unit, the quantity."""
    units = {part.text for part in parts if part.kind == "quantity"}
    if len(units) > 1 or (units and parts[-1].kind != "quantity"):
        raise UnreadableError("a sum of units")
    if units:  # 2 cm + 3 cm, or (2 + 3) cm
        values = [*(part.parts[0] if part.kind == "quantity" else part for part in parts)]
        return parts[-1]._replace(parts=(sum_of(values),))
    if any(part.kind in _NO_FACTORS or part.kind == "matrix" for part in parts):
        raise UnreadableError("a sum of more than numbers")
    return Node("sum", tuple(parts))


def negative(node: Node) -> Node:
    """Return the negative of a node."""
    if node.kind == "matrix":
        return each(node, negative)
    if node.kind == "quantity":
        return node._replace(parts=(negative(node.parts[0]),))
    if node.kind == "based":
        return node._replace(text=f"-{node.text}")
    if node.kind in _NO_FACTORS:
        raise UnreadableError(f"- before {node.kind}")
    return Node("negative", (node,))


def over(a: Node, b: Node) -> Node:
    """Return a quotient in a chain, as of a·b/c/d, which stays flat."""
    if a.kind == "product":
        return times(a, quotient(_ONE, b))
    if a.kind == "quotient":
        return Node("quotient", (a.parts[0], times(a.parts[1], b)))
    return quotient(a, b)


def quotient(a: Node, b: Node) -> Node:
    """Return a quotient; of a matrix and a number, the matrix of their quotients."""
    if a.kind == "matrix":
        return each(a, lambda entry: quotient(entry, b))
    if a.kind == "quantity" and b.kind != "quantity":
        return a._replace(parts=(quotient(a.parts[0], b),))
    if a.kind in _NO_FACTORS or b.kind in (*_NO_FACTORS, "matrix"):
        raise UnreadableError(f"{a.kind} over {b.kind}")
    return Node("quotient", (a, b))


def each(matrix: Node, change: Callable[[Node], Node]) -> Node:
    """Return a matrix with each entry changed."""
    rows = (Node("row", tuple(map(change, row.parts))) for row in matrix.parts)
    return matrix._replace(parts=tuple(rows))
