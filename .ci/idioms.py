"""Idioms that save a line and cost the reader a minute stay out of the sources.

`python .ci/idioms.py FOLDER...` names each with its file and line, and fails if there is one.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

TRUTHS = (ast.Compare, ast.Not)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
VARIADIC = "zip min max print product chain format map union new_zeros view reshape partial"
"""Functions that take any number of alike arguments, and so may get some of them in a list."""


def has_truth(node: ast.AST) -> bool:
    """Tell whether a comparison or a negation is part of a node."""
    return any(isinstance(part, TRUTHS) for part in ast.walk(node))


def shape(value: ast.AST) -> list[type]:
    """Return a value's form without its names, numbers and signs: two of one form are a pair."""
    signs = (ast.operator, ast.cmpop, ast.unaryop, ast.UnaryOp, ast.expr_context)
    return [type(part) for part in ast.walk(value) if not isinstance(part, signs)]


def idioms(tree: ast.AST) -> Iterator[tuple[int, str]]:
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


def is_text(node: ast.AST) -> bool:
    """Tell whether a node is a text with letters."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return any(letter.isalpha() for letter in node.value)
    return isinstance(node, ast.JoinedStr)


def is_name(node: ast.AST) -> bool:
    """Tell whether a node is a name."""
    return isinstance(node, ast.Name)


def is_truth(node: ast.AST) -> bool:
    """Tell whether a node is a truth value."""
    return isinstance(node, ast.Compare) or ast.unparse(node).startswith("bool(")


def main(folders: list[str]) -> int:
    """Print the idioms in the Python files of some folders; return how many there are."""
    count = 0
    for folder in folders:
        for file in sorted(Path(folder).rglob("*.py")):
            for line, idiom in idioms(ast.parse(file.read_text(encoding="utf-8"))):
                count += 1
                print(f"{file}:{line}: {idiom}")
    return count


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
