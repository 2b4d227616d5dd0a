"""Equations against Python, expressions against equations, the expansion against a plain one."""

import math
from itertools import combinations_with_replacement
from random import Random

import numpy as np
import pytest

from headsweep.errors import BenchmarkError
from headsweep.experiments.athena.equations import evaluate, infix, parse, parse_prefix
from headsweep.experiments.athena.expressions import (
    MERGES,
    MOST_THOUGHTS,
    UNARY,
    Expander,
    Expressions,
    Op,
    harvest,
    schedule,
)

NUMBERS = (3.5, 7.25, 11.125)
CONSTANTS = (1.0, 2.0, 3.14)


def random_text(rng, depth, rich):
    if depth == 0 or rng.random() < 0.2:
        some = ["n0", "n1", "n2", "1", "2", "3.14", "0.5"]
        return rng.choice(some) if rich else f"{rng.randint(11, 999) / 100}"
    first, second = (random_text(rng, depth - 1, rich) for _ in range(2))
    if rich and rng.random() < 0.2:
        return rng.choice([f"(-({first}))", f"({first})^2", f"({first})^3"])
    body = rng.choice("+-*/").join((first, second))
    return f"({body})" if rng.random() < 0.6 else body


def value_of(equation):
    try:
        return evaluate(equation, NUMBERS)
    except BenchmarkError:
        return math.nan


def test_values_are_those_of_python_and_of_expressions_and_written_brackets_are_needed():
    for seed in range(80):
        check_values(seed)


def check_values(seed):
    rich = seed % 2 > 0  # with negations, powers, and numbers that occur twice
    read = random_text(Random(seed), 4, rich)
    equation = parse(read)
    text, value = infix(equation), value_of(equation)
    assert value_of(parse(text)) == pytest.approx(value, nan_ok=True)
    if rich:
        nodes = Expressions(len(NUMBERS), CONSTANTS)
        gold, steps = nodes.gold(equation)
        assert gold is not None and gold in steps
        assert nodes.value(gold, NUMBERS) == pytest.approx(value, rel=1e-9, nan_ok=True)
    numbers = {f"n{place}": number for place, number in enumerate(NUMBERS)}
    try:
        assert value == pytest.approx(eval(read.replace("^", "**"), numbers), rel=1e-12)
    except ZeroDivisionError:
        assert math.isnan(value)
        return
    brackets = [] if rich else [place for place, letter in enumerate(text) if letter == "("]
    for place in brackets:
        depth = 0
        for end in range(place, len(text)):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            if depth == 0:
                break
        without = text[:place] + text[place + 1 : end] + text[end + 1 :]
        assert value_of(parse(without)) != pytest.approx(value)


NOTATIONS = {
    "x=(24+24*150%)/(1-(1/6)-(1/6)*150%-(1/4))": 180,
    "x=3.14*[(3+2)^2-3^2]": 50.24,
    "x=1-(-(1/2))": 1.5,
    "{2+3}*[4-(1+1)]": 10,
    "2^3^2": 512,
    "8/4/2": 1,
    "2*PI": 6.28,
    "007+1.50-0.5%": 8.495,
    "((4)/(7))": 4 / 7,  # answers as Math23k prints them
    "7((2)/(3))": 7 + 2 / 3,
    "-410.0": -410,
}


PREFIXES = {"- n0 * n1 n2": "n0 - n1 * n2", "/ + n0 n1 n2": "( n0 + n1 ) / n2", "n1": "n1"}


def test_notations_of_the_datasets():
    assert {text: evaluate(parse(text)) for text in NOTATIONS} == pytest.approx(NOTATIONS)
    assert [*map(parse_prefix, PREFIXES)] == [*map(parse, PREFIXES.values())]


@pytest.mark.parametrize("deepest", [parse("1" + "+1" * 248), parse_prefix("+ 1 " * 249 + "1")])
def test_the_deepest_equations_that_are_read_are_worked_with(deepest):
    assert evaluate(deepest) == infix(deepest).count("1")
    assert schedule(deepest, 1, (1.0,), 4)


UNREADABLE = "^equation .* cannot be parsed; correct the row$"
BROKEN = [
    "x=80千米/小时",
    "(1/6)0",
    "2+",
    "",
    "n0 n1",
    "__import__('os')",
    "1" * 2000,
    "(" * 300,
    "9" * 400,
    "-" * 998 + "1",
    "1" + "+1" * 300,
]
BROKEN_PREFIX = ["+ n0", "+ n0 n1 n2", "n0 + n1", "+ 1 " * 600 + "1"]


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        *((parse, text, UNREADABLE) for text in BROKEN),
        *((parse_prefix, text, UNREADABLE) for text in BROKEN_PREFIX),
        *((parse, t, "no finite value") for t in ("1/(2-2)", "(1-2)^0.5", "9^9^9^9", "1/0*3")),
        (parse, "1(3/0)", r"number '1\(3/0\)' is divided by 0; correct the row"),
        (parse, "n0 + n3", r"n0\+n3 uses n3, but the text has 2 numbers"),
        (parse, f"n{'9' * 500}", r"^equation n9{56}\.\.\. uses n9{56}\.\.\., but the text"),
        (parse, "1/0" + "*3" * 100, r"^equation 1/0(\*3){27}\.\.\. has no finite value"),
    ],
)
def test_what_cannot_be_read_or_has_no_value_is_one_clear_line(read, text, message):
    with pytest.raises(BenchmarkError, match=message):
        evaluate(read(text), (1.0, 2.0))


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


def plain_expansion(nodes, right, depth):
    """Yield the candidates of each depth, of which those that are `right` are accepted."""
    thoughts, transformed, merged = [], set(), set()
    for level in range(depth + 1):
        known = set(thoughts)
        if level == 0:
            found = nodes.leaves
        elif level % 2:
            found = [nodes.node(op, one) for op in UNARY for one in known - transformed]
            transformed |= known
        else:
            pairs = combinations_with_replacement(thoughts, 2)
            new = [pair for pair in pairs if not set(pair) <= merged]
            found = [nodes.node(op, *pair) for op in MERGES for pair in new]
            merged |= known
        yield set(found) - known
        thoughts += (set(found) - known) & right


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("n0+n1*n2", 3), ("(n0-n1)/(n2+1)", 4), ("2*n0*3.14", 2), ("n3+n2+n1+n0", 5)],
)
def test_every_level_has_the_candidates_of_the_plain_expansion(text, numbers):
    expander = Expander(numbers, CONSTANTS)
    _, steps = expander.expressions.gold(parse(text))
    for expected in plain_expansion(expander.expressions, steps, 6):
        ops, *_, found = zip(*expander.expand(), strict=True) if expected else ((), ())
        assert len(found) == len(expected) and set(found) == expected
        assert list(ops) == sorted(ops)
        expander.thoughts += [one for one in found if one in steps]
    assert steps <= set(expander.thoughts)


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
        expander.thoughts += [candidate[3] for candidate in expander.expand()][: expander.room]
    assert (len(expander.thoughts), expander.room) == (MOST_THOUGHTS, 0)
