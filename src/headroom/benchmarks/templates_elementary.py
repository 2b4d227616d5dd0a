"""Templates of Algebra, Counting & Probability, Number Theory and Prealgebra."""

from fractions import Fraction
from random import Random

from headroom.benchmarks.problem import (
    Problem,
    Template,
    box,
    by_level,
    draw,
    latex_fraction,
)

# Algebra


def linear_equation(rng: Random, level: int) -> Problem:
    """Solve ax + b = c."""
    x = rng.choice("xyn")
    factor = rng.randint(2, by_level(level, 3, 4, 5, 7, 9))
    root = draw(rng, 2, by_level(level, 6, 8, 9, 10, 12), negative=level == 5)
    term = draw(rng, 1, by_level(level, 9, 12, 15, 20, 30), negative=level >= 3)
    product = factor * root
    return Problem(
        f"Solve ${factor}{x}{term:+d}={product + term}$ for ${x}$.",
        f"${factor}{x}={product + term}{-term:+d}={product}$. "
        f"So ${x}={product}/{factor}={box(root)}$.",
    )


def function_value(rng: Random, level: int) -> Problem:
    """Evaluate a quadratic function at a number."""
    f = rng.choice("fgh")
    at = rng.randint(2, by_level(level, 3, 4, 5, 7, 9))
    slope = rng.randint(2, by_level(level, 3, 4, 5, 7, 9))
    constant = draw(rng, 1, by_level(level, 9, 9, 12, 15, 20), negative=level >= 4)
    value = at**2 + slope * at + constant
    return Problem(
        f"If ${f}(x)=x^2+{slope}x{constant:+d}$, find ${f}({at})$.",
        rf"${at}^2={at**2}$ and ${slope}\cdot{at}={slope * at}$. "
        f"So ${f}({at})={at**2}+{slope * at}{constant:+d}"
        f"={at**2 + slope * at}{constant:+d}={box(value)}$.",
    )


def sum_and_difference(rng: Random, level: int) -> Problem:
    """Find one of two numbers, or their product, from their sum and difference."""
    a, b = rng.choice([("x", "y"), ("a", "b")])
    larger = rng.randint(4, by_level(level, 8, 12, 15, 9, 12))
    smaller = rng.randint(1, larger - 1)
    total, difference = larger + smaller, larger - smaller
    question = f"If ${a}+{b}={total}$ and ${a}-{b}={difference}$, find $"
    working = f"$2{a}={total}+{difference}={2 * larger}$"
    if level <= 2:
        return Problem(
            f"{question}{a}$.",
            f"{working}. So ${a}={2 * larger}/2={box(larger)}$.",
        )
    working += f", so ${a}={larger}$. "
    if level == 3:
        return Problem(
            f"{question}{b}$.",
            f"{working}So ${b}={total}-{larger}={box(smaller)}$.",
        )
    product = larger * smaller
    return Problem(
        f"{question}{a}{b}$.",
        rf"{working}${b}={total}-{larger}={smaller}$. "
        rf"So ${a}{b}={larger}\cdot{smaller}={box(product)}$.",
    )


# Counting & Probability


def drawing_a_marble(rng: Random, level: int) -> Problem:
    """Probability of one colour in a bag of two or three colours."""
    colours = rng.sample(["red", "blue", "green"], 2 if level <= 2 else 3)
    counts = [rng.randint(1, by_level(level, 5, 7, 5, 7, 9)) for _ in colours]
    total, wanted = sum(counts), counts[0]
    chance = latex_fraction(Fraction(wanted, total))
    *most, last = (f"{count} {colour}" for count, colour in zip(counts, colours, strict=True))
    unreduced = rf"\frac{{{wanted}}}{{{total}}}"
    steps = box(chance) if chance == unreduced else f"{unreduced}={box(chance)}"
    return Problem(
        f"A bag has {', '.join(most)} and {last} marbles. "
        f"What is the probability of drawing a {colours[0]} one?",
        f"There are ${'+'.join(map(str, counts))}={total}$ marbles and {wanted} are "
        f"{colours[0]}. So it is ${steps}$.",
    )


_CHOICES = [
    ("shirts", "hats", "belts"),
    ("soups", "mains", "desserts"),
    ("pens", "books", "bags"),
    ("trains", "buses", "boats"),
]


def one_of_each(rng: Random, level: int) -> Problem:
    """Multiplication principle with two or three factors."""
    things = rng.choice(_CHOICES)[: 2 if level <= 2 else 3]
    counts = [rng.randint(2, by_level(level, 7, 9, 4, 5, 7)) for _ in things]
    *most, last = (f"one of {count} {thing}" for count, thing in zip(counts, things, strict=True))
    product = counts[0] * counts[1]
    working = rf"There are ${counts[0]}\cdot{counts[1]}="
    if level <= 2:
        solution = (
            f"One choice for each of the {counts[0]} {things[0]}. {working}{box(product)}$ ways."
        )
    else:
        solution = (
            rf"{working}{product}$ ways for the first two. "
            rf"So ${product}\cdot{counts[2]}={box(product * counts[2])}$."
        )
        product *= counts[2]
    return Problem(f"In how many ways can you choose {', '.join(most)} and {last}?", solution)


_GROUPS = [("boys", "girls"), ("cats", "dogs"), ("novels", "poems"), ("roses", "lilies")]


def pair_and_one(rng: Random, level: int) -> Problem:
    """Choose two of one kind and one of another."""
    first, second = rng.choice(_GROUPS)
    n = rng.randint(3, by_level(level, 5, 6, 6, 7, 9))
    m = rng.randint(2, by_level(level, 6, 7, 8, 9, 9))
    pairs = n * (n - 1) // 2
    return Problem(
        f"In how many ways can 2 of {n} {first} and 1 of {m} {second} be chosen?",
        rf"There are ${n}\cdot{n - 1}/2={n * (n - 1)}/2={pairs}$ pairs of {first}. "
        rf"So ${pairs}\cdot{m}={box(pairs * m)}$.",
    )


# Number Theory


_DIVISIONS = [(2,), (2, 3), (3,), (3, 4), (4,)]


def greatest_common_divisor(rng: Random, level: int) -> Problem:
    """Greatest common divisor by Euclid's algorithm, in two to four divisions."""
    while True:
        common = rng.randint(2, by_level(level, 4, 4, 5, 6, 8))
        n = common * rng.randint(2, by_level(level, 6, 6, 7, 9, 10))
        m = common * rng.randint(2, by_level(level, 6, 6, 7, 9, 10))
        a, b = max(n, m), min(n, m)
        steps = []
        while b:
            steps.append(f"${_division(a, b)}$")
            a, b = b, a % b
        if len(steps) in _DIVISIONS[level - 1]:
            return Problem(
                f"Find the greatest common divisor of {n} and {m}.",
                f"{', '.join(steps)}. So it is ${box(a)}$.",
            )


def remainder_of_product(rng: Random, level: int) -> Problem:
    """Remainder of a product, from the remainders of its factors."""
    modulus = rng.randint(3, by_level(level, 4, 5, 6, 7, 9))
    a, b = (rng.randint(modulus + 1, by_level(level, 14, 15, 20, 25, 40)) for _ in range(2))
    product = (a % modulus) * (b % modulus)
    rest = product % modulus
    return Problem(
        rf"What is the remainder when ${a}\cdot{b}$ is divided by {modulus}?",
        rf"${_division(a, modulus)}$ and ${_division(b, modulus)}$. "
        rf"${a % modulus}\cdot{b % modulus}={_division(product, modulus)}$. "
        f"So it is ${box(rest)}$.",
    )


def units_digit(rng: Random, level: int) -> Problem:
    """Units digit of a power, from the cycle of units digits."""
    base = rng.randint(2, by_level(level, 9, 9, 9, 19, 29))
    exponent = rng.randint(5, by_level(level, 25, 25, 40, 40, 60))
    cycle = [pow(base, power, 10) for power in range(1, 5)]
    digit = pow(base, exponent, 10)
    return Problem(
        f"Find the units digit of ${base}^{{{exponent}}}$.",
        f"The units digits of its powers repeat ${','.join(map(str, cycle))}$. "
        f"${_division(exponent, 4)}$. So it is ${box(digit)}$.",
    )


def _division(a: int, b: int) -> str:
    return rf"{a}={a // b}\cdot{b}+{a % b}"


# Prealgebra


def fraction_sum(rng: Random, level: int) -> Problem:
    """Sum or difference of two fractions."""
    b, d = (rng.randint(2, by_level(level, 4, 5, 5, 6, 8)) for _ in range(2))
    a, c = rng.randint(1, b - 1), rng.randint(1, d - 1)
    sign = rng.choice("+-") if level >= 3 and a * d > c * b else "+"
    total = a * d + c * b if sign == "+" else a * d - c * b
    result = latex_fraction(Fraction(total, b * d))
    unreduced = rf"\frac{{{total}}}{{{b * d}}}"
    steps = box(result) if result == unreduced else f"{unreduced}={box(result)}"
    return Problem(
        rf"Compute $\frac{{{a}}}{{{b}}}{sign}\frac{{{c}}}{{{d}}}$.",
        rf"${a}\cdot{d}{sign}{c}\cdot{b}={a * d}{sign}{c * b}={total}$ and "
        rf"${b}\cdot{d}={b * d}$. So it is ${steps}$.",
    )


def percentage(rng: Random, level: int) -> Problem:
    """A percentage of a whole number, by way of 10% or 5% of it."""
    unit = 10 if level <= 3 else 5
    parts = rng.randint(2, by_level(level, 5, 9, 9, 9, 15))
    share = rng.randint(1, by_level(level, 12, 12, 15, 9, 12))
    whole = share * (100 // unit)
    return Problem(
        rf"What is ${parts * unit}\%$ of {whole}?",
        rf"${unit}\%$ of {whole} is {share}. So it is ${parts}\cdot{share}="
        rf"{box(parts * share)}$.",
    )


def order_of_operations(rng: Random, level: int) -> Problem:
    """An expression of three or four operations."""
    high = by_level(level, 5, 7, 5, 6, 8)
    a, b, c, d, e = (rng.randint(2, high) for _ in range(5))
    if level <= 2:
        inner = a + b * c
        return Problem(
            rf"Compute ${a}+{b}\cdot{c}-{d}$.",
            rf"${b}\cdot{c}={b * c}$ and ${a}+{b * c}={inner}$. So ${inner}-{d}={box(inner - d)}$.",
        )
    left, right = (a + b) * c, d * e
    return Problem(
        rf"Compute $({a}+{b})\cdot{c}-{d}\cdot{e}$.",
        rf"${a}+{b}={a + b}$, ${a + b}\cdot{c}={left}$ and ${d}\cdot{e}={right}$. "
        f"So ${left}-{right}={box(left - right)}$.",
    )


ALGEBRA: tuple[Template, ...] = (linear_equation, function_value, sum_and_difference)
COUNTING: tuple[Template, ...] = (drawing_a_marble, one_of_each, pair_and_one)
NUMBER_THEORY: tuple[Template, ...] = (greatest_common_divisor, remainder_of_product, units_digit)
PREALGEBRA: tuple[Template, ...] = (fraction_sum, percentage, order_of_operations)
