r"""Templates of the MATH-like benchmark: three problems for each of MATH's seven subjects.

A template draws its numbers from `rng` within limits set by the level, 1 (easy) to 5 (hard), and
returns the question, a worked solution of two to four steps whose last one is boxed, and the gold
answer. Answers are integers, or LaTeX where the subject calls for it: ``\frac{3}{8}``, ``45\pi``,
``5+14i``, ``\sqrt{13}``.
"""

from fractions import Fraction
from math import isqrt
from random import Random

from headroom.benchmarks.problem import Problem, Template, box, by_level


def _latex_fraction(value: Fraction) -> str:
    r"""Return a fraction in lowest terms: ``\frac{3}{4}``, ``-\frac{3}{4}`` or ``2``."""
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def _signed(value: int) -> str:
    """Return a number as a further term of a sum: ``+3`` or ``-3``."""
    return f"+{value}" if value >= 0 else f"-{-value}"


def _draw(rng: Random, low: int, high: int, *, negative: bool = False) -> int:
    """Draw from low..high, with either sign if `negative`."""
    value = rng.randint(low, high)
    return -value if negative and rng.random() < 0.5 else value


# Algebra


def linear_equation(rng: Random, level: int) -> Problem:
    """Solve ax + b = c."""
    x = rng.choice("xyzntk")
    factor = rng.randint(2, by_level(level, 4, 6, 9, 12, 15))
    root = _draw(rng, 2, by_level(level, 9, 12, 20, 40, 80), negative=level >= 4)
    term = _draw(rng, 1, by_level(level, 10, 20, 40, 80, 99), negative=level >= 3)
    product = factor * root
    return Problem(
        f"Solve ${factor}{x}{_signed(term)}={product + term}$ for ${x}$.",
        f"${factor}{x}={product + term}{_signed(-term)}={product}$. "
        f"So ${x}={product}/{factor}={box(root)}$.",
        str(root),
    )


def function_value(rng: Random, level: int) -> Problem:
    """Evaluate a quadratic function at a number."""
    f = rng.choice("fgh")
    at = _draw(rng, 2, by_level(level, 5, 7, 9, 12, 15))
    slope = rng.randint(2, by_level(level, 5, 9, 9, 12, 15))
    constant = _draw(rng, 1, by_level(level, 9, 20, 40, 60, 99), negative=level >= 3)
    value = at**2 + slope * at + constant
    return Problem(
        f"If ${f}(x)=x^2+{slope}x{_signed(constant)}$, find ${f}({at})$.",
        rf"${at}^2={at**2}$ and ${slope}\cdot{at}={slope * at}$. "
        f"So ${f}({at})={at**2}+{slope * at}{_signed(constant)}"
        f"={at**2 + slope * at}{_signed(constant)}={box(value)}$.",
        str(value),
    )


def sum_and_difference(rng: Random, level: int) -> Problem:
    """Find one of two numbers, or their product, from their sum and difference."""
    a, b = rng.choice([("x", "y"), ("a", "b"), ("m", "n"), ("p", "q")])
    larger = rng.randint(4, by_level(level, 12, 30, 40, 12, 20))
    smaller = rng.randint(1, larger - 1)
    total, difference = larger + smaller, larger - smaller
    question = f"If ${a}+{b}={total}$ and ${a}-{b}={difference}$, find $"
    working = f"$2{a}={total}+{difference}={2 * larger}$"
    if level <= 2:
        return Problem(
            f"{question}{a}$.",
            f"{working}. So ${a}={2 * larger}/2={box(larger)}$.",
            str(larger),
        )
    working += f", so ${a}={larger}$. "
    if level == 3:
        return Problem(
            f"{question}{b}$.",
            f"{working}So ${b}={total}-{larger}={box(smaller)}$.",
            str(smaller),
        )
    product = larger * smaller
    return Problem(
        f"{question}{a}{b}$.",
        rf"{working}${b}={total}-{larger}={smaller}$. "
        rf"So ${a}{b}={larger}\cdot{smaller}={box(product)}$.",
        str(product),
    )


# Counting & Probability


def drawing_a_marble(rng: Random, level: int) -> Problem:
    """Probability of one colour in a bag of two or three colours."""
    colours = rng.sample(["red", "blue", "green", "white"], 2 if level <= 2 else 3)
    counts = [rng.randint(1, by_level(level, 6, 9, 9, 14, 20)) for _ in colours]
    total, wanted = sum(counts), counts[0]
    chance = _latex_fraction(Fraction(wanted, total))
    *most, last = (f"{count} {colour}" for count, colour in zip(counts, colours, strict=True))
    unreduced = rf"\frac{{{wanted}}}{{{total}}}"
    steps = box(chance) if chance == unreduced else f"{unreduced}={box(chance)}"
    return Problem(
        f"A bag has {', '.join(most)} and {last} marbles. "
        f"What is the probability of drawing a {colours[0]} one?",
        f"There are ${'+'.join(map(str, counts))}={total}$ marbles and {wanted} are "
        f"{colours[0]}. So it is ${steps}$.",
        chance,
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
    counts = [rng.randint(2, by_level(level, 12, 20, 6, 9, 14)) for _ in things]
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
    return Problem(
        f"In how many ways can you choose {', '.join(most)} and {last}?", solution, str(product)
    )


_GROUPS = [("boys", "girls"), ("cats", "dogs"), ("novels", "poems"), ("roses", "lilies")]


def pair_and_one(rng: Random, level: int) -> Problem:
    """Choose two of one kind and one of another."""
    first, second = rng.choice(_GROUPS)
    n = rng.randint(3, by_level(level, 5, 7, 9, 12, 16))
    m = rng.randint(2, by_level(level, 9, 9, 9, 9, 14))
    pairs = n * (n - 1) // 2
    return Problem(
        f"In how many ways can 2 of {n} {first} and 1 of {m} {second} be chosen?",
        rf"There are ${n}\cdot{n - 1}/2={n * (n - 1)}/2={pairs}$ pairs of {first}. "
        rf"So ${pairs}\cdot{m}={box(pairs * m)}$.",
        str(pairs * m),
    )


# Geometry

_POLYGONS = {3: "triangle", 4: "quadrilateral", 5: "pentagon"}


def last_angle(rng: Random, level: int) -> Problem:
    """The last angle of a triangle, quadrilateral or pentagon."""
    corners = by_level(level, 3, 3, 4, 4, 5)
    unit = by_level(level, 5, 1, 5, 1, 1)
    total = 180 * (corners - 2)
    known = 0
    while not total - 180 < known < total:  # every angle is less than 180 degrees
        angles = [unit * rng.randint(20 // unit, 160 // unit) for _ in range(corners - 1)]
        known = sum(angles)
    *most, last = (rf"${angle}^\circ$" for angle in angles)
    return Problem(
        f"A {_POLYGONS[corners]} has angles {', '.join(most)} and {last}. "
        "How many degrees is the last angle?",
        f"The known ones add up to ${'+'.join(map(str, angles))}={known}$. "
        f"So it is ${total}-{known}={box(total - known)}$.",
        str(total - known),
    )


def rectangle_area(rng: Random, level: int) -> Problem:
    """Area of a rectangle from its perimeter and width."""
    length, width = (rng.randint(2, by_level(level, 9, 12, 15, 20, 30)) for _ in range(2))
    perimeter = 2 * (length + width)
    return Problem(
        f"A rectangle has perimeter {perimeter} and width {width}. Find its area.",
        f"Half the perimeter is {length + width}, so its length is ${length + width}-{width}="
        rf"{length}$. So its area is ${length}\cdot{width}={box(length * width)}$.",
        str(length * width),
    )


def cylinder(rng: Random, level: int) -> Problem:
    """Volume or whole surface of a cylinder, as a multiple of pi."""
    radius = rng.randint(2, by_level(level, 5, 7, 6, 9, 12))
    height = rng.randint(2, by_level(level, 20, 20, 12, 20, 40))
    start = f"A cylinder has radius {radius} and height {height}. Find its "
    if level <= 2:
        answer = rf"{radius**2 * height}\pi"
        return Problem(
            f"{start}volume.",
            rf"The base has area ${radius}^2\pi={radius**2}\pi$. "
            rf"So ${radius**2}\cdot{height}\pi={box(answer)}$.",
            answer,
        )
    side = radius + height
    answer = rf"{2 * radius * side}\pi"
    return Problem(
        f"{start}surface area.",
        rf"It is $2\pi r(r+h)$, and $r+h={radius}+{height}={side}$. "
        rf"So ${2 * radius}\cdot{side}\pi={box(answer)}$.",
        answer,
    )


# Intermediate Algebra


def squares_of_roots(rng: Random, level: int) -> Problem:
    """Sum of the squares of a quadratic's roots, from Vieta's formulas."""
    r, s = rng.choice([("r", "s"), ("p", "q"), ("a", "b"), ("m", "n")])
    total = _draw(rng, 2, by_level(level, 9, 9, 12, 15, 20), negative=level >= 3)
    product = _draw(rng, 1, by_level(level, 9, 20, 20, 40, 80), negative=level >= 4)
    square, double = total**2, 2 * product
    value = square - double
    return Problem(
        f"Let ${r}$ and ${s}$ be the roots of $x^2{_signed(-total)}x{_signed(product)}$. "
        f"Find ${r}^2+{s}^2$.",
        f"${r}+{s}={total}$ and ${r}{s}={product}$. "
        f"So $({r}+{s})^2-2{r}{s}={square}{_signed(-double)}={box(value)}$.",
        str(value),
    )


def _latex_complex(real: int, imaginary: int) -> str:
    if imaginary == 0:
        return str(real)
    size = "" if abs(imaginary) == 1 else str(abs(imaginary))
    if real == 0:
        return f"{'-' if imaginary < 0 else ''}{size}i"
    return f"{real}{'-' if imaginary < 0 else '+'}{size}i"


def complex_product(rng: Random, level: int) -> Problem:
    """Product of two complex numbers."""
    high = by_level(level, 5, 6, 6, 8, 12)
    a, b, c = (rng.randint(2, high) for _ in range(3))
    d = _draw(rng, 2, high, negative=level >= 3)
    real, imaginary = a * c - b * d, a * d + b * c
    answer = _latex_complex(real, imaginary)
    return Problem(
        f"Compute $({a}+{b}i)({_latex_complex(c, d)})$.",
        f"The real part is ${a * c}{_signed(-b * d)}={real}$ and the other "
        f"${a * d}{_signed(b * c)}={imaginary}$. So it is ${box(answer)}$.",
        answer,
    )


def composition(rng: Random, level: int) -> Problem:
    """Value of one linear function at another."""
    f, g = rng.choice([("f", "g"), ("g", "h"), ("p", "q")])
    high = by_level(level, 4, 6, 8, 9, 14)
    a, c, at = (rng.randint(2, high) for _ in range(3))
    b = _draw(rng, 1, by_level(level, 9, 12, 20, 40, 60), negative=level >= 3)
    d = _draw(rng, 1, by_level(level, 9, 12, 20, 40, 60), negative=level >= 3)
    inner = c * at + d
    outer = a * inner + b
    return Problem(
        f"If ${f}(x)={a}x{_signed(b)}$ and ${g}(x)={c}x{_signed(d)}$, find ${f}({g}({at}))$.",
        f"${g}({at})={c * at}{_signed(d)}={inner}$. "
        f"So ${f}({inner})={a * inner}{_signed(b)}={box(outer)}$.",
        str(outer),
    )


# Number Theory


def greatest_common_divisor(rng: Random, level: int) -> Problem:
    """Greatest common divisor by Euclid's algorithm, in two to four divisions."""
    while True:
        common = rng.randint(2, by_level(level, 9, 9, 12, 15, 20))
        n = common * rng.randint(2, by_level(level, 6, 9, 12, 15, 20))
        m = common * rng.randint(2, by_level(level, 6, 9, 12, 15, 20))
        a, b = max(n, m), min(n, m)
        steps = []
        while b:
            steps.append(rf"${a}={a // b}\cdot{b}+{a % b}$")
            a, b = b, a % b
        if len(steps) in _DIVISIONS[level - 1]:
            return Problem(
                f"Find the greatest common divisor of {n} and {m}.",
                f"{', '.join(steps)}. So it is ${box(a)}$.",
                str(a),
            )


_DIVISIONS = [(2,), (2, 3), (3,), (3, 4), (4,)]


def remainder_of_product(rng: Random, level: int) -> Problem:
    """Remainder of a product, from the remainders of its factors."""
    modulus = rng.randint(3, by_level(level, 5, 7, 9, 9, 12))
    a, b = (rng.randint(modulus + 1, by_level(level, 19, 30, 50, 80, 150)) for _ in range(2))
    left, right = a % modulus, b % modulus
    rest = left * right % modulus
    return Problem(
        rf"What is the remainder when ${a}\cdot{b}$ is divided by {modulus}?",
        rf"{a} leaves {left} and {b} leaves {right}. ${left}\cdot{right}={left * right}$ "
        rf"leaves ${box(rest)}$.",
        str(rest),
    )


def units_digit(rng: Random, level: int) -> Problem:
    """Units digit of a power, from the cycle of units digits."""
    base = rng.randint(2, by_level(level, 9, 9, 19, 49, 99))
    exponent = rng.randint(5, by_level(level, 40, 60, 60, 99, 400))
    cycle = [pow(base, power, 10) for power in range(1, 5)]
    rest = exponent % 4
    digit = pow(base, exponent, 10)
    return Problem(
        f"Find the units digit of ${base}^{{{exponent}}}$.",
        f"The units digits of its powers repeat ${','.join(map(str, cycle))}$. "
        f"{exponent} leaves {rest} when divided by 4. So it is ${box(digit)}$.",
        str(digit),
    )


# Prealgebra


def fraction_sum(rng: Random, level: int) -> Problem:
    """Sum or difference of two fractions."""
    high = by_level(level, 5, 6, 8, 10, 14)
    b, d = (rng.randint(2, high) for _ in range(2))
    a, c = rng.randint(1, b - 1), rng.randint(1, d - 1)
    sign = rng.choice("+-") if level >= 3 else "+"
    total = a * d + c * b if sign == "+" else a * d - c * b
    result = _latex_fraction(Fraction(total, b * d))
    minus = "-" if total < 0 else ""
    unreduced = rf"{minus}\frac{{{abs(total)}}}{{{b * d}}}"
    steps = box(result) if result == unreduced else f"{unreduced}={box(result)}"
    return Problem(
        rf"Compute $\frac{{{a}}}{{{b}}}{sign}\frac{{{c}}}{{{d}}}$.",
        rf"$\frac{{{a * d}}}{{{b * d}}}{sign}\frac{{{c * b}}}{{{b * d}}}$. So it is ${steps}$.",
        result,
    )


def percentage(rng: Random, level: int) -> Problem:
    """A percentage of a whole number, by way of 10% or 5% of it."""
    unit = 10 if level <= 3 else 5
    parts = rng.randint(2, by_level(level, 9, 9, 29, 19, 39))
    share = rng.randint(1, by_level(level, 30, 70, 40, 40, 70))
    whole = share * (100 // unit)
    return Problem(
        rf"What is ${parts * unit}\%$ of {whole}?",
        rf"${unit}\%$ of {whole} is {share}. So it is ${parts}\cdot{share}="
        rf"{box(parts * share)}$.",
        str(parts * share),
    )


def order_of_operations(rng: Random, level: int) -> Problem:
    """An expression of two to four operations."""
    high = by_level(level, 9, 12, 9, 12, 20)
    a, b, c, d, e = (rng.randint(2, high) for _ in range(5))
    if level <= 2:
        value = a + b * c - d
        return Problem(
            rf"Compute ${a}+{b}\cdot{c}-{d}$.",
            rf"${b}\cdot{c}={b * c}$ and ${a}+{b * c}={a + b * c}$. "
            f"So ${a + b * c}-{d}={box(value)}$.",
            str(value),
        )
    left, right = (a + b) * c, d * e
    return Problem(
        rf"Compute $({a}+{b})\cdot{c}-{d}\cdot{e}$.",
        rf"${a + b}\cdot{c}={left}$ and ${d}\cdot{e}={right}$. "
        f"So ${left}-{right}={box(left - right)}$.",
        str(left - right),
    )


# Precalculus


def dot_product(rng: Random, level: int) -> Problem:
    """Dot product of two vectors of two or three entries."""
    size, high = by_level(level, 2, 2, 3, 3, 3), by_level(level, 6, 9, 6, 9, 12)
    u, v = ([_draw(rng, 1, high, negative=level >= 4) for _ in range(size)] for _ in range(2))
    products = [a * b for a, b in zip(u, v, strict=True)]
    terms = "".join([str(products[0]), *map(_signed, products[1:])])
    return Problem(
        f"Find the dot product of $({','.join(map(str, u))})$ and $({','.join(map(str, v))})$.",
        f"The products are ${','.join(map(str, products))}$. "
        f"So it is ${terms}={box(sum(products))}$.",
        str(sum(products)),
    )


def determinant(rng: Random, level: int) -> Problem:
    """Determinant of a 2 by 2 matrix."""
    high = by_level(level, 6, 9, 9, 12, 16)
    a, b, c, d = (_draw(rng, 1, high, negative=level >= 3) for _ in range(4))
    value = a * d - b * c
    return Problem(
        rf"Find $\begin{{vmatrix}}{a}&{b}\\{c}&{d}\end{{vmatrix}}$.",
        f"The products are ${a * d}$ and ${b * c}$. "
        f"So it is ${a * d}{_signed(-b * c)}={box(value)}$.",
        str(value),
    )


def distance(rng: Random, level: int) -> Problem:
    """Distance of two points whose squared distance is a square or free of squares."""
    size = 2 if level <= 3 else 3
    high = by_level(level, 6, 9, 15, 9, 15)
    while True:
        p, q = ([_draw(rng, 1, high, negative=level >= 3) for _ in range(size)] for _ in range(2))
        gaps = [abs(a - b) for a, b in zip(p, q, strict=True)]
        square = sum(gap**2 for gap in gaps)
        exact = isqrt(square) ** 2 == square
        if square and (exact or all(square % k**2 for k in range(2, isqrt(square) + 1))):
            break
    answer = str(isqrt(square)) if exact else rf"\sqrt{{{square}}}"
    root = rf"\sqrt{{{square}}}={box(answer)}" if exact else box(answer)
    return Problem(
        f"Find the distance between $({','.join(map(str, p))})$ and $({','.join(map(str, q))})$.",
        f"The gaps are ${','.join(map(str, gaps))}$ and "
        f"${'+'.join(str(gap**2) for gap in gaps)}={square}$. So it is ${root}$.",
        answer,
    )


SUBJECTS: dict[str, tuple[Template, ...]] = {
    "Algebra": (linear_equation, function_value, sum_and_difference),
    "Counting & Probability": (drawing_a_marble, one_of_each, pair_and_one),
    "Geometry": (last_angle, rectangle_area, cylinder),
    "Intermediate Algebra": (squares_of_roots, complex_product, composition),
    "Number Theory": (greatest_common_divisor, remainder_of_product, units_digit),
    "Prealgebra": (fraction_sum, percentage, order_of_operations),
    "Precalculus": (dot_product, determinant, distance),
}
"""Templates of each subject, in MATH's spelling."""
