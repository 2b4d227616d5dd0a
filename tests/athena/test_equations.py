"""Equations: read, evaluated, written."""

import math
from random import Random

import pytest

from headroom.athena.equations import Equation, evaluate, infix, parse, parse_prefix
from headroom.errors import BenchmarkError


def random_text(rng: Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return str(rng.randint(2, 9)) if rng.random() < 0.5 else f"{rng.randint(11, 99) / 10}"
    body = rng.choice("+-*/").join(random_text(rng, depth - 1) for _ in range(2))
    return f"({body})" if rng.random() < 0.6 else body


def value_of(equation: Equation) -> float:
    try:
        return evaluate(equation)
    except BenchmarkError:
        return math.nan


@pytest.mark.parametrize("seed", range(40))
def test_values_are_those_of_python(seed):
    text = random_text(Random(seed), 4)
    try:
        expected = eval(text)
    except ZeroDivisionError:
        pytest.skip("no value")
    assert evaluate(parse(text)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_writing_keeps_the_value_and_every_bracket_is_needed(seed):
    equation = parse(random_text(Random(seed), 4))
    text, value = infix(equation), value_of(equation)
    assert value_of(parse(text)) == pytest.approx(value, nan_ok=True)
    if math.isnan(value):
        return
    for place in (place for place, letter in enumerate(text) if letter == "("):
        depth = 0
        for end in range(place, len(text)):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            if depth == 0:
                break
        without = text[:place] + text[place + 1 : end] + text[end + 1 :]
        assert value_of(parse(without)) != pytest.approx(value)


NOTATIONS = {
    "x=(24+24*150%)/(1-(1/6)-(1/6)*150%-(1/4))": 180,
    "x=3.14*[(3+2)^2-3^2]": 50.24,
    "x=1-(-(1/2))": 1.5,
    "{2+3}*[4-(1+1)]": 10,
    "2^3^2": 512,
    "8/4/2": 1,
    "2*PI": 6.28,
    "007+1.50-0.5%": 8.495,
    "((4)/(7))": 4 / 7,  # answers as Math23k prints them
    "7((2)/(3))": 7 + 2 / 3,
    "-410.0": -410,
}


@pytest.mark.parametrize("text", NOTATIONS)
def test_notations_of_the_datasets(text):
    assert evaluate(parse(text)) == pytest.approx(NOTATIONS[text])


@pytest.mark.parametrize(
    ("prefix", "same"),
    [("- n0 * n1 n2", "n0 - n1 * n2"), ("/ + n0 n1 n2", "( n0 + n1 ) / n2"), ("n1", "n1")],
)
def test_prefix_and_infix_say_the_same(prefix, same):
    assert parse_prefix(prefix) == parse(same)


UNREADABLE = "^equation .* cannot be parsed; correct the row$"
BROKEN = ["x=80千米/小时", "(1/6)0", "2+", "", "n0 n1", "__import__('os')", "1" * 2000, "(" * 300]
BROKEN_PREFIX = ["+ n0", "+ n0 n1 n2", "n0 + n1"]


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        *((parse, text, UNREADABLE) for text in BROKEN),
        *((parse_prefix, text, UNREADABLE) for text in BROKEN_PREFIX),
        *(
            (parse, text, "no finite value")
            for text in ("1/(2-2)", "(1-2)^0.5", "9^9^9^9", "1/0*3")
        ),
        (parse, "n0 + n3", r"n0\+n3 uses n3, but the text has 2 numbers"),
    ],
)
def test_what_cannot_be_read_or_has_no_value_is_one_clear_line(read, text, message):
    with pytest.raises(BenchmarkError, match=message):
        evaluate(read(text), (1.0, 2.0))
