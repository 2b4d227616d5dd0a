"""Canonical expressions, against an implementation with nested tuples and the plain value."""

import math
from random import Random

import pytest

from headroom.athena.equations import Constant, Equation, Negation, Operation, evaluate, parse
from headroom.athena.expressions import Expressions, Op, harvest
from headroom.errors import BenchmarkError

NUMBERS = (3.5, 7.25, 11.125)
CONSTANTS = (1.0, 2.0, 3.14)


def random_equation(rng: Random, depth: int) -> Equation:
    if depth == 0 or rng.random() < 0.2:
        return parse(rng.choice(["n0", "n1", "n2", "1", "2", "3.14", "0.5"]))
    if rng.random() < 0.1:
        return Negation(random_equation(rng, depth - 1))
    if rng.random() < 0.1:
        return Operation("^", random_equation(rng, depth - 1), Constant(rng.choice([2.0, 3.0])))
    left, right = random_equation(rng, depth - 1), random_equation(rng, depth - 1)
    return Operation(rng.choice(["+", "-", "*", "/"]), left, right)


@pytest.mark.parametrize("seed", range(60))
def test_the_expression_has_the_value_of_the_equation(seed):
    equation = random_equation(Random(seed), 4)
    try:
        expected = evaluate(equation, NUMBERS)
    except BenchmarkError:
        expected = math.nan
    nodes = Expressions(len(NUMBERS), CONSTANTS)
    gold, steps = nodes.gold(equation)
    assert gold is not None and gold in steps
    assert nodes.value(gold, NUMBERS) == pytest.approx(expected, rel=1e-9, nan_ok=True)


def gold(text: str, constants: tuple[float, ...] = CONSTANTS) -> str | None:
    nodes = Expressions(3, constants)
    found, _ = nodes.gold(parse(text))
    return None if found is None else nodes.text(found)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("n0+n1+n2", "n2+(n1+n0)"),
        ("n0*n1/n2", "n1/n2*n0"),
        ("n0-n1-n2", "n0-n2-n1"),
        ("2*n0", "n0+n0"),
        ("n1*1", "n1"),
        ("n1^2", "n1*n1"),
        ("n0^3", "n0*n0*n0"),
    ],
)
def test_equal_expressions_are_one(one, other):
    nodes = Expressions(3, (1.0, 2.0))
    first, second = nodes.gold(parse(one))[0], nodes.gold(parse(other))[0]
    assert first == second


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("n0-n1", "ADD(n0, NEG(n1))"),
        ("n0/n1", "MUL(n0, INV(n1))"),
        ("n0/2", "HALF(n0)"),
        ("1/n0", "INV(n0)"),
        ("(1/2)*n0", "MUL(n0, HALF(1))"),
        ("0.5*n0", "MUL(n0, INV(2))"),  # 1 / (1 / c)
        ("n0^0.5", "ROOT(n0)"),
        ("-n2", "NEG(n2)"),
        ("n0-(n1-n2)", "ADD(n0, NEG(ADD(n1, NEG(n2))))"),
    ],
)
def test_there_is_no_difference_quotient_or_power(text, expression):
    assert gold(text) == expression


@pytest.mark.parametrize("text", ["n0+5", "n0^4", "n0^n1"])
def test_what_cannot_be_expressed_has_no_expression(text):
    assert gold(text) is None


def test_what_has_no_value_is_nan():
    nodes = Expressions(2, ())
    zero = nodes.merge(Op.ADD, nodes.leaves[0], nodes.unary(Op.NEG, nodes.leaves[0]))
    assert math.isnan(nodes.value(nodes.unary(Op.INV, zero), (4.0, 5.0)))
    assert math.isnan(nodes.value(nodes.unary(Op.ROOT, nodes.unary(Op.NEG, 1)), (4.0, 5.0)))


def test_constants_are_harvested_often_enough_and_inverses_left_out():
    equations = [parse(text) for text in ["n0*0.5", "n0/2+0.5", "2*n1", "n0*3.14", "7+n0", "7+n1"]]
    assert harvest(equations) == (2.0, 3.14, 7.0)
    assert harvest(equations, at_least=2) == (2.0, 7.0)
    assert harvest([parse("n0*0.25")]) == (0.25,)
