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
def test_values_are_those_of_python_and_every_bracket_that_is_written_is_needed(seed):
    read = random_text(Random(seed), 4)
    equation = parse(read)
    text, value = infix(equation), value_of(equation)
    assert value_of(parse(text)) == pytest.approx(value, nan_ok=True)
    try:
        assert value == pytest.approx(eval(read), rel=1e-12)
    except ZeroDivisionError:
        assert math.isnan(value)
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


PREFIXES = {"- n0 * n1 n2": "n0 - n1 * n2", "/ + n0 n1 n2": "( n0 + n1 ) / n2", "n1": "n1"}


def test_notations_of_the_datasets():
    assert {text: evaluate(parse(text)) for text in NOTATIONS} == pytest.approx(NOTATIONS)
    assert [*map(parse_prefix, PREFIXES)] == [*map(parse, PREFIXES.values())]


UNREADABLE = "^equation .* cannot be parsed; correct the row$"
BROKEN = ["x=80千米/小时", "(1/6)0", "2+", "", "n0 n1", "__import__('os')", "1" * 2000, "(" * 300]
BROKEN_PREFIX = ["+ n0", "+ n0 n1 n2", "n0 + n1"]


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        *((parse, text, UNREADABLE) for text in BROKEN),
        *((parse_prefix, text, UNREADABLE) for text in BROKEN_PREFIX),
        *((parse, t, "no finite value") for t in ("1/(2-2)", "(1-2)^0.5", "9^9^9^9", "1/0*3")),
        (parse, "n0 + n3", r"n0\+n3 uses n3, but the text has 2 numbers"),
    ],
)
def test_what_cannot_be_read_or_has_no_value_is_one_clear_line(read, text, message):
    with pytest.raises(BenchmarkError, match=message):
        evaluate(read(text), (1.0, 2.0))
