"""Values of expressions: exact if they are rational, else numbers of many digits at fixed points.

Two expressions are equal if they are at all points, where each variable stands for a number without
a pattern: no simplification has to be found, and time is bounded.
"""

from typing import Any
from zlib import crc32

from mpmath import mp

from headsweep.grading.numerals import divisor, exact
from headsweep.grading.tree import Node, UnreadableError

_PRECISIONS = (40, 80)  # digits; what vanishes shrinks from the first to the second
_SHRINKS = mp.mpf(10) ** -20
_SAME = mp.mpf(10) ** -60
_DIGITS_A_BIT = 0.30103
_MOST_DIGITS = 5_000
_POINTS = 5
_POSITIVE = 3  # points at which all variables are positive; at others both have to be real
_MOST_EXPONENT = 10**9
_MOST_FACTORIAL = 10**5
_CONSTANTS: dict[str, Any] = {r"\pi": lambda: +mp.pi, "e": lambda: +mp.e, "i": lambda: mp.mpc(0, 1)}
_FUNCTIONS: dict[str, Any] = {
    r"\sin": mp.sin, r"\cos": mp.cos, r"\tan": mp.tan, r"\cot": mp.cot, r"\sec": mp.sec,
    r"\csc": mp.csc, r"\arcsin": mp.asin, r"\arccos": mp.acos, r"\arctan": mp.atan,
    r"\sinh": mp.sinh, r"\cosh": mp.cosh, r"\tanh": mp.tanh, r"\ln": mp.log, r"\exp": mp.exp,
    "|": abs, r"\lfloor": mp.floor, r"\lceil": mp.ceil,
}  # fmt: skip
_OPAQUE = ("name", "words")


def equal(a: Node, b: Node) -> bool:
    """Return whether two expressions have one value, whatever their variables are.

    Raises:
        UnreadableError: one of them is no expression, or too large.
    """
    first, second = exact(a), exact(b)
    if first is not None and second is not None:
        return first == second
    names = _names(a) | _names(b)
    points = range(_POINTS if names - _CONSTANTS.keys() else 1)
    return all(_vanishes(a, b, point) for point in points)


def proportional(a: tuple[Node, Node], b: tuple[Node, Node]) -> float:
    """Return the constant by which left minus right of an equation is that of another.

    It is 0 if there is none, and only its sign is exact.
    """
    differences = [Node("sum", (left, Node("negative", (right,)))) for left, right in (a, b)]
    with mp.workdps(_PRECISIONS[0]):
        at_points = [[value(each, point) for each in differences] for point in range(_POSITIVE)]
        if any(abs(number) < _SHRINKS for pair in at_points for number in pair):
            return 0.0
        ratios = [first / second for first, second in at_points]
        if any(abs(ratio - ratios[0]) > _SHRINKS * abs(ratio) for ratio in ratios):
            return 0.0
        return float(mp.re(ratios[0])) if mp.im(ratios[0]) == 0 else 0.0


def real(node: Node) -> float | None:
    """Return the value of an expression without variables, if it is real."""
    if _names(node) - _CONSTANTS.keys() - {r"\infty"}:
        return None
    with mp.workdps(_PRECISIONS[0]):
        number = value(node, 0)
        return None if mp.im(number) != 0 else float(mp.re(number))


def _names(node: Node) -> set[str]:
    found = {node.text} if node.kind in _OPAQUE or node.kind == "call" else set()
    return found.union(*map(_names, node.parts))


def _vanishes(a: Node, b: Node, point: int) -> bool:
    """Return whether the difference of two expressions is zero at a point."""
    gaps = []
    with mp.workdps(_PRECISIONS[0]):  # beside a large number a small one needs more digits
        size = max(abs(value(a, point)), abs(value(b, point)))
        if not mp.isfinite(size) or mp.mag(size) * _DIGITS_A_BIT > _MOST_DIGITS:
            raise UnreadableError("too large")
        more = max(int(mp.mag(size) * _DIGITS_A_BIT), 0) if size else 0
    for digits in (own + more for own in _PRECISIONS):
        with mp.workdps(digits):
            first, second = value(a, point), value(b, point)
            if point >= _POSITIVE and not mp.im(first) == mp.im(second) == 0:
                return True
            gaps.append(abs(first - second))
            size = max(abs(first), abs(second))
    return bool(gaps[1] <= _SAME * min(size, 1) or gaps[1] <= gaps[0] * _SHRINKS)


def value(node: Node, point: int) -> Any:
    """Return the value of an expression at a point, in mpmath's precision.

    Raises:
        UnreadableError: it is none, or too large.
    """
    if node.kind == "number":
        return mp.mpf(node.number.numerator) / node.number.denominator
    if node.kind in _OPAQUE:
        return _CONSTANTS[node.text]() if node.text in _CONSTANTS else _sample(node.text, point)
    values = [value(part, point) for part in node.parts]
    match node.kind:
        case "sum":
            return mp.fsum(values)
        case "negative":
            return -values[0]
        case "product":
            return mp.fprod(values)
        case "quotient":
            return values[0] / divisor(values[1])
        case "power":
            return _power(*values)
        case "root":
            return _root(*values)
        case "factorial":
            return mp.gamma(_limited(values[0], _MOST_FACTORIAL) + 1)
        case "binomial":
            return mp.binomial(*(_limited(each, _MOST_FACTORIAL) for each in values))
        case "call":
            return _called(node.text, values, point)
        case "quantity":
            scale = {"degree": mp.pi / 180, "percent": mp.mpf(1) / 100}.get(node.text)
            if scale is not None:
                return values[0] * scale
    raise UnreadableError(f"{node.kind} is no expression")


def _sample(name: str, point: int) -> Any:
    """Return a number without a pattern: of all sizes around 1, negative at some points."""
    drawn = crc32(f"{name} {point}".encode())
    size = mp.mpf(2 * drawn + 1) / 2**31 + mp.mpf(1) / 3
    if name == r"\infty":
        return size * mp.mpf(10) ** 30
    return -size if point >= _POSITIVE and drawn % 3 else size


def _limited(number: Any, most: int) -> Any:
    if abs(number) > most:
        raise UnreadableError("too large")
    return number


def _power(base: Any, exponent: Any) -> Any:
    _limited(exponent, _MOST_EXPONENT)
    if base == 0 and not (mp.im(exponent) == 0 and mp.re(exponent) >= 0):
        raise UnreadableError("a division by zero")
    if abs(base) > mp.mpf(10) ** _MOST_EXPONENT:
        raise UnreadableError("too large")
    return mp.power(base, exponent)


def _root(inside: Any, index: Any = 2) -> Any:
    is_odd = mp.im(index) == 0 and mp.isint(index) and int(_limited(index, 10**6)) % 2
    if is_odd and mp.im(inside) == 0 and mp.re(inside) < 0:
        return -_power(-inside, 1 / mp.mpf(index))
    return mp.sqrt(inside) if index == 2 else _power(inside, 1 / divisor(index))


def _called(name: str, values: list[Any], point: int) -> Any:
    argument = values[0]
    if name == r"\log":
        if argument == 0:
            raise UnreadableError("the logarithm of zero")
        # Without a base it may be of any: a constant of its own.
        below = mp.log(divisor(values[1])) if len(values) > 1 else _sample(name, 0)
        return mp.log(argument) / divisor(below)
    if name in _FUNCTIONS:
        if name in (r"\exp", r"\sinh", r"\cosh"):
            _limited(argument, _MOST_EXPONENT)
        elif name == r"\ln":
            divisor(argument)
        elif name != "|":
            _limited(argument, 10**30)
        try:
            return _FUNCTIONS[name](argument)
        except (ValueError, ZeroDivisionError):  # a pole
            raise UnreadableError(f"{name} has no value") from None
    # Any function of this name: a polynomial without a pattern.
    return sum((_sample(f"{name} {k}", 0) * argument**k for k in range(4)), mp.mpf(0))
