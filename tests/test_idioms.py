"""Idioms that save a line and cost the reader a minute stay out of the sources."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

TRUTHS = (ast.Compare, ast.Not)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
VARIADIC = "zip min max print product chain format map union new_zeros view reshape partial"
"""Functions that take any number of alike arguments, and so may get some of them in a list."""


def has_truth(node):
    return any(isinstance(part, TRUTHS) for part in ast.walk(node))


def shape(value):
    """Return a value's form without its names, numbers and signs: two of one form are a pair."""
    signs = (ast.operator, ast.cmpop, ast.unaryop, ast.UnaryOp, ast.expr_context)
    return [type(part) for part in ast.walk(value) if not isinstance(part, signs)]


def idioms(tree):
    """Yield what is to be written in plain lines, with its line."""
    collected = {
        function.args.vararg.arg
        for function in ast.walk(tree)
        if isinstance(function, FUNCTIONS) and function.args.vararg
    }
    for node in ast.walk(tree):
        match node:
            case ast.Starred(value=ast.Tuple() | ast.List() | ast.Set()):
                yield node.lineno, "a starred literal"
            case ast.Call(args=[_, *rest]):
                packed = [part.value for part in rest if isinstance(part, ast.Starred)]
                unnamed = {ast.unparse(value) for value in packed} - collected
                if unnamed and ast.unparse(node.func).rpartition(".")[2] not in VARIADIC.split():
                    yield node.lineno, "positional packing after other arguments"
            case ast.BinOp(op=ast.Mult()):
                factors = (node.left, node.right)
                repeated = any(map(is_text, factors)) and any(map(is_name, factors))
                if repeated or any(map(is_truth, factors)):
                    yield node.lineno, "truth as a number"
            case ast.Slice():
                ends = [end for end in (node.lower, node.upper) if end is not None]
                if any(has_truth(end) for end in ends):
                    yield node.lineno, "truth as a number"
            case ast.comprehension():
                parts = [part for condition in node.ifs for part in ast.walk(condition)]
                if any(isinstance(part, ast.NamedExpr) for part in parts):
                    yield node.ifs[0].lineno, "a name bound in a comprehension's condition"
            case ast.For(iter=ast.IfExp(body=body, orelse=orelse)):
                if any(isinstance(part, ast.Tuple | ast.List) for part in (body, orelse)):
                    yield node.lineno, "a loop over nothing in place of a condition"
            case ast.Assign(targets=[ast.Tuple()], value=ast.Tuple(elts=[first, *others])):
                if any(shape(other) != shape(first) for other in others):
                    yield node.lineno, "several assignments in one, whose values are no pair"


def is_text(node):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return any(letter.isalpha() for letter in node.value)
    return isinstance(node, ast.JoinedStr)


def is_name(node):
    return isinstance(node, ast.Name)


def is_truth(node):
    return isinstance(node, ast.Compare) or ast.unparse(node).startswith("bool(")


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_module_says_what_it_does_in_plain_lines(file):
    found = dict(idioms(ast.parse(file.read_text(encoding="utf-8"))))
    assert not found, f"{file}: {found}"


@pytest.mark.parametrize(
    "line",
    [
        "f(*(1, 2))",
        "words = (*('a', 'b'), 'c')",
        "f(name, *where)",
        "text = 'one' + ', more' * several",
        "names = [''] * bool(names)",
        "row = 3 * (count > 1)",
        "both[: base in tested]",
        "{name: own for name in names if (own := table[name])}",
        "tested, method = trial.settings, trial.study.method",
        "for name in names if names else (): pass",
    ],
)
def test_each_idiom_is_found(line):
    assert list(idioms(ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    [
        "low, high = row.low, row.high",
        "gained, lost = (x > 0).sum(), (x < 0).sum()",
        "first, second = second, first",
        "print(name, *rest)",
        "blanks = [None] * 4",
        "def f(x, *more): return g(x, *more)",
        "rows = [row for row in rows if row]",
        "for name in first if first else second: pass",
    ],
)
def test_what_is_plain_passes(line):
    assert not list(idioms(ast.parse(line)))
