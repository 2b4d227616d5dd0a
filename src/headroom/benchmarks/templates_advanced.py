"""Templates of Geometry, Intermediate Algebra and Precalculus."""

from math import isqrt
from random import Random

from headroom.benchmarks.problem import Problem, Template, box, by_level, draw, running_sum

# Geometry


def cuboid(rng: Random, level: int) -> Problem:
    """Volume or surface area of a box."""
    a, b, c = (rng.randint(2, by_level(level, 5, 7, 5, 7, 9)) for _ in range(3))
    thing = rng.choice(["box", "brick", "tank"])
    start = f"A {thing} has length {a}, width {b} and height {c}. Find its "
    if level <= 2:
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


def rectangle_perimeter(rng: Random, level: int) -> Problem:
    """Perimeter of a rectangle from its area and width."""
    length, width = (rng.randint(2, by_level(level, 8, 9, 9, 10, 12)) for _ in range(2))
    half = length + width
    thing = rng.choice(["field", "garden", "room"])
    return Problem(
        f"A rectangular {thing} has area {length * width} and width {width}. Find its perimeter.",
        f"Its length is ${length * width}/{width}={length}$. "
        rf"So its perimeter is $2\cdot({length}+{width})=2\cdot{half}={box(2 * half)}$.",
    )


def cylinder(rng: Random, level: int) -> Problem:
    """Volume or whole surface of a cylinder, as a multiple of pi."""
    radius = rng.randint(2, by_level(level, 3, 4, 4, 5, 7))
    height = rng.randint(2, by_level(level, 12, 12, 8, 9, 12))
    thing = rng.choice(["can", "cylinder", "drum"])
    start = f"A {thing} has radius {radius} and height {height}. Find its "
    if level <= 2:
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


# Intermediate Algebra


def squares_of_roots(rng: Random, level: int) -> Problem:
    """Sum of the squares of a quadratic's roots, from Vieta's formulas."""
    r, s = rng.choice([("r", "s"), ("p", "q")])
    total = draw(rng, 2, by_level(level, 5, 6, 8, 9, 10), negative=level >= 3)
    product = draw(rng, 1, by_level(level, 6, 8, 10, 12, 15), negative=level == 5)
    square, double = total**2, 2 * product
    value = square - double
    return Problem(
        f"Let ${r}$ and ${s}$ be the roots of $x^2{-total:+d}x{product:+d}$. Find ${r}^2+{s}^2$.",
        f"${r}+{s}={total}$ and ${r}{s}={product}$. "
        f"So $({r}+{s})^2-2{r}{s}={square}{-double:+d}={box(value)}$.",
    )


def complex_product(rng: Random, level: int) -> Problem:
    """Product of two complex numbers."""
    high = by_level(level, 4, 5, 6, 6, 7)
    a, b, c, d = (rng.randint(2, high) for _ in range(4))
    real, imaginary = a * c - b * d, a * d + b * c
    answer = f"{real}+{imaginary}i" if real else f"{imaginary}i"
    return Problem(
        f"Compute $({a}+{b}i)({c}+{d}i)$.",
        rf"${a}\cdot{c}-{b}\cdot{d}={a * c}-{b * d}={real}$ and "
        rf"${a}\cdot{d}+{b}\cdot{c}={a * d}+{b * c}={imaginary}$. So it is ${box(answer)}$.",
    )


def composition(rng: Random, level: int) -> Problem:
    """Value of one linear function at another."""
    f, g = rng.choice([("f", "g"), ("g", "h"), ("p", "q")])
    high = by_level(level, 3, 4, 5, 5, 6)
    a, c, at = (rng.randint(2, high) for _ in range(3))
    b = draw(rng, 1, by_level(level, 5, 9, 9, 12, 15), negative=level >= 4)
    d = draw(rng, 1, by_level(level, 5, 9, 9, 12, 15), negative=level >= 4)
    d = abs(d) if c * at < -d else d  # g's value is not negative
    inner = c * at + d
    outer = a * inner + b
    return Problem(
        f"If ${f}(x)={a}x{b:+d}$ and ${g}(x)={c}x{d:+d}$, find ${f}({g}({at}))$.",
        rf"${g}({at})={c}\cdot{at}{d:+d}={c * at}{d:+d}={inner}$. "
        rf"So ${f}({inner})={a}\cdot{inner}{b:+d}={a * inner}{b:+d}={box(outer)}$.",
    )


# Precalculus


def dot_product(rng: Random, level: int) -> Problem:
    """Dot product of two vectors of two or three entries."""
    size, high = by_level(level, 2, 2, 3, 3, 3), by_level(level, 4, 7, 4, 6, 8)
    u, v = ([rng.randint(1, high) for _ in range(size)] for _ in range(2))
    products = [a * b for a, b in zip(u, v, strict=True)]
    terms = "+".join(rf"{a}\cdot{b}" for a, b in zip(u, v, strict=True))
    return Problem(
        f"Find the dot product of $({','.join(map(str, u))})$ and $({','.join(map(str, v))})$.",
        f"It is ${terms}={running_sum(products, boxed=True)}$.",
    )


def determinant(rng: Random, level: int) -> Problem:
    """Determinant of a 2 by 2 matrix."""
    high = by_level(level, 4, 5, 6, 8, 10)
    a, b, c, d = (rng.randint(1, high) for _ in range(4))
    value = a * d - b * c
    return Problem(
        rf"Find $\begin{{vmatrix}}{a}&{b}\\{c}&{d}\end{{vmatrix}}$.",
        rf"It is ${a}\cdot{d}-{b}\cdot{c}={a * d}-{b * c}={box(value)}$.",
    )


def distance(rng: Random, level: int) -> Problem:
    """Distance of two points whose squared distance is a square or free of squares."""
    size = 2 if level <= 4 else 3
    high = by_level(level, 5, 7, 9, 12, 7)
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


GEOMETRY: tuple[Template, ...] = (cuboid, rectangle_perimeter, cylinder)
INTERMEDIATE_ALGEBRA: tuple[Template, ...] = (squares_of_roots, complex_product, composition)
PRECALCULUS: tuple[Template, ...] = (dot_product, determinant, distance)
