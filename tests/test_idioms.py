"""What the lint step `.ci/idioms.py` finds, and what it lets pass."""

import ast
import runpy
from pathlib import Path

import pytest

idioms = runpy.run_path(str(Path(__file__).parents[1] / ".ci/idioms.py"))["idioms"]


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
