import time

import pandas as pd
import pytest

from headroom.grading.graders import BENCHMARKS, GRADERS, find_grader

EQUAL = {
    ("numeric", "default"): [
        ("1,234", "1234", True),
        ("$ 12.50", "12.5", True),
        ("3/4", "0.75", True),
        (r"25\%", "25", True),
        ("007", "7", True),
        ("1000001", "1000000", False),
        ("3.1415926", "3.14159265", True),
        ("3.14", "3.14159265", False),
        ("-5", "5", False),
        ("five", "5", False),
        ("1/0", "1", False),
        ("nan", "nan", False),
        ("1e999", "1e999", False),
        ("9" * 100_000, "9", False),
    ],
    ("gsm8k", "authors"): [  # within a ten-thousandth
        *((answer, "18", True) for answer in ("18.00009", "17.9999", "1,8")),
        *((answer, "18", False) for answer in ("18.0002", "no")),
    ],
    ("exact", "default"): [
        ("  New\n York", "new york", True),
        ("New York City", "new york", False),
    ],
}


@pytest.mark.parametrize("rules", EQUAL)
def test_answers_are_compared_by_their_rules(rules):
    equal = find_grader(*rules).equal
    assert [(*case[:2], equal(*case[:2])) for case in EQUAL[rules]] == EQUAL[rules]


FOUND = {
    ("math", "default"): [
        (r"\boxed{3} or rather \boxed{4}", "4"),
        (r"\boxed{ 7 }", "7"),
        (r"\boxed {17}.", "17"),
        (r"our answer is \boxed 9.", "9"),
        (r"\fbox{B}", "B"),
        (r"\boxed{x = \boxed{6}}", "6"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ 1 \right.}", r"\left\{ 1 \right."),
        ("\\boxed{1\n+\n2}", "1\n+\n2"),
        (r"\boxed{}", None),
        (r"\boxed{\frac{1}{2}", None),
        (r"\boxed{3} and then \boxed{4", None),
        (r"\boxed", None),
        (r"\boxed}", "}"),
        (r"\boxedness{3}", None),
        ("no box, only 3", None),
    ],
    ("math", "authors"): [
        (r"\boxed{3} or rather \boxed{4}", "3"),
        (r"\boxed{}", ""),
        (r"\boxed{5 and on", "5 and on"),
        (r"\boxed{\frac{1}{2}", r"\frac{1}{2"),
        (r"\boxed 9", None),
        (r"\fbox{9}", None),
        (r"\boxed{\{1, 2\}} so", r"\{1, 2\}"),
        (r"\boxed{x \} y} z", "x \\"),
    ],
    ("gsm8k", "default"): [
        (r"2 + 3 makes \boxed{5}, not 6", "5"),
        ("she has 1,234 eggs and 7 hens", "7"),
        ("it costs $1,234,567.50.", "1234567.50"),
        ("that is -5", "-5"),
        ("so 16-9", "9"),
        ("a third is .5", ".5"),
        (r"\boxed{ but the answer is 8", "8"),
        ("#### 2,125", "2125"),
        ("none at all", None),
    ],
    ("gsm8k", "authors"): [
        ("The answer is: 42. I used 3 steps.", "3"),
        ("first 3, then 1,018", "1018"),
        ("The answer is: $-7,000", "-7000"),
        ("The answer is: unknown, between 3 and 4", "4"),
        (r"\boxed{5} so 6", "6"),
    ],
    ("choice", "default"): [
        (r"So it is \boxed{C}.", "C"),
        (r"\boxed{\text{(b)}}", "B"),
        ("(A) is tempting, but the answer is (D).", "D"),
        ("Option B would need more. Answer: e", "E"),
        ("Neither (A) nor (B), hence (C)", "C"),
        (" b. ", "B"),
        ("I do not know", None),
        (r"\boxed{12}", None),
    ],
    ("exact", "default"): [
        ("thinking\n\n  Paris \n", "Paris"),
        (r"\boxed{Rome} or so", "Rome"),
        (" \n ", None),
    ],
}


@pytest.mark.parametrize("rules", FOUND)
def test_the_final_answer_is_found(rules):
    extract = find_grader(*rules).extract
    assert [(text, extract(text)) for text, _ in FOUND[rules]] == FOUND[rules]


@pytest.mark.parametrize("unit", [*"{}1-.\\\x00", r"\boxed{", r"\boxed ", "1,", "answer is: "])
def test_time_is_linear_in_the_length_of_hostile_text(unit):
    text = unit * (1_000_000 // len(unit))
    for grader in (*BENCHMARKS.values(), *GRADERS.values()):
        start = time.process_time()
        grader.extract(text)
        # A quadratic rule would need minutes for a megabyte.
        assert time.process_time() - start < 3


def test_answers_of_all_gold_solutions_of_math_and_gsm8k_are_found(headroom_data):
    def read(*names):
        parts = [pd.read_json(headroom_data / name, lines=True, dtype=False) for name in names]
        return pd.concat(parts, ignore_index=True)

    rows = read("math_train.jsonl.gz", "math500.jsonl")
    assert len(rows) == 12_500
    found = rows["solution"].map(find_grader("math", "default").extract)
    differing = rows[found != rows["answer"]]
    # An empty box holds no answer.
    assert differing["answer"].tolist() == ["", ""] and found[differing.index].isna().all()
    assert differing["unique_id"].str.fullmatch(r"train/number_theory/711[57]\.json").all()
    solutions = read("gsm8k_train.jsonl.gz", "gsm8k_test.jsonl")["answer"]
    assert len(solutions) == 8_792
    golds = solutions.str.rpartition("#### ")[2].str.replace(",", "")
    for preset in ("default", "authors"):
        assert solutions.map(find_grader("gsm8k", preset).extract).equals(golds)
