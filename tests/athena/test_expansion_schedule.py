"""The expansion, against a plain one over nested values."""

from collections import Counter
from itertools import combinations_with_replacement

import numpy as np
import pytest

from headroom.athena.equations import parse
from headroom.athena.expressions import MOST_THOUGHTS, Expander, Op, schedule

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
    op, arguments = nodes.terms(expression)
    if op in (Op.NUMBER, Op.CONSTANT):
        return (op.name, arguments[0])
    return make(op.name, *(as_value(nodes, argument) for argument in arguments))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("n0+n1*n2", 3), ("(n0-n1)/(n2+1)", 4), ("2*n0*3.14", 2), ("n3+n2+n1+n0", 5)],
)
def test_every_level_has_the_candidates_of_the_plain_expansion(text, numbers):
    constants = (1.0, 2.0, 3.14)
    expander = Expander(numbers, constants)
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


def test_a_schedule_leads_to_the_equation_and_ends_there():
    plan = schedule(parse("(n0-n1)*n2"), 3, (1.0,), depth=10)
    kept = np.flatnonzero(plan.target)
    assert plan.depth[kept].tolist() == [0, 0, 0, 1, 2, 4]
    assert plan.op[kept[-3:]].tolist() == [Op.NEG, Op.ADD, Op.MUL]
    assert plan.answer == 5
    assert plan.depth.max() == 4


def test_an_equation_beyond_the_depth_or_the_constants_is_not_reached():
    assert schedule(parse("(n0-n1)*n2"), 3, (), depth=3).answer is None
    plan = schedule(parse("n0*n1+9"), 2, (1.0,), depth=10)
    assert plan.answer is None
    assert plan.target.sum() == 3  # two numbers, their product
    assert plan.depth.max() == 4  # then nothing is new


def test_thoughts_are_limited():
    expander = Expander(11, (1.0, 2.0))
    for _ in range(4):
        expander.accept([candidate[3] for candidate in expander.candidates()][: expander.room])
    assert len(expander.thoughts) == MOST_THOUGHTS
    assert expander.room == 0
