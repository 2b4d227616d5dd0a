r"""Templates of the MATH-like benchmark: three problems for each of MATH's seven subjects.

A template draws its numbers within limits set by the level, 1 (easy) to 5 (hard), and returns the
question and a worked solution of two to four steps, the last of them boxed. Answers are integers
or, in some subjects, LaTeX: ``\frac{3}{8}``, ``45\pi``, ``5+14i``, ``\sqrt{13}``.
"""

from math import isqrt

from headsweep.benchmarks.templates import Division, Draw, Problem, box, lowest_terms, running_sum


def _linear_equation(rng: Draw) -> Problem:
    x = rng.choice("xyn")
    factor = rng.up_to(2, 3, 4, 5, 7, 9)
    root = rng.up_to(2, 6, 8, 9, 10, 12, negative=rng.level == 5)
    term = rng.up_to(1, 9, 12, 15, 20, 30, negative=rng.level >= 3)
    product = factor * root
    return Problem(
        f"Solve ${factor}{x}{term:+d}={product + term}$ for ${x}$.",
        f"${factor}{x}={product + term}{-term:+d}={product}$. "
        f"So ${x}={product}/{factor}={box(root)}$.",
    )


def _function_value(rng: Draw) -> Problem:
    f = rng.choice("fgh")
    at = rng.up_to(2, 3, 4, 5, 7, 9)
    slope = rng.up_to(2, 3, 4, 5, 7, 9)
    constant = rng.up_to(1, 9, 9, 12, 15, 20, negative=rng.level >= 4)
    value = at**2 + slope * at + constant
    return Problem(
        f"If ${f}(x)=x^2+{slope}x{constant:+d}$, find ${f}({at})$.",
        rf"${at}^2={at**2}$ and ${slope}\cdot{at}={slope * at}$. "
        f"So ${f}({at})={at**2}+{slope * at}{constant:+d}"
        f"={at**2 + slope * at}{constant:+d}={box(value)}$.",
    )


def _sum_and_difference(rng: Draw) -> Problem:
    a, b = rng.choice([("x", "y"), ("a", "b")])
    larger = rng.up_to(4, 8, 12, 15, 9, 12)
    smaller = rng.randint(1, larger - 1)
    total, difference = larger + smaller, larger - smaller
    question = f"If ${a}+{b}={total}$ and ${a}-{b}={difference}$, find $"
    working = f"$2{a}={total}+{difference}={2 * larger}$"
    if rng.level <= 2:
        return Problem(f"{question}{a}$.", f"{working}. So ${a}={2 * larger}/2={box(larger)}$.")
    working += f", so ${a}={larger}$. "
    if rng.level == 3:
        return Problem(f"{question}{b}$.", f"{working}So ${b}={total}-{larger}={box(smaller)}$.")
    product = larger * smaller
    return Problem(
        f"{question}{a}{b}$.",
        rf"{working}${b}={total}-{larger}={smaller}$. "
        rf"So ${a}{b}={larger}\cdot{smaller}={box(product)}$.",
    )


def _drawing_a_marble(rng: Draw) -> Problem:
    colours = rng.sample(["red", "blue", "green"], 2 if rng.level <= 2 else 3)
    counts = [rng.up_to(1, 5, 7, 5, 7, 9) for _ in colours]
    total = sum(counts)
    wanted = counts[0]
    *most, last = (f"{count} {colour}" for count, colour in zip(counts, colours, strict=True))
    return Problem(
        f"A bag has {', '.join(most)} and {last} marbles. "
        f"What is the probability of drawing a {colours[0]} one?",
        f"There are ${'+'.join(map(str, counts))}={total}$ marbles and {wanted} are "
        f"{colours[0]}. So it is ${lowest_terms(wanted, total)}$.",
    )


_CHOICES = [
    ("shirts", "hats", "belts"),
    ("soups", "mains", "desserts"),
    ("pens", "books", "bags"),
    ("trains", "buses", "boats"),
]


def _one_of_each(rng: Draw) -> Problem:
    kinds = 2 if rng.level <= 2 else 3
    things = rng.choice(_CHOICES)[:kinds]
    counts = [rng.up_to(2, 7, 9, 4, 5, 7) for _ in things]
    *most, last = (f"one of {count} {thing}" for count, thing in zip(counts, things, strict=True))
    product = counts[0] * counts[1]
    working = rf"There are ${counts[0]}\cdot{counts[1]}="
    if rng.level <= 2:
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


def _pair_and_one(rng: Draw) -> Problem:
    first, second = rng.choice(_GROUPS)
    n = rng.up_to(3, 5, 6, 6, 7, 9)
    m = rng.up_to(2, 6, 7, 8, 9, 9)
    pairs = n * (n - 1) // 2
    return Problem(
        f"In how many ways can 2 of {n} {first} and 1 of {m} {second} be chosen?",
        rf"There are ${n}\cdot{n - 1}/2={n * (n - 1)}/2={pairs}$ pairs of {first}. "
        rf"So ${pairs}\cdot{m}={box(pairs * m)}$.",
    )


def _cuboid(rng: Draw) -> Problem:
    a, b, c = (rng.up_to(2, 5, 7, 5, 7, 9) for _ in range(3))
    thing = rng.choice(["box", "brick", "tank"])
    start = f"A {thing} has length {a}, width {b} and height {c}. Find its "
    if rng.level <= 2:
        return Problem(
            f"{start}volume.",
            rf"Its base has area ${a}\cdot{b}={a * b}$. "
            rf"So it is ${a * b}\cdot{c}={box(a * b * c)}$.",
        )
    faces = [a * b, a * c, b * c]
    half = sum(faces)
    return Problem(
        f"{start}surface area.",
        rf"${a}\cdot{b}+{a}\cdot{c}+{b}\cdot{c}={running_sum(faces)}$. "
        rf"So it is $2\cdot{half}={box(2 * half)}$.",
    )


def _rectangle_perimeter(rng: Draw) -> Problem:
    length, width = (rng.up_to(2, 8, 9, 9, 10, 12) for _ in range(2))
    half = length + width
    thing = rng.choice(["field", "garden", "room"])
    return Problem(
        f"A rectangular {thing} has area {length * width} and width {width}. Find its perimeter.",
        f"Its length is ${length * width}/{width}={length}$. "
        rf"So its perimeter is $2\cdot({length}+{width})=2\cdot{half}={box(2 * half)}$.",
    )


def _cylinder(rng: Draw) -> Problem:
    radius = rng.up_to(2, 3, 4, 4, 5, 7)
    height = rng.up_to(2, 12, 12, 8, 9, 12)
    thing = rng.choice(["can", "cylinder", "drum"])
    start = f"A {thing} has radius {radius} and height {height}. Find its "
    if rng.level <= 2:
        answer = rf"{radius**2 * height}\pi"
        return Problem(
            f"{start}volume.",
            rf"The base has area ${radius}^2\pi={radius**2}\pi$. "
            rf"So ${radius**2}\cdot{height}\pi={box(answer)}$.",
        )
    side = radius + height
    answer = rf"{2 * radius * side}\pi"
    return Problem(
        f"{start}surface area.",
        rf"It is $2\pi r(r+h)$, and $r+h={radius}+{height}={side}$. "
        rf"So ${2 * radius}\cdot{side}\pi={box(answer)}$.",
    )


def _squares_of_roots(rng: Draw) -> Problem:
    r, s = rng.choice([("r", "s"), ("p", "q")])
    total = rng.up_to(2, 5, 6, 8, 9, 10, negative=rng.level >= 3)
    product = rng.up_to(1, 6, 8, 10, 12, 15, negative=rng.level == 5)
    square = total**2
    double = 2 * product
    value = square - double
    return Problem(
        f"Let ${r}$ and ${s}$ be the roots of $x^2{-total:+d}x{product:+d}$. Find ${r}^2+{s}^2$.",
        f"${r}+{s}={total}$ and ${r}{s}={product}$. "
        f"So $({r}+{s})^2-2{r}{s}={square}{-double:+d}={box(value)}$.",
    )


def _complex_product(rng: Draw) -> Problem:
    high = rng.by_level(4, 5, 6, 6, 7)
    a, b, c, d = (rng.randint(2, high) for _ in range(4))
    real, imaginary = a * c - b * d, a * d + b * c
    answer = f"{real}+{imaginary}i" if real else f"{imaginary}i"
    return Problem(
        f"Compute $({a}+{b}i)({c}+{d}i)$.",
        rf"${a}\cdot{c}-{b}\cdot{d}={a * c}-{b * d}={real}$ and "
        rf"${a}\cdot{d}+{b}\cdot{c}={a * d}+{b * c}={imaginary}$. So it is ${box(answer)}$.",
    )


def _composition(rng: Draw) -> Problem:
    f, g = rng.choice([("f", "g"), ("g", "h"), ("p", "q")])
    high = rng.by_level(3, 4, 5, 5, 6)
    a, c, at = (rng.randint(2, high) for _ in range(3))
    b = rng.up_to(1, 5, 9, 9, 12, 15, negative=rng.level >= 4)
    d = rng.up_to(1, 5, 9, 9, 12, 15, negative=rng.level >= 4)
    d = abs(d) if c * at < -d else d  # g's value is not negative
    inner = c * at + d
    outer = a * inner + b
    return Problem(
        f"If ${f}(x)={a}x{b:+d}$ and ${g}(x)={c}x{d:+d}$, find ${f}({g}({at}))$.",
        rf"${g}({at})={c}\cdot{at}{d:+d}={c * at}{d:+d}={inner}$. "
        rf"So ${f}({inner})={a}\cdot{inner}{b:+d}={a * inner}{b:+d}={box(outer)}$.",
    )


_DIVISIONS = [(2,), (2, 3), (3,), (3, 4), (4,)]


def _greatest_common_divisor(rng: Draw) -> Problem:
    while True:
        common = rng.up_to(2, 4, 4, 5, 6, 8)
        n = common * rng.up_to(2, 6, 6, 7, 9, 10)
        m = common * rng.up_to(2, 6, 6, 7, 9, 10)
        a, b = max(n, m), min(n, m)
        steps = []
        while b:
            steps.append(f"${_division(a, b)}$")
            rest = a % b
            a = b
            b = rest
        if len(steps) in _DIVISIONS[rng.level - 1]:
            return Problem(
                f"Find the greatest common divisor of {n} and {m}.",
                f"{', '.join(steps)}. So it is ${box(a)}$.",
            )


def _remainder_of_product(rng: Draw) -> Problem:
    modulus = rng.up_to(3, 4, 5, 6, 7, 9)
    a, b = (rng.up_to(modulus + 1, 14, 15, 20, 25, 40) for _ in range(2))
    product = (a % modulus) * (b % modulus)
    rest = product % modulus
    return Problem(
        rf"What is the remainder when ${a}\cdot{b}$ is divided by {modulus}?",
        rf"${_division(a, modulus)}$ and ${_division(b, modulus)}$. "
        rf"${a % modulus}\cdot{b % modulus}={_division(product, modulus)}$. "
        f"So it is ${box(rest)}$.",
    )


def _units_digit(rng: Draw) -> Problem:
    base = rng.up_to(2, 9, 9, 9, 19, 29)
    exponent = rng.up_to(5, 25, 25, 40, 40, 60)
    cycle = [pow(base, power, 10) for power in range(1, 5)]
    digit = pow(base, exponent, 10)
    return Problem(
        f"Find the units digit of ${base}^{{{exponent}}}$.",
        f"The units digits of its powers repeat ${','.join(map(str, cycle))}$. "
        f"${_division(exponent, 4)}$. So it is ${box(digit)}$.",
    )


def _division(a: int, b: int) -> str:
    return rf"{a}={a // b}\cdot{b}+{a % b}"


def _fraction_sum(rng: Draw) -> Problem:
    b, d = (rng.up_to(2, 4, 5, 5, 6, 8) for _ in range(2))
    a, c = rng.randint(1, b - 1), rng.randint(1, d - 1)
    sign = rng.choice("+-") if rng.level >= 3 and a * d > c * b else "+"
    total = a * d + c * b if sign == "+" else a * d - c * b
    return Problem(
        rf"Compute $\frac{{{a}}}{{{b}}}{sign}\frac{{{c}}}{{{d}}}$.",
        rf"${a}\cdot{d}{sign}{c}\cdot{b}={a * d}{sign}{c * b}={total}$ and "
        rf"${b}\cdot{d}={b * d}$. So it is ${lowest_terms(total, b * d)}$.",
    )


def _percentage(rng: Draw) -> Problem:
    unit = 10 if rng.level <= 3 else 5
    parts = rng.up_to(2, 5, 9, 9, 9, 15)
    share = rng.up_to(1, 12, 12, 15, 9, 12)
    whole = share * (100 // unit)
    return Problem(
        rf"What is ${parts * unit}\%$ of {whole}?",
        rf"${unit}\%$ of {whole} is {share}. So it is ${parts}\cdot{share}="
        rf"{box(parts * share)}$.",
    )


def _order_of_operations(rng: Draw) -> Problem:
    high = rng.by_level(5, 7, 5, 6, 8)
    a, b, c, d, e = (rng.randint(2, high) for _ in range(5))
    if rng.level <= 2:
        inner = a + b * c
        return Problem(
            rf"Compute ${a}+{b}\cdot{c}-{d}$.",
            rf"${b}\cdot{c}={b * c}$ and ${a}+{b * c}={inner}$. So ${inner}-{d}={box(inner - d)}$.",
        )
    left = (a + b) * c
    right = d * e
    return Problem(
        rf"Compute $({a}+{b})\cdot{c}-{d}\cdot{e}$.",
        rf"${a}+{b}={a + b}$, ${a + b}\cdot{c}={left}$ and ${d}\cdot{e}={right}$. "
        f"So ${left}-{right}={box(left - right)}$.",
    )


def _dot_product(rng: Draw) -> Problem:
    size, high = rng.by_level(2, 2, 3, 3, 3), rng.by_level(4, 7, 4, 6, 8)
    u, v = ([rng.randint(1, high) for _ in range(size)] for _ in range(2))
    products = [a * b for a, b in zip(u, v, strict=True)]
    terms = "+".join(rf"{a}\cdot{b}" for a, b in zip(u, v, strict=True))
    return Problem(
        f"Find the dot product of $({','.join(map(str, u))})$ and $({','.join(map(str, v))})$.",
        f"It is ${terms}={running_sum(products, boxed=True)}$.",
    )


def _determinant(rng: Draw) -> Problem:
    high = rng.by_level(4, 5, 6, 8, 10)
    a, b, c, d = (rng.randint(1, high) for _ in range(4))
    value = a * d - b * c
    return Problem(
        rf"Find $\begin{{vmatrix}}{a}&{b}\\{c}&{d}\end{{vmatrix}}$.",
        rf"It is ${a}\cdot{d}-{b}\cdot{c}={a * d}-{b * c}={box(value)}$.",
    )


def _distance(rng: Draw) -> Problem:
    size = 2 if rng.level <= 4 else 3
    high = rng.by_level(5, 7, 9, 12, 7)
    while True:
        p, q = ([rng.randint(1, high) for _ in range(size)] for _ in range(2))
        gaps = [abs(a - b) for a, b in zip(p, q, strict=True)]
        square = sum(gap**2 for gap in gaps)
        exact = isqrt(square) ** 2 == square
        if square and (exact or all(square % k**2 for k in range(2, isqrt(square) + 1))):
            break
    answer = str(isqrt(square)) if exact else rf"\sqrt{{{square}}}"
    root = rf"\sqrt{{{square}}}={box(answer)}" if exact else box(answer)
    steps = ", ".join(f"${max(a, b)}-{min(a, b)}={abs(a - b)}$" for a, b in zip(p, q, strict=True))
    return Problem(
        f"Find the distance between $({','.join(map(str, p))})$ and $({','.join(map(str, q))})$.",
        f"{steps} and ${running_sum([gap**2 for gap in gaps])}$. So it is ${root}$.",
    )


SUBJECTS: dict[str, Division] = {
    "Algebra": {
        _linear_equation: "test",
        _function_value: "train",
        _sum_and_difference: "train",
    },
    "Counting & Probability": {
        _drawing_a_marble: "train",
        _one_of_each: "test",
        _pair_and_one: "train",
    },
    "Geometry": {_cuboid: "train", _rectangle_perimeter: "test", _cylinder: "test"},
    "Intermediate Algebra": {
        _squares_of_roots: "train",
        _complex_product: "train",
        _composition: "test",
    },
    "Number Theory": {
        _greatest_common_divisor: "test",
        _remainder_of_product: "test",
        _units_digit: "train",
    },
    "Prealgebra": {
        _fraction_sum: "train",
        _percentage: "train",
        _order_of_operations: "test",
    },
    "Precalculus": {_dot_product: "train", _determinant: "test", _distance: "test"},
}
"""Templates of each subject, in MATH's spelling. The division leaves either split about as hard for
the reasoner, and enough different questions of each level."""
