"""Canonical expressions against their plain values, the expansion against one of nested values."""

import math
from collections import Counter
from itertools import combinations_with_replacement
from random import Random

import numpy as np
import pytest

from headroom.athena.equations import Constant, Equation, Negation, Operation, evaluate, parse
from headroom.athena.expressions import MOST_THOUGHTS, Expander, Expressions, Op, harvest, schedule
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


EXPRESSIONS = {
    "n0+n1+n2 = n2+(n1+n0)": "ADD(n0, n1, n2)",
    "n0*n1/n2 = n1/n2*n0": "MUL(n0, n1, INV(n2))",
    "n0-n1-n2 = n0-n2-n1": "ADD(n0, NEG(n1), NEG(n2))",
    "2*n0 = n0+n0": "ADD(n0, n0)",
    "n1*1 = n1": "n1",
    "n1^2 = n1*n1": "MUL(n1, n1)",
    "n0^3 = n0*n0*n0": "MUL(n0, n0, n0)",
    "n0/2": "HALF(n0)",
    "1/n0": "INV(n0)",
    "(1/2)*n0": "MUL(n0, HALF(1))",
    "0.5*n0": "MUL(n0, INV(2))",  # 1 / (1 / c)
    "n0^0.5": "ROOT(n0)",
    "-n2": "NEG(n2)",
    "n0-(n1-n2)": "ADD(n0, NEG(ADD(n1, NEG(n2))))",
    **dict.fromkeys(("n0+5", "n0^4", "n0^n1")),
}


@pytest.mark.parametrize("texts", EXPRESSIONS)
def test_equal_expressions_are_one_without_differences_quotients_and_powers(texts):
    nodes = Expressions(3, CONSTANTS)
    (found,) = {nodes.gold(parse(text))[0] for text in texts.split(" = ")}
    assert (None if found is None else nodes.text(found)) == EXPRESSIONS[texts]


def test_what_has_no_value_is_nan():
    nodes = Expressions(2, ())
    zero = nodes.node(Op.ADD, nodes.leaves[0], nodes.node(Op.NEG, nodes.leaves[0]))
    assert math.isnan(nodes.value(nodes.node(Op.INV, zero), (4.0, 5.0)))
    assert math.isnan(nodes.value(nodes.node(Op.ROOT, nodes.node(Op.NEG, 1)), (4.0, 5.0)))


def test_constants_are_harvested_often_enough_and_inverses_left_out():
    equations = [parse(text) for text in ["n0*0.5", "n0/2+0.5", "2*n1", "n0*3.14", "7+n0", "7+n1"]]
    assert harvest(equations) == (2.0, 3.14, 7.0)
    assert harvest(equations, at_least=2) == (2.0, 7.0)
    assert harvest([parse("n0*0.25")]) == (0.25,)


UNARY, MERGES = ("NEG", "INV", "ROOT", "HALF"), ("ADD", "MUL")


def make(op, *parts):
    """Return an expression as a value that is equal for equal expressions."""
    if op in MERGES:
        terms = Counter()
        for part in parts:
            terms += Counter(dict(part[1])) if part[0] == op else Counter([part])
        return (op, frozenset(terms.items()))
    return (op, *parts)


def plain_expansion(leaves, right, depth):
    """Yield the candidates of each depth; `right` decides what is accepted."""
    thoughts, transformed, merged = [], set(), set()
    for level in range(depth + 1):
        known = set(thoughts)
        if level == 0:
            found = list(leaves)
        elif level % 2:
            new = [thought for thought in thoughts if thought not in transformed]
            found = [make(op, thought) for op in UNARY for thought in new]
            transformed |= known
        else:
            pairs = combinations_with_replacement(thoughts, 2)
            found = [
                make(op, *pair) for pair in list(pairs) for op in MERGES if not set(pair) <= merged
            ]
            merged |= known
        found = set(found) - known
        yield found
        thoughts += [expression for expression in found if right(expression)]


def as_value(nodes, expression):
    op, arguments = nodes.nodes[expression]
    if op in (Op.NUMBER, Op.CONSTANT):
        return (op.name, arguments[0])
    return make(op.name, *(as_value(nodes, argument) for argument in arguments))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("n0+n1*n2", 3), ("(n0-n1)/(n2+1)", 4), ("2*n0*3.14", 2), ("n3+n2+n1+n0", 5)],
)
def test_every_level_has_the_candidates_of_the_plain_expansion(text, numbers):
    expander = Expander(numbers, CONSTANTS)
    nodes = expander.expressions
    _, steps = nodes.gold(parse(text))
    wanted = {as_value(nodes, step) for step in steps}
    leaves = [as_value(nodes, leaf) for leaf in nodes.leaves]
    for found in plain_expansion(leaves, lambda expression: expression in wanted, 6):
        candidates = expander.candidates()
        values = [as_value(nodes, candidate[3]) for candidate in candidates]
        assert len(values) == len(set(values))
        assert set(values) == found
        assert [c[0] for c in candidates] == sorted(c[0] for c in candidates)
        expander.accept([c[3] for c in candidates if as_value(nodes, c[3]) in wanted])


def test_a_schedule_ends_where_it_leads_to_the_equation_or_nothing_is_new():
    plan = schedule(parse("(n0-n1)*n2"), 3, (1.0,), depth=10)
    kept = np.flatnonzero(plan.target)
    assert plan.depth[kept].tolist() == [0, 0, 0, 1, 2, 4]
    assert plan.op[kept[-3:]].tolist() == [Op.NEG, Op.ADD, Op.MUL]
    assert (plan.answer, plan.depth.max()) == (5, 4)
    assert schedule(parse("(n0-n1)*n2"), 3, (), depth=3).answer is None
    plan = schedule(parse("n0*n1+9"), 2, (1.0,), depth=10)
    # Two numbers and their product; then nothing is new.
    assert (plan.answer, plan.target.sum(), plan.depth.max()) == (None, 3, 4)


def test_thoughts_are_limited():
    expander = Expander(11, (1.0, 2.0))
    for _ in range(4):
        expander.accept([candidate[3] for candidate in expander.candidates()][: expander.room])
    assert (len(expander.thoughts), expander.room) == (MOST_THOUGHTS, 0)
