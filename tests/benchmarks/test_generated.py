"""Generated questions against answers worked out from their texts alone, by other means."""

import itertools
import re
from collections.abc import Callable
from fractions import Fraction

import pandas as pd
import pytest
import sympy

from headroom.benchmarks import generated, templates_gsm8k, templates_math
from headroom.errors import BenchmarkError

MATH_SUBJECTS = {
    "Algebra",
    "Counting & Probability",
    "Geometry",
    "Intermediate Algebra",
    "Number Theory",
    "Prealgebra",
    "Precalculus",
}


def value(latex: str) -> sympy.Expr:
    """Read the LaTeX that questions, solutions and answers are written in."""
    text = re.sub(r"\\frac\{(.*?)\}\{(.*?)\}", r"((\1)/(\2))", latex)
    text = re.sub(r"\\sqrt\{(.*?)\}", r"sqrt(\1)", text)
    text = text.replace(r"\cdot", "*").replace("^", "**").replace(r"\pi", "pi")
    text = re.sub(r"(?<=[\d)])(?=[a-z(])", "*", text)
    return sympy.sympify(re.sub(r"\bi\b", "I", text))


def is_number(latex: str) -> bool:
    return not re.search(r"[a-z,%]", re.sub(r"\\(cdot|frac|pi|sqrt)", "", latex))


def ints(texts: str) -> list[int]:
    return [int(text) for text in re.findall(r"-?\d+", texts)]


def solve_linear(left: str, right: str, name: str) -> int:
    (root,) = sympy.solve(value(left) - int(right), name)
    return root


def sum_and_difference(a: str, b: str, total: str, difference: str, wanted: str) -> int:
    ((x, y),) = (
        (x, y)
        for x, y in itertools.product(range(100), repeat=2)
        if x + y == int(total) and x - y == int(difference)
    )
    return {a: x, b: y, a + b: x * y}[wanted]


def one_colour(listed: str, colour: str) -> Fraction:
    bag = [name for count, name in re.findall(r"(\d+) (\w+)", listed) for _ in range(int(count))]
    return Fraction(sum(name == colour for name in bag), len(bag))


def choices(listed: str) -> int:
    return len(list(itertools.product(*map(range, ints(listed)))))


def pair_and_one(n: str, m: str) -> int:
    pairs = itertools.combinations(range(int(n)), 2)
    return len(list(itertools.product(pairs, range(int(m)))))


def cuboid(*sides_and_what: str) -> int:
    a, b, c = map(int, sides_and_what[:3])
    cells = set(itertools.product(range(a), range(b), range(c)))
    if sides_and_what[3] == "volume":
        return len(cells)
    steps = [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)]
    return sum((x + i, y + j, z + k) not in cells for x, y, z in cells for i, j, k in steps)


def rectangle(area: str, width: str) -> int:
    (length,) = (side for side in range(200) if side * int(width) == int(area))
    return length + int(width) + length + int(width)


def cylinder(radius: str, height: str, what: str) -> sympy.Expr:
    r, h = int(radius), int(height)
    return sympy.pi * (r**2 * h if what == "volume" else 2 * r**2 + 2 * r * h)


def squares_of_roots(polynomial: str) -> sympy.Expr:
    roots = sympy.roots(value(polynomial), sympy.Symbol("x"), multiple=True)
    return sympy.expand(sum(root**2 for root in roots))


def composition(f: str, g: str, at: str) -> sympy.Expr:
    return value(f).subs("x", value(g).subs("x", int(at)))


def greatest_divisor(a: str, b: str) -> int:
    return max(k for k in range(1, int(a) + 1) if int(a) % k == 0 and int(b) % k == 0)


def determinant(a: str, b: str, c: str, d: str) -> sympy.Expr:
    return sympy.Matrix([[int(a), int(b)], [int(c), int(d)]]).det()


N = r"(\d+)"
Oracle = Callable[..., object]
MATH: dict[str, Oracle] = {
    r"Solve \$(.*)=(.*)\$ for \$(.)\$\.": solve_linear,
    rf"If \$.\(x\)=(.*)\$, find \$.\({N}\)\$\.": lambda f, at: value(f).subs("x", int(at)),
    rf"If \$(.)\+(.)={N}\$ and \$.-.={N}\$, find \$(..?)\$\.": sum_and_difference,
    r"A bag has (.*) marbles\. What is the probability of drawing a (\w+) one\?": one_colour,
    r"In how many ways can you choose (.*)\?": lambda s: choices(re.sub("one of", "", s)),
    rf"In how many ways can 2 of {N} \w+ and 1 of {N} \w+ be chosen\?": pair_and_one,
    rf"A \w+ has length {N}, width {N} and height {N}\. Find its (.*)\.": cuboid,
    rf"A rectangular \w+ has area {N} and width {N}\. Find its perimeter\.": rectangle,
    rf"A \w+ has radius {N} and height {N}\. Find its (.*)\.": cylinder,
    r"Let \$.\$ and \$.\$ be the roots of \$(.*)\$\. Find .*": squares_of_roots,
    r"Compute \$(\(\d+\+\d+i\)\(.*i\))\$\.": lambda product: sympy.expand(value(product)),
    rf"If .*\(x\)=(.*)\$ and .*\(x\)=(.*)\$, find \$.\(.\({N}\)\)\$\.": composition,
    rf"Find the greatest common divisor of {N} and {N}\.": greatest_divisor,
    rf"What is the remainder when \$(.*)\$ is divided by {N}\?": lambda p, m: value(p) % int(m),
    rf"Find the units digit of \${N}\^\{{{N}\}}\$\.": lambda b, e: int(str(int(b) ** int(e))[-1]),
    r"Compute \$(\\frac.*)\$\.": value,
    rf"What is \${N}\\%\$ of {N}\?": lambda p, whole: Fraction(int(p) * int(whole), 100),
    r"Compute \$([^i]*cdot[^i]*)\$\.": value,
    r"Find the dot product of \$(.*)\$ and \$(.*)\$\.": lambda u, v: sympy.Matrix(ints(u)).dot(
        ints(v)
    ),
    r"Find \$\\begin\{vmatrix\}(.*)&(.*)\\\\(.*)&(.*)\\end\{vmatrix\}\$\.": determinant,
    r"Find the distance between \$(.*)\$ and \$(.*)\$\.": lambda p, q: sympy.Point(
        ints(p)
    ).distance(sympy.Point(ints(q))),
}
GSM8K: dict[str, Oracle] = {
    r"\w+ buys (\d+) \w+ for \$(\d+) each and (\d+) \w+ for \$(\d+) .* spend\?": (
        lambda a, b, c, d: len(range(a * b)) + len(range(c * d))
    ),
    r"\w+ buys (\d+) \w+ for \$(\d+) each and pays with \$(\d+)\. .* back\?": (
        lambda count, price, paid: paid - sum([price] * count)
    ),
    r"\w+ has (\d+) (?:\w+), gives (\d+) to \w+ and buys (\d+) bags of (\d+) .* now\?": (
        lambda start, given, bags, each: start - given + sum([each] * bags)
    ),
    r"\w+ has (\d+) \w+\. \w+ has (\d+) times as many\. .* together\?": (
        lambda own, times: own * (times + 1)
    ),
    r"\w+ makes (\d+) \w+ an hour for (\d+) hours and sells (\d+)\. .* left\?": (
        lambda rate, hours, sold: rate * hours - sold
    ),
    r"(\d+) boxes of (\d+) \w+ are shared equally by (\d+) children\. .* get\?": (
        lambda boxes, each, children: Fraction(boxes * each, children)
    ),
    r"\w+ has \$(\d+) and saves \$(\d+) a week\. .* for \$(\d+)\?": (
        lambda saved, weekly, price: next(
            weeks for weeks in itertools.count() if saved + weekly * weeks >= price
        )
    ),
}


@pytest.fixture(scope="module")
def math() -> pd.DataFrame:
    return generated.generate("generated_math", "test", 350, seed=3)


@pytest.fixture(scope="module")
def gsm8k() -> pd.DataFrame:
    return generated.generate("generated_gsm8k", "train", 210, seed=3)


def matching(oracles: dict[str, Oracle], question: str) -> tuple[str, re.Match[str]]:
    (found,) = (
        (pattern, match)
        for pattern in oracles
        if (match := re.fullmatch(pattern, question)) is not None
    )
    return found


def test_math_answers_equal_those_worked_out_from_the_text(math: pd.DataFrame) -> None:
    used = set()
    for row in math.itertuples():
        pattern, match = matching(MATH, row.question)
        expected = MATH[pattern](*match.groups())
        assert sympy.expand(value(row.answer) - sympy.sympify(expected)) == 0, row.question
        used.add(pattern)
    assert used == set(MATH)
    assert len(used) == sum(map(len, templates_math.SUBJECTS.values()))


def test_gsm8k_answers_equal_those_worked_out_from_the_text(gsm8k: pd.DataFrame) -> None:
    used = set()
    for row in gsm8k.itertuples():
        pattern, match = matching(GSM8K, row.question)
        assert int(row.answer) == GSM8K[pattern](*map(int, match.groups())), row.question
        used.add(pattern)
    assert used == set(GSM8K)
    assert len(used) == len(templates_gsm8k.TEMPLATES)


def test_every_equation_of_a_solution_holds(math: pd.DataFrame, gsm8k: pd.DataFrame) -> None:
    checked = 0
    for solution in [*math.solution, *gsm8k.solution]:
        for formula in re.findall(r"\$(.*?)\$", re.sub(r"\\boxed\{(.*)\}", r"\1", solution)):
            values = [value(side) for side in formula.split("=") if is_number(side)]
            assert all(sympy.expand(v - values[0]) == 0 for v in values), solution
            checked += len(values) > 1
    assert checked > 560


def test_answers_are_in_lowest_terms_and_stand_in_the_last_box(
    math: pd.DataFrame, gsm8k: pd.DataFrame
) -> None:
    for row in itertools.chain(math.itertuples(), gsm8k.itertuples()):
        assert re.search(rf"\\boxed\{{{re.escape(row.answer)}\}}\$[^$]*\.$", row.solution)
        for fraction in re.findall(r"\\frac\{(\d+)\}\{(\d+)\}", row.answer):
            assert Fraction(*map(int, fraction)).denominator == int(fraction[1]) > 1


def test_subjects_and_levels_take_turns(math: pd.DataFrame) -> None:
    cells = math.groupby(["subject", "level"]).size()
    assert set(cells.index.get_level_values("subject")) == MATH_SUBJECTS
    assert set(cells.index.get_level_values("level")) == {1, 2, 3, 4, 5}
    assert set(cells) == {350 // 35}


def test_growing_n_keeps_earlier_questions(gsm8k: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(
        generated.generate("generated_gsm8k", "train", 17, seed=3), gsm8k.head(17)
    )


@pytest.mark.parametrize("benchmark", ["generated_math", "generated_gsm8k"])
def test_texts_are_distinct_inside_and_across_splits(benchmark: generated.Benchmark) -> None:
    test = generated.generate(benchmark, "test", 700, seed=0)
    train = generated.generate(benchmark, "train", 600, seed=1)
    assert len({*test.question, *train.question}) == 1300


def test_the_corpus_mixes_both_benchmarks_and_holds_no_question_of_a_split(
    math: pd.DataFrame, gsm8k: pd.DataFrame
) -> None:
    documents = list(generated.corpus(5000, seed=3))
    questions = [document.question for document in documents]
    assert len(documents) == 5000
    assert not set(questions) & {*math.question, *gsm8k.question}
    word_problems = sum(any(re.fullmatch(p, q) for p in GSM8K) for q in questions)
    assert 0.2 < word_problems / 5000 < 0.3


def test_more_questions_than_the_templates_can_make_are_refused() -> None:
    with pytest.raises(BenchmarkError, match=r"n: 90000 .* ask for at most \d+"):
        generated.generate("generated_math", "train", 90_000, seed=0)
