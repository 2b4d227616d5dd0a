"""Both judges, each in its workers, on a table of cases and on the gold answers of MATH.

Answers are read faster than by math-verify, and to the same expressions.
"""

import os
import random

import pandas as pd
import pytest
import sympy
from latex2sympy2_extended import latex2sympy2
from math_verify import grader

from headsweep.grading import math_verify_judge as latex
from headsweep.grading.graders import canonical, hendrycks, shortcut
from headsweep.grading.math_verify_judge import _parse, differ
from headsweep.grading.pool import Limits, judge_pairs
from made_answers import answers

PART = 1 if os.environ.get("HEADSWEEP_NIGHTLY") else 5
"""One in so many of MATH's gold answers is judged; every night all are."""
COUNT = int(os.environ.get("HEADSWEEP_ANSWERS", "250"))
"""How many of what 33 variants answer to MATH are read; 150000 are all."""

# answer, gold answer, equal for math-verify, equal for PRM800K's rules
CASES = [
    ("5", "5", True, True),
    ("05", "5", True, True),
    ("-5", "5", False, False),
    ("$5$", "5", True, True),
    ("1,000", "1000", True, True),
    (r"10,\!000", "10000", True, True),
    (r"\$18", "18", True, True),
    (r"50\%", "50", True, True),
    (r"120^\circ", "120", True, True),
    (r"21 \text{ dogs}", "21", True, True),
    ("1/2", r"\frac{1}{2}", True, True),
    ("0.5", r"\frac{1}{2}", True, True),
    (r"\dfrac12", r"\frac{1}{2}", True, True),
    ("0.333333", r"\frac{1}{3}", True, False),
    (r"\frac{2}{4}", r"\frac{1}{2}", True, False),  # PRM800K wants fractions reduced
    (r"-\frac{1}{2}", r"\frac{-1}{2}", True, True),
    ("x = 5", "5", True, True),
    ("abc=5", "5", True, False),  # names of two letters at most
    ("y=6", "x=5", False, False),
    ("x+1", "1+x", True, True),
    (r"\sqrt{8}", r"2\sqrt{2}", True, True),
    (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}", True, True),
    (r"\frac{\pi}{2}", r"\pi/2", True, True),
    ("(1, 2)", "(1,2)", True, True),
    ("(1,2,3)", "(1,2)", False, False),
    ("[1,2]", "(1,2)", False, False),
    ("(0.5, 4)", r"\left(\frac{1}{2}, 4\right)", True, True),
    ("1,2", "2,1", True, False),  # a set for math-verify, a string for PRM800K
    (r"\text{Navin}", r"\text{navin}", True, True),
    (r"\text{Navin}", r"\text{Evelyn}", False, False),
    (r"\text{(B)}", "B", True, True),
    ("11_2", "11_{2}", True, True),
    (r"\frac{1}{2^{98}}", r"\frac{1}{2^{99}}", False, False),
    (r"\frac{1}{2^{99}}", "2^{-99}", True, False),
    ("0.00000151", "0.0000015", False, False),
    ("0.0003333", r"\frac{1}{3000}", True, False),
    ("0", r"\frac{1}{2004!}", False, False),
    (r"\begin{pmatrix}1&2\end{pmatrix}", r"\begin{pmatrix} 1 & 2 \end{pmatrix}", True, True),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}2\\1\end{pmatrix}", False, False),
    (r"7 \frac{3}{4}", "31/4", True, True),
    ("", "5", False, False),
    ("5", "", False, False),
    (r"\text{13}", "13", True, True),
    ("009", "9", True, True),
]


def test_abbreviated_latex_is_written_out():
    short = {r"\dfrac12": r"\frac{1}{2}", r"\frac1{72}": r"\frac{1}{72}", "3/4": r"\frac{3}{4}"}
    short |= {
        r"\sqrt3": r"\sqrt{3}",
        r"\frac12x": r"\frac{1}{2}x",
        r"\text{ 5 }": "5",
        r"\frac1": r"\frac1",
        "x = .75": "0.75",
    }
    assert {text: hendrycks(text) for text in short} == short


# Answers on which graders of other projects hung, crashed or erred, as their users report (issues
# of Math-Verify, and one of torchtitan): the first are towers, which may take too long.
WRONG = [
    (r"\frac{5^{(5^{(5^{(5^5)})} - 4)} - 5}{16}", "3"),
    ("{@N 1276915 4951077 国 {1,1-3-10);5个_GENERAL2。 _HEADERS1 O}", "4951077"),
    (r"10^{(5^{5^{5^{5^{5}}} \cdot \log_{10}(5)} - 4)}", "3"),
    ("2003^{2002^{2001}}", "241"),
    ("3x + 4y + 14=0", "3*x-1*y+13=0"),
    (r"\frac{1}{2006!}", r"\frac{1}{2004!}"),
    ("n=1, 2, 3", "n=2, 3, 4"),
    ("D = (0, 1.5)", "D = (0, 1)"),
    (r"21, 36, \text{ and } 82", r"19, 46, \text{ and } 82"),
    (r"\frac{1}{3 \cdot 2^{2006}}", r"\frac{2^{2005}+1}{3 \cdot 2^{2006}}"),
    (r"1 + \frac{1}{\mathrm{e}}", r"1 - \frac{1}{\mathrm{e}}"),
    ("2021", r"\pm 2021"),
    ("1:00", "12:00"),
    (r"1, 3, 5, \ldots, 2n-1", r"1, 2, \ldots, n"),
]
CASES += [(*pair, False, False) for pair in WRONG]


@pytest.mark.parametrize(("preset", "column"), [("default", 2), ("authors", 3)])
def test_the_judges_give_the_verdicts_of_the_table(preset, column):
    limits = Limits(cpu_seconds=1, wall_seconds=20, memory_mib=512)
    judged = judge_pairs([case[:2] for case in CASES], "math", preset, workers=2, limits=limits)
    found = dict(zip((case[:2] for case in CASES), judged, strict=True))
    assert {case[:2]: case[column] for case in CASES} == {p: j.correct for p, j in found.items()}
    assert {pair for pair, each in found.items() if each.verdict != "judged"} <= {*WRONG[:4]}


@pytest.mark.parametrize("preset", ["default", "authors"])
def test_the_shortcut_gives_the_verdict_of_the_judge_or_none(preset):
    rng = random.Random(1)
    integers = [0, 1, -1, 10**15 - 1, 1 - 10**15]
    integers += [rng.randrange(-(10**digits), 10**digits) for digits in range(1, 16)]
    # Near misses of the largest integers are where a judge by floating point would fail.
    near = [number + step for number in integers[3:] for step in (-1, 1)]
    pairs = [(str(a), str(b)) for a in integers + near for b in integers]
    pairs = [pair for pair in pairs if shortcut(*pair) is not None]
    assert len(pairs) > 600
    judged = judge_pairs(pairs, "math", preset, workers=2)
    assert [("judged", shortcut(*pair)) for pair in pairs] == judged
    for text in ("-0", "05", "1.0", "1e3", "٣", "1_000", "", "1" * 16, " 5", "5\n"):
        assert shortcut(text, text) is shortcut(text, "5") is shortcut("5", text) is None


@pytest.fixture(scope="module")
def golds(headsweep_data):
    train, test = (
        pd.read_json(headsweep_data / name, lines=True, dtype=False)["answer"].tolist()
        for name in ("math_train.jsonl.gz", "math500.jsonl")
    )
    assert (len(train), len(test)) == (12_000, 500)
    return train + test


@pytest.mark.parametrize(("preset", "exceptions"), [("default", [""]), ("authors", [])])
def test_all_gold_answers_of_math_are_judged_equal_to_themselves(golds, preset, exceptions):
    # The judge itself is asked, integers too. math-verify finds no answer in the empty one.
    distinct = sorted({*exceptions, *sorted(set(golds))[::PART]})
    judged = judge_pairs([(gold, gold) for gold in distinct], "math", preset, workers=2)
    assert {judgement.verdict for judgement in judged} == {"judged"}
    pairs = zip(distinct, judged, strict=True)
    assert [gold for gold, judgement in pairs if not judgement.correct] == exceptions


@pytest.mark.parametrize("preset", ["default", "authors"])
def test_the_canonical_form_never_changes_a_verdict(golds, preset):
    forms = {
        form
        for gold in golds
        for form in (gold, f" {gold}\n", gold.replace(r"\frac", r"\tfrac"), rf"\\dfrac{gold}")
        if canonical(form) != form
    }
    sample = [(form, canonical(form)) for form in random.Random(2).sample(sorted(forms), 300)]
    pairs = [*sample, *(pair[::-1] for pair in sample)]
    plain = [(form, form) for _, form in sample]
    assert judge_pairs(pairs, "math", preset, workers=2) == 2 * judge_pairs(
        plain, "math", preset, workers=2
    )


HARD = [
    *("x^2 + 3", "y^7 + 25", "x^2 + 3", "n^1 + 0", "007", "0", "1,234", "1,234.5", "0.50", "00.5"),
    *(".5", "5.", "1e5", "1,2", "12,34", "3,,4", "x_{10}", "x_{11}", "i^2", "i^3", r"10\%"),
    *(r"7\frac{3}{4}", r"7\frac{4}{3}", r"\frac{d}{dx} x^2", r"\frac{d}{dy} y^3", "(1,2]", "(2,1]"),
    *(r"\text{Evelyn}", r"\text{ten}", "(3", "(4", "[5", "x =", "y =", "a=b=3", "c=d=4", "1<x<2"),
    *(r"5 \le y < 7", r"\sqrt[3]{2}", r"\sqrt[5]{7}", r"\log_2 8", r"\log_3 9", "x y", ""),
    *(r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}3\\4\end{pmatrix}", "1" * 101, "9!"),
    "\u0661",
]


def real_answers(golds):
    pairs = answers(golds, 33 if len(golds) < COUNT else 1, seed=5)
    texts = sorted({canonical(text) for pair in pairs for text in pair})
    return random.Random(5).sample(texts, min(COUNT, len(texts)))


def shape(expression):
    """Return all that a verdict can depend on: types, order of arguments, leaves, assumptions."""
    if isinstance(expression, list | tuple):
        return [shape(part) for part in expression]
    arguments = getattr(expression, "_unsorted_args", None) or getattr(expression, "args", ())
    if not arguments:
        return f"{type(expression).__name__} {sympy.srepr(expression)}"
    return [type(expression).__name__, *map(shape, arguments)]


@pytest.mark.parametrize("real", [False, True])
def test_texts_are_read_as_math_verify_reads_them(real, request, monkeypatch):
    texts = real_answers(request.getfixturevalue("golds")) if real else HARD
    found = [shape(_parse(text)) for text in texts]
    monkeypatch.setattr(latex2sympy2, "PSParser", latex._Parser.__base__)
    monkeypatch.setattr(latex2sympy2._Latex2Sympy, "parse_number", latex._parse_any_number)
    for text, own in zip(texts, found, strict=True):
        assert shape(_parse(text)) == own, text


UNEQUAL = [
    *((r"41", r"\sqrt{3} - 5i"), (r"\sqrt{550}", r"\sqrt{59}"), (r"1008\sqrt{6}", "3")),
    *((r"36x\sqrt{37x}", r"36x\sqrt{35x}"), ("x^2+1", "y^2+1"), ("-1+i", "12"), (r"72\pi", "72")),
    *((r"\frac{x-1}{x+1}", r"\frac{x+1}{x-1}"), (r"\sin 2", r"\cos 2"), ("e^{20}", "e^{21}")),
]
EQUAL = [
    *(("(x+1)^2", "x^2+2x+1"), (r"\frac{2}{\sqrt{2}}", r"\sqrt{2}"), (r"\sqrt{8}", r"2\sqrt{2}")),
    *((r"\frac{1}{\sqrt{3}-\sqrt{2}}", r"\sqrt{3}+\sqrt{2}"), (r"\sin^2 x", r"1-\cos^2 x")),
    (r"\sqrt{x^2}", "|x|"),
]
UNSURE = [
    *((r"\sum_{k=1}^{9} \frac{1}{k+x}", "x"), (r"\int_0^1 e^{t^2} dt", "9"), ("0.3333333", "1/3")),
    *((r"\infty", r"\infty"), (r"10^{30}+1", r"10^{30}"), (r"f(x)", r"g(x)")),
]


@pytest.mark.parametrize("pair", [*UNEQUAL, *EQUAL])
def test_values_that_differ_need_no_simplification_and_equal_ones_never_differ(pair):
    a, b = (_parse(text)[0] for text in pair)
    assert differ(a, b) == (pair in UNEQUAL)
    assert bool(latex._simplifies_to_zero(a, b)) == (pair in EQUAL)
    assert grader.sympy_symbolic_eq(a, b) == (pair in EQUAL)


def test_sympy_decides_where_it_is_not_clear_or_nothing_can_be_evaluated(monkeypatch):
    monkeypatch.setattr(latex, "_simplifies_to_zero", lambda a, b: "asked")
    for pair in UNSURE:
        assert grader.sympy_symbolic_eq(*(_parse(text)[0] for text in pair)) is True, pair
    row, column = sympy.Matrix([[1, 2]]), sympy.Matrix([1, 2])
    assert grader.sympy_symbolic_eq(row, column)  # of other shapes: no difference
    assert grader.sympy_symbolic_eq(row, row)
