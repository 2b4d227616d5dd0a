"""What meets hostile text takes time linear in its length: functions and patterns of grading."""

import itertools
import os
import re
import time
from functools import partial

import pytest

from headsweep import text
from headsweep.benchmarks.golds import should_be
from headsweep.errors import HeadsweepError
from headsweep.grading import (
    extraction,
    graders,
    judge,
    letters,
    notation,
    numerals,
    prm800k_judge,
)
from headsweep.grading.graders import BENCHMARKS, GRADERS

LENGTHS = (400, 1_600, 6_400, 25_600, 102_400)  # the last one at night
UNITS = [
    *" 1{}-,.x\n\\$/(A^_",
    *(r"\boxed{", r"\boxed ", r"\text{", r"\frac", r"\sqrt", r"^\circ", "answer ", "answer is "),
    *(r"\color{", r"\text{a ", r"\frac{1", "1 000 ", "a b", r"1\,000", "answer is A "),
    *("$1", "<answer>", "####", "not A ", "it is ", "(A)", r"\sin ", r"\left(", "x_", "|"),
    *("1,", "1,000,", "1/", "--", "- ", "^ ", "{.", "degree ", " or "),
]
ENDS = (("", ""), ("The answer", "?"), (r"\text{", "x"), (r"\boxed{", "}"))
TEXTS = [*itertools.product(UNITS, ENDS)]
if not os.environ.get("HEADSWEEP_NIGHTLY"):  # each unit with one or two of these
    TEXTS = TEXTS[:: len(ENDS) + 1] + TEXTS[len(ENDS) // 2 :: len(ENDS) + 1]
    LENGTHS = LENGTHS[:-1]


def find_all(pattern, hostile):
    for _ in pattern.finditer(hostile):
        pass


FUNCTIONS = {
    "canonical": graders.canonical,
    "final number": numerals.final_number,
    "gold": partial(should_be, grader="numeric"),
    "hendrycks": graders.hendrycks,
    "shortcut": partial(graders.shortcut, gold="12"),
    "judge": partial(judge.equal, gold="x=12"),
    "gradable": partial(extraction.gradable, stop_reason="length", preset="default"),
    "normalise": prm800k_judge._normalise,
    "elements": prm800k_judge._elements,
    "error": HeadsweepError,
    "visible": text.visible,
    "plain": text.plain,
}
for name, grader in (GRADERS | BENCHMARKS).items():
    FUNCTIONS[f"extract, {name}"] = grader.extract
    if grader.equal:
        FUNCTIONS[f"equal, {name}"] = partial(grader.equal, gold="12")
for module in (extraction, graders, letters, notation, prm800k_judge):  # those of lexer: `judge`
    for name, value in vars(module).items():
        if isinstance(value, re.Pattern):
            FUNCTIONS[f"{module.__name__}.{name}"] = partial(find_all, value)


def seconds(function, hostile):
    begin = time.process_time()
    function(hostile)
    return time.process_time() - begin


def too_long(function, unit, start="", end=""):
    """Return the length at which a text takes much more than four times as long as a quarter of it.

    A quadratic function takes 16 times as long. Where a text seems to take long, both are measured
    again, and the shortest of three times counts. The longest text is left out where even a cubic
    function, which takes 64 times as long as before, would be fast enough.
    """

    def hostile(length):
        return start + (unit * length)[:length] + end

    def least(length):
        return min(seconds(function, hostile(length)) for _ in range(3))

    before = None
    for length in LENGTHS:
        if length == LENGTHS[-1] and 64 * before <= 8 * before + 0.03:
            break
        took = seconds(function, hostile(length))
        if before is not None and took > 8 * before + 0.03:
            took = least(length)
            if took > 8 * least(length // 4) + 0.03:
                return length
        before = took
    return None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_time_grows_with_the_length_of_hostile_text_and_not_with_its_square(name):
    for unit, ends in TEXTS:
        assert too_long(FUNCTIONS[name], unit, *ends) is None, (unit, ends)


def test_the_measure_tells_a_quadratic_pattern_from_a_linear_one():
    assert too_long(re.compile(r"answer\s*\s*\(").search, " ", "answer") in LENGTHS
    assert too_long(re.compile(r"answer\s*+\s*+\(").search, " ", "answer") is None
