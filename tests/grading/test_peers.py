"""Answers on which graders of other projects hung, crashed or erred, as their users report."""

import pytest

from headroom.grading.pool import Limits, judge_pairs

# issue, answer, gold answer; none is right
WRONG = [
    ("Math-Verify 65", r"\frac{5^{(5^{(5^{(5^5)})} - 4)} - 5}{16}", "3"),
    ("Math-Verify 65", "{@N 1276915 4951077 国 {1,1-3-10);5个_GENERAL2。 _HEADERS1 O}", "4951077"),
    ("Math-Verify 59", r"10^{(5^{5^{5^{5^{5}}} \cdot \log_{10}(5)} - 4)}", "3"),
    ("torchtitan 4442", "2003^{2002^{2001}}", "241"),
    ("Math-Verify 60", "3x + 4y + 14=0", "3*x-1*y+13=0"),
    ("Math-Verify 14", r"\frac{1}{2006!}", r"\frac{1}{2004!}"),
    ("Math-Verify 14", "n=1, 2, 3", "n=2, 3, 4"),
    ("Math-Verify 14", "D = (0, 1.5)", "D = (0, 1)"),
    ("Math-Verify 14", r"21, 36, \text{ and } 82", r"19, 46, \text{ and } 82"),
    ("Math-Verify 14", r"\frac{1}{3 \cdot 2^{2006}}", r"\frac{2^{2005}+1}{3 \cdot 2^{2006}}"),
    ("Math-Verify 14", r"1 + \frac{1}{\mathrm{e}}", r"1 - \frac{1}{\mathrm{e}}"),
    ("Math-Verify 14", "2021", r"\pm 2021"),
    ("Math-Verify 14", "1:00", "12:00"),
    ("Math-Verify 14", r"1, 3, 5, \ldots, 2n-1", r"1, 2, \ldots, n"),
]
RIGHT = [("Math-Verify 37", r"\text{13}", "13"), ("torchtitan 4442", "009", "9")]


@pytest.mark.parametrize("preset", ["default", "authors"])
def test_what_stopped_or_misled_others_is_judged_right(preset):
    pairs = [(answer, gold) for _, answer, gold in WRONG + RIGHT]
    limits = Limits(cpu_seconds=1, wall_seconds=20, memory_mib=512)
    judged = judge_pairs(pairs, preset, limits=limits)
    expected = [False] * len(WRONG) + [True] * len(RIGHT)
    assert [each.correct for each in judged] == expected
    assert {each.verdict for each in judged[4:]} == {"judged"}  # only towers may take too long
