r"""The notations of models: numbers, units, letters, and where in a text an answer stands.

Each table holds right and wrong answers: what makes a right answer right must make no wrong one
right.
"""

import re
from pathlib import Path

import pandas as pd
import pytest

from headsweep.benchmarks.golds import should_be
from headsweep.cli.compare_answers import compare
from headsweep.errors import GradingError, TableError, quoted
from headsweep.grading.extraction import last_number, last_ratio
from headsweep.grading.graders import chosen_letter, find_grader, hendrycks
from headsweep.grading.judge import equal
from headsweep.grading.notation import unwrapped
from headsweep.grading.numerals import final_number, number
from headsweep.grading.verdicts import grade

SWEEP = Path(__file__).parents[2] / "workflow/rules/sweep.smk"

NUMERIC_RIGHT = [
    *((r"\frac{1}{2}", "0.5"), (r"\frac{10}{2}", "5"), (r"\frac12", "1/2"), (r"\dfrac34", "0.75")),
    *((r"-\frac{1}{2}", "-0.5"), (r"\frac{-1}{2}", "-0.5"), ("3 1/2", "3.5"), ("-3 1/2", "-3.5")),
    *((r"3\frac{1}{2}", "3.5"), ("15 / 5", "3"), (r"0.\overline{3}", "1/3")),
    *((r"0.1\overline{6}", "1/6"), ("-2.5", "\u22122.5"), ("\u22125", "-5"), ("-$5", "-5")),
    *(("1,000", "1000"), ("12{,}000", "12000"), (r"10,\!000", "10000"), (r"1\,234", "1234")),
    *(("1 234 567", "1234567"), ("1,000.5", "1000.5"), ("5.", "5"), ("5,", "5"), (".5", "0.5")),
    *((r"5\text{ apples}", "5"), ("5 apples", "5"), ("5 cm", "5"), (r"5\text{ cm}^2", "5")),
    *((r"5\text{ m}", "5"), ("5 miles per hour", "5"), ("$5$ dollars", "5"), (r"\text{5}", "5")),
    *(("x=5", "5"), ("x = 5 cm", "5"), (r"\text{x = 5}", "5"), (r"\mathbf{5}", "5")),
    *((r"60^\circ", "60"), (r"60^{\circ}", "60"), ("60\u00b0", "60"), (r"\$5", "5")),
    *((r"\color{red}{5}", "5"), (r"\underline{5}", "5"), ("1e5", "100000"), ("1/3", "0.3333333")),
    *(
        ("6 inches", "6"),
        ("6inches", "6"),
        ("352 lbs", "352"),
        (r"28 \text{ minutes}", "28"),
        ("5cm", "5"),
    ),
    *((r"18 \text{ cents}", "18"), (r"18\text{cents}", "18"), ("5kg of rice", "5")),
    *((r"1\,234 cm", "1234"), ("1\u202f234", "1234"), ("5 arcs", "5"), ("5 arcseconds", "5")),
    *((r"3 \times 10^8", "3e8"), (r"3.0\times10^{8}\text{ m/s}", "300000000"), ("3x10^8", "3e8")),
    *((r"-1.5 \cdot 10^{-3}", "-0.0015"), ("2,000 \u00d7 10\u2074", "2e7"), ("3*10^2", "300")),
    *(("6.6 \u00d7 10\u207b\u00b3\u2074", "6.6e-34"), (r"\frac{3 \times 10^2}{4}", "75")),
    *(("10^8", "100000000"), ("10^{-2}", "0.01")),
    *(("3,5", "3,5"), ("1,23,456", "1,23,456"), (r"\text{5 PM}", "5 pm"), ("100 200", "100 200")),
]
NUMERIC_WRONG = [
    *(("1,2", "12"), ("1 2", "12"), ("12,34", "1234"), ("1,0000", "10000"), (r"1\,2", "12")),
    *(("5 and 6", "56"), ("5 and 6", "5"), (r"5\text{ and }6", "5"), ("5 and a half", "5")),
    *(("5 million", "5"), ("5 dozen", "5"), ("5 hundred", "5"), ("3 quarters", "3")),
    *(("5 below zero", "5"), ("5 pi", "5"), (r"5\pi", "5"), ("5x", "5"), ("5s", "5"), ("5i", "5")),
    *(("3s^2", "3"), ("5 x", "5"), ("5e", "5"), ("5!", "5"), ("2^3", "23"), ("60^2", "60")),
    *(("3 1/2", "15.5"), ("3 1/2", "0.5"), ("3 5/2", "5.5"), ("3/4", "4"), (r"\frac{1}{0}", "1")),
    *(("11_2", "112"), ("5%3", "53"), (r"60^\circ 30", "6030"), ("12:30", "1230"), ("2 3", "6")),
    *(("0.3...", "0.3"), ("1/3", "0.333"), ("\u22125", "5"), ("y = -2", "2"), ("", "5")),
    *(("5 cm", "5 m"), ("1e9999", "1"), ("6 apples", "5"), ("5 seventy", "5"), ("5 thirteen", "5")),
    *(("6xyz", "6"), ("6abc", "6"), ("3 sixteenths", "3"), ("5 lakhs", "5")),
    *(("3 elevenths", "3"), ("1 twentieth", "1"), ("5 millionths", "5"), ("4 quadrillion", "4")),
    *(("45 arctan", "45"), ("45 sinh", "45"), ("2 cis", "2"), ("5 crores", "5"), ("5 PM", "5")),
    *((r"3 \text{ sixteenths}", "3"), ("100 200", "100200"), ("100 200", "100"), ("3,5", "35")),
    *((r"3 \times 10^8", "8"), (r"3 \times 10^8", "3"), (r"1/2 \times 10^2", "0.005")),
    *((r"2^3 \times 10^2", "300"), (r"3 \times 10^{1000}", "3"), ("3x10", "30"), ("10^8", "8")),
    *(("3,5", "5,3"), ("3,5", "3"), ("1\\,234\\,5", "12345"), ("5 AM", "5 PM"), ("1~234", "1234")),
]
NUMERIC_PROSE = [
    *(("The answer is 3/4.", "0.75", True), ("The answer is 3/4.", "4", False)),
    *(("#### 3/4", "4", False), ("The answer is \u22125.", "-5", True)),
    *(("The answer is \u22125.", "5", False), ("so 5\u22123 = 2", "2", True)),
    *((r"It is $\frac{3}{4}$", "4", False), (r"It is $\frac{3}{4}$", "0.75", True)),
    *(("1,000/4 each", "250", True), ("that is 3 / 4", "4", False), ("3-1", "1", True)),
    *(("so 2 1/2 cups", "2.5", True), ("so 2 1/2 cups", "0.5", False), ("-2 1/2", "-2.5", True)),
    *((r"so $2\frac{1}{2}$", "2.5", True), (r"so 2 \frac{1}{2}", "0.5", False)),
    *((r"$\frac{-3}{4}$", "-0.75", True), (r"$\frac{-3}{4}$", "4", False)),
    *((r"$\frac{3}{-4}$", "-0.75", True), (r"$\frac12$", "0.5", True), (r"$\frac12$", "12", False)),
    *(("of 12 6/3", "2", True), ("1,000 1/2 km", "1000.5", True), ("0.5 1/2", "0.5", True)),
    *(("x^2 1/2", "0.5", True), (r"5 \times 3", "3", True), (r"it is 5 \cdot", "5", True)),
]


def right(family, text, gold):
    grader = find_grader(family, "default")
    answer = grader.extract(text)
    return answer is not None and grader.equal(answer, gold)


def test_numbers_are_read_in_the_notations_of_models():
    found = [(pair, right("numeric", rf"\boxed{{{pair[0]}}}", pair[1])) for pair in NUMERIC_RIGHT]
    assert [pair for pair, is_right in found if not is_right] == []


def test_what_is_no_number_or_another_one_is_wrong():
    found = [(pair, right("numeric", rf"\boxed{{{pair[0]}}}", pair[1])) for pair in NUMERIC_WRONG]
    assert [pair for pair, is_right in found if is_right] == []


def test_the_last_number_of_a_text_may_be_a_ratio_or_have_a_true_minus_sign():
    found = [(text, gold, right("numeric", text, gold)) for text, gold, _ in NUMERIC_PROSE]
    assert found == NUMERIC_PROSE
    assert last_ratio("of 1,000/4") == "1000/4"
    assert last_ratio("a speed of 3.0e8 m/s.") == "3.0e8"
    assert last_ratio("a mass of -2.5E\u22123 kg") == "-2.5E-3"
    assert last_ratio("1e6x is no power") == "6"
    assert last_ratio(r"So light covers $3 \times 10^{8}$ metres.") == "3e8"
    assert last_ratio(r"It holds 5 \times 10^2 = 500 books") == "500"
    powers = ("10^8", "10^{8}", "$10^8$", "10**8", r"1 \cdot 10^8", "1\u00b710^8")
    assert {last_ratio(f"The answer is {power}.") for power in powers} == {"1e8"}
    for thousands in ("1{,}000", r"1\,000", r"1,\!000", "1,000"):
        assert last_ratio(f"It costs ${thousands}$ dollars.") == "1000"
    assert last_number("of 1,000/4") == "4"  # as SPRINT's authors have it


def test_answers_vote_with_those_of_their_value_and_lists_with_none():
    form = find_grader("numeric", "default").form
    assert {form(answer) for answer in ("5", "5 apples", "x = 5", r"\frac{10}{2}", "5.")} == {"5"}
    apart = ["12", "1 2", "1,2", "5", r"5 \text{ and } 6", "5 million", "3 1/2", "31/2", "3s^2"]
    apart += ["6xyz", "6abc", "6", "5 AM", "5 PM", r"5 \text{ AM}", "3 sixteenths", "3", "100 200"]
    apart += ["100200", "45 arctan", "45", "5 lakhs", "5 crores"]
    assert len({form(answer) for answer in apart}) == len(apart)
    assert hendrycks("1 2") == "12"


CHOICES = [
    (r"Option A is wrong because of units. So \boxed{B. 5 apples}", "B"),
    *((r"\boxed{B) 42}", "B"), (r"\boxed{\mathrm{B}}", "B"), (r"\boxed{\mathbf{B}}", "B")),
    *((r"\boxed{\textbf{(B)}}", "B"), (r"\boxed{\textbf{(B)}\ 5}", "B"), (r"\boxed{(B) 42}", "B")),
    *((r"\boxed{\text{(B) } 5}", "B"), (r"\boxed{B: five}", "B"), (r"\boxed{B.}", "B")),
    *((r"\boxed{\text{Option B}}", "B"), (r"\boxed{B. A triangle}", "B"), (r"\boxed{b}", "B")),
    *((r"Option A it is: \boxed{42}", None), (r"\boxed{A, B}", None), (r"\boxed{A) and B)}", None)),
    *((r"\boxed{(A), (B)}", None), (r"\boxed{Bob}", None), (r"\boxed{B 5}", None)),
    *((r"\boxed{x=5}", None), (r"\boxed{A.M.}", None), ("The answer is therefore (D)", "D")),
    *(("The correct option is therefore C.", "C"), ("The answer should be: **B**", "B")),
    ("The answer must be C because option A is wrong", "C"),
    ("The answer must be C because option A is not possible", "C"),
    ("Option A can be eliminated. The answer is so obvious.", None),
    *(("Both (A) and (B) fit", None), ("(A) / (C)", None), ("I left (A) or (B): it is (C)", "C")),
    *(("The answer is A or B", None), ("The answer is A, B, and C.", None), ("Answer: A/B", None)),
    *(("The answer is A/B.", None), ("Of option A and B, the answer is B", "B")),
    *(("The answer is B, A is wrong", "B"), ("The answer is B and A is wrong", "B")),
    *(("The answer is C, A and B are wrong", "C"), ("The answer is B, and I am sure", "B")),
    ("The correct answer is B. Option A describes mitosis, while option C refers to meiosis.", "B"),
    ("The answer is (B). Choice D would require more energy.", "B"),
    ("**Answer: B**\n\nOption A only applies to gases.", "B"),
    *(("So the answer is I believe (C).", "C"), ("The answer is: I'd say (C)", "C")),
    ("The answer is A. No: option C is correct, and option D is larger.", "C"),
    ("The right choice is D. Option A is smaller.", "D"),
    *(("The answer is I.", "I"), ("Option A is small. Option B is large.", "B")),
]


def test_a_box_alone_decides_the_letter_and_what_is_called_wrong_is_not_stated():
    assert [(text, chosen_letter(text)) for text, _ in CHOICES] == CHOICES


@pytest.mark.parametrize(
    ("text", "gold", "is_right"),
    [
        (r"\boxed{\text{Paris}}", "Paris", True),
        ("Paris", r"\text{paris}", True),
        (r"\boxed{\textbf{New  York}}", "new york", True),
        (r"\boxed{\text{Paris}, \text{Texas}}", "Paris", False),
        (r"\boxed{\text{A} or \text{B}}", r"A} or \text{B", False),
    ],
)
def test_a_text_may_stand_in_a_macro(text, gold, is_right):
    assert right("exact", text, gold) == is_right


MATH_RIGHT = [
    *(("5.", "5"), ("5,", "5"), ("5;", "5"), ("5\\\\", "5"), ("x+1.", "x+1"), ("(1,2).", "(1,2)")),
    *((r"\text{Evelyn}.", r"\text{Evelyn}"), ("x=5.", "5"), (r"2\sqrt{2}\,", r"2\sqrt{2}")),
    *((r"\frac\pi4", r"\frac{\pi}{4}"), (r"\frac \pi {4}", r"\frac{\pi}{4}")),
    *((r"\frac2\pi", r"\frac{2}{\pi}"), (r"1\,234\,567", "1234567"), ("1 234 567", "1234567")),
    *((r"x=1\,234", "1234"), (r"\text{x = 5}", "5"), (r"\text{5 apples}", "5")),
    *((r"\textbf{(B)}\ 5", "5"), (r"\text{(B)} \frac{x}{2}", r"\frac{x}{2}"), ("5 dollars", "5")),
    *((r"\color{red}{5}", "5"), (r"\textcolor{red}{x+1}", "x+1"), (r"\underline{x}", "x")),
    *((r"0.\overline{3}", r"\frac{1}{3}"), ("3 1/2", r"\frac{7}{2}"), ("-3 1/2", "-3.5")),
    *((r"\varnothing", r"\emptyset"), (r"\emptyset", r"\varnothing"), ("60\u00b0", "60")),
    *(("52_8", "52_{8}"), ("52_8.", "52_8"), ("52", "52_8")),
    *(("100 200", "100 200"), ("1  2.", "1 2"), (r"1\,234 \text{ cm}", "1234")),
]
MATH_WRONG = [
    *(("5.", "6"), ("-5.", "5"), ("0.3...", "0.3"), ("1,2,3,...", "1,2,3"), ("5!", "5")),
    *((r"\frac\pi4", r"\frac{\pi}{8}"), (r"\frac2\pi", r"\frac{\pi}{2}"), (r"1\,2", "12")),
    *((r"1\,234\,567", "802"), ("1 234", "235"), ("1 234", "1"), ("3 1/2", "2"), ("3 1/2", "31/2")),
    *((r"\text{x = 5}", "6"), ("y = 5", "x = 5"), (r"\textbf{(B)}\ 5", "6"), ("5 dollars", "6")),
    *((r"\textbf{(B)}\ 5", "B"), (r"\text{(A)} \text{ and } \text{(B)}", r"\text{(B)}")),
    *((r"\text{(A)}, \text{(B)}", r"\text{(B)}"), (r"\color{red}{5}", "6"), ("5 million", "5")),
    *((r"\underline{5}", "6"), (r"0.\overline{3}", "0.3"), (r"0.\overline{3}", "3"), ("3s^2", "3")),
    *((r"\varnothing", "0"), ("52_9", "52_8"), ("1011_2", "1011_{3}"), ("52_{10}", "52_8")),
    *(("5 xyz", "5 abc"), ("5 theta", "5"), (r"5\theta", "5"), ("\u22125", "5")),
    *(("6xyz", "6"), ("3 sixteenths", "3"), ("4 quadrillion", "4"), ("100 200", "100200")),
    *(("100 200", "300"), ("1 2", "3"), (r"1\ 2", "3"), ("3", "1 2"), ("1 2", "2 1")),
]


def test_answers_are_right_in_the_notations_of_models():
    assert [pair for pair in MATH_RIGHT if not equal(*pair)] == []


def test_no_wrong_answer_is_made_right_by_its_notation():
    assert [pair for pair in MATH_WRONG if equal(*pair)] == []


def test_what_has_a_meaning_stays():
    assert unwrapped(r"\text{a} + \text{b}") == r"\text{a} + \text{b}"
    assert number("9" * 401) is final_number("9" * 401) is None


def test_rules_that_grade_run_again_where_the_graders_change():
    """A library's code is no part of a rule; what Snakemake compares are the rule's params."""
    rules = re.split(r"^rule ", SWEEP.read_text(encoding="utf-8"), flags=re.MULTILINE)
    grading = [rule for rule in rules if re.search("job (?:re)?grade |job compare-prompts", rule)]
    assert len(grading) == 3
    assert all("graders=choices.GRADERS_VERSION" in rule for rule in grading)


EXTRACTED = [
    ("choice", "ANSWER: `A`", "A"),
    ("choice", "I think (**A**) fits", "A"),
    ("choice", "B is correct.", "B"),
    ("choice", "(B) is the right option, as A lacks mass", "B"),
    ("choice", "The answer would be B", "B"),
    ("choice", "The answer\uff1aC", "C"),
    ("choice", "\u7b54 \uff08D\uff09", "D"),
    ("choice", "<answer>C</answer>", "C"),
    ("choice", "(A) looks good. <answer> (C) </answer>", "C"),
    ("choice", "The answer is not A, it is B.", "B"),
    ("choice", "The answer is not A but B.", "B"),
    ("choice", "The answer is not A.", None),
    ("choice", "It is B because A is heavy.", "B"),
    ("choice", "<think>The answer is A.</think>C", "C"),
    ("choice", "<think>The answer is A.</think>", "A"),
    ("choice", "I is correct. It is A prime.", "I"),
    ("numeric", "#### 5\nNote: 7 were left.", "5"),
    ("numeric", "The answer is 5. This took 3 steps.", "5"),
    ("numeric", "The answer is 5 apples, because 2 + 3 = 5 and 1 is 1", "5"),
    ("numeric", "The final answer is: **1,234**. I used 2 rules.", "1234"),
    ("numeric", "The answer to question 3 is 12", "12"),
    ("numeric", "The answer is 2 + 3 = 5. Check 9.", "5"),
    ("numeric", "To answer, we need 7: so 3 left", "3"),
    ("numeric", "<think>The answer is 9. #### 9</think>The answer is 4.", "4"),
    ("numeric", "So it is $2^8$.", "2^8"),
    ("numeric", "It is 2\\sqrt{2}.", "2\\sqrt{2}"),
    ("numeric", "The answer is 2^{10}, or so", "2^{10}"),
    ("gsm8k", "<answer>72</answer> as 9 eights", "72"),
    ("math", "<think>\\boxed{3}</think>It is \\boxed{4}", "4"),
    ("math", "<think>\\boxed{3}</think>It is that.", "3"),
]


@pytest.mark.parametrize(("family", "text", "answer"), EXTRACTED)
def test_the_final_answer_is_where_a_text_says_so(family, text, answer):
    assert find_grader(family, "default").extract(text) == answer


def test_texts_are_equal_without_a_stop_and_in_any_form_of_accents():
    assert right("exact", "So:\nParis.", "Paris")
    assert right("exact", "Beyonce\u0301", "Beyonc\u00e9")
    assert right("exact", "Paris", "Paris.")
    assert not right("exact", "Paris..", "Paris")
    assert not right("exact", "Beyonce", "Beyonc\u00e9")
    assert right("choice", "The answer is D", "(D)")
    assert not right("choice", "The answer is C", "(D)")
    assert right("numeric", "The answer is 2^8.", "256")


GOLDS = [
    *(("choice", "2"), ("choice", "Paris"), ("choice", "A or B"), ("numeric", r"\boxed{4}")),
    *(("numeric", "4 apples"), ("numeric", "four"), ("numeric", "['4']"), ("math", "['4', '5']")),
    *(("gsm8k", "3 + 4 = 7\n#### 7"), ("math", " "), ("exact", "")),
]


@pytest.mark.parametrize(("family", "gold"), GOLDS)
def test_gold_answers_that_nothing_can_match_are_refused_before_grading(family, gold, tmp_path):
    wanted = should_be(gold, family)
    with pytest.raises(GradingError, match=re.escape(f", not {wanted}; correct it")):
        grade(["x", "y"], ["A" if family == "choice" else "1", gold], family)
    table = pd.DataFrame({"id": [1, 2], "answer": ["x", "y"], "gold": ["B", gold]})
    if gold.strip() and family != "exact":
        table["gold"] = gold
        with pytest.raises(
            TableError, match=re.escape(f"row 1: gold is {quoted(gold)}, not {wanted}")
        ):
            compare({"one": table, "two": table}, grader=family)
