"""Both judges on tables of pairs and on the gold answers of MATH."""

import csv
import os
import random
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from headsweep.grading import judge
from headsweep.grading.graders import canonical, hendrycks, shortcut
from headsweep.grading.pool import Limits, judge_pairs
from headsweep.grading.verdicts import grade

PART = 1 if os.environ.get("HEADSWEEP_NIGHTLY") else 5
"""One in so many of MATH's gold answers is judged; every night all are."""
with Path(__file__).with_name("pairs.csv").open(encoding="utf-8", newline="") as file:
    PAIRS = [*csv.DictReader(file)]
"""Final answers, gold answers and verdicts that a mathematician would sign, by kind."""

# answer, gold answer, equal for the default judge, equal for PRM800K's rules
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
    ("1,2", "2,1", True, False),  # in any order; a string for PRM800K
    (r"\text{Navin}", r"\text{navin}", True, True),
    (r"\text{Navin}", r"\text{Evelyn}", False, False),
    (r"\text{(B)}", "B", True, True),
    ("11_2", "11_{2}", True, True),
    (r"\frac{1}{2^{98}}", r"\frac{1}{2^{99}}", False, False),
    (r"\frac{1}{2^{99}}", "2^{-99}", True, False),
    ("0.00000151", "0.0000015", False, False),
    ("0.000333333", r"\frac{1}{3000}", True, False),
    ("0.0003333", r"\frac{1}{3000}", False, False),  # too few digits
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
        r"\frac12\text{ m}": r"\frac{1}{2}",
        r"\frac12\text{ m}\text{ 2 cm}": r"\frac12\text{ m}\text{ 2 cm}",  # it gives up
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
    slow = WRONG[:4] if preset == "authors" else []
    others = [case[:2] for case in CASES if case[:2] not in slow]
    patient = Limits(cpu_seconds=20, wall_seconds=300, memory_mib=512)
    judged = judge_pairs(others, "math", preset, workers=2, limits=patient)
    assert {each.verdict for each in judged} == {"judged"}
    judged += judge_pairs(slow, "math", preset, workers=2, limits=patient._replace(cpu_seconds=1))
    found = dict(zip(others + slow, judged, strict=True))
    assert {case[:2]: case[column] for case in CASES} == {p: j.correct for p, j in found.items()}


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
    # The judge itself is asked, integers too. The default one finds no answer in the empty one.
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


def test_the_default_judge_gives_the_verdicts_that_a_mathematician_would_sign():
    assert len(PAIRS) > 1900
    counts = Counter(row["kind"] for row in PAIRS)
    assert min(counts.values()) >= 15
    assert Counter(row["right"] for row in PAIRS)["yes"] > 800
    asked = [(row["answer"], row["gold"]) for row in PAIRS]
    assert len({*asked}) == len(asked)
    judged = judge_pairs(asked, "math", "default", workers=2)
    found = zip(PAIRS, judged, strict=True)
    assert [row for row, each in found if each != ("judged", row["right"] == "yes")] == []


def test_a_verdict_does_not_change_with_the_dress_of_both_sides():
    """In dollars, between spaces, with a stop, or in a box in the box."""
    rows = random.Random(4).sample(PAIRS, 300)
    for dress in ("${}$", " {} ", "{}.", r"\displaystyle {}", r"\boxed{{{}}}"):
        changed = [
            (row["kind"], row["answer"], row["gold"])
            for row in rows
            if "$" not in row["answer"]
            and "(A)" not in row["gold"]
            and judge.equal(dress.format(row["answer"]), row["gold"]) != (row["right"] == "yes")
        ]
        assert changed == [], dress


def test_equality_is_symmetric_where_no_base_is_left_out():
    """An answer may leave out what the question has said; nothing else makes sides differ."""
    swapped = [(row["gold"], row["answer"], row["right"] == "yes") for row in PAIRS]
    one_sided = {pair[:2] for pair in swapped if judge.equal(*pair[:2]) != pair[2]}
    assert {(answer, gold) for answer, gold in one_sided if "_" not in answer + gold} == set()


def test_the_verdict_of_a_pair_does_not_depend_on_its_neighbours():
    nested = ["(" * depth + "x" + ")" * depth for depth in (45, 90, 110, 2000)]
    towers = ["9^{9^{9^{9}}}", r"\frac{1}{10^{10^{10}}}", "1" + "+1" * 3000, "x" * 3000]
    for text in [*nested, *towers]:
        alone = grade([text], ["x"], final=True)
        crowd = grade([text] * 3 + nested + towers + [text], ["x"] * 12, final=True)
        assert alone == crowd[-1:]
        assert alone[0].cause in ("right", "wrong")
    assert grade([nested[0], nested[-1]], ["x"] * 2, final=True)[0].correct
