"""Both judges, each in its workers, on a table of cases and on the gold answers of MATH."""

import os
import random

import pytest

from headroom.bench.grading import _golds
from headroom.grading.graders import canonical, shortcut
from headroom.grading.pool import Limits, judge_pairs

PART = 1 if os.environ.get("HEADROOM_NIGHTLY") else 5
"""One in so many of MATH's gold answers is judged; every night all are."""

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
    judged = judge_pairs([case[:2] for case in CASES], preset, workers=2, limits=limits)
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
    judged = judge_pairs(pairs, preset, workers=2)
    assert [("judged", shortcut(*pair)) for pair in pairs] == judged
    for text in ("-0", "05", "1.0", "1e3", "٣", "1_000", "", "1" * 16, " 5", "5\n"):
        assert shortcut(text, text) is shortcut(text, "5") is shortcut("5", text) is None


@pytest.fixture(scope="module")
def golds(headroom_data):
    train, test = (
        _golds(headroom_data / name) for name in ("math_train.jsonl.gz", "math500.jsonl")
    )
    assert (len(train), len(test)) == (12_000, 500)
    return train + test


@pytest.mark.parametrize(("preset", "exceptions"), [("default", [""]), ("authors", [])])
def test_all_gold_answers_of_math_are_judged_equal_to_themselves(golds, preset, exceptions):
    # The judge itself is asked, integers too. math-verify finds no answer in the empty one.
    distinct = sorted({*exceptions, *sorted(set(golds))[::PART]})
    judged = judge_pairs([(gold, gold) for gold in distinct], preset, workers=2)
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
    assert judge_pairs(pairs, preset, workers=2) == 2 * judge_pairs(plain, preset, workers=2)
