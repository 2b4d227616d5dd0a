"""What templates of the generated benchmarks share, and the templates of the GSM8K-like one.

GSM8K-like problems are word problems with names, things and whole numbers; the level, 1 to 5, sets
their size.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import Literal, NamedTuple


class Problem(NamedTuple):
    """A question with its worked solution and gold answer."""

    question: str
    solution: str
    """Two to four steps, ending with the boxed answer."""

    @property
    def answer(self) -> str:
        """The gold answer: LaTeX, without the box."""
        return self.solution.rpartition(r"\boxed{")[2].rpartition("}")[0]


class Draw:
    """Random draws for a template at a level, 1 (easy) to 5 (hard).

    Templates call it `rng`: it draws as a `Random` does, and by the level.
    """

    def __init__(self, rng: Random, level: int) -> None:
        self.level = level
        self.choice, self.sample, self.randint = rng.choice, rng.sample, rng.randint
        self._random = rng.random

    def by_level(self, *limits: int) -> int:
        """Return the limit for the level, one of five."""
        return limits[self.level - 1]

    def up_to(self, low: int, *limits: int, negative: bool = False) -> int:
        """Draw a number from `low` to the level's limit, with a random sign if `negative`.

        The first argument is the lower limit, five upper limits follow, one for each level:
        `up_to(3, 6, 8, 9, 10, 12)` draws from 3 to 6 at level 1, and from 3 to 12 at level 5.
        """
        value = self.randint(low, self.by_level(*limits))
        return -value if negative and self._random() < 0.5 else value


Template = Callable[[Draw], Problem]
Division = Mapping[Template, Literal["test", "train"]]
"""Templates, in order, each with the split that it serves where splits have templates apart."""


def box(answer: object) -> str:
    r"""Return ``\boxed{answer}``."""
    return rf"\boxed{{{answer}}}"


def lowest_terms(above: int, below: int) -> str:
    """Return the steps from a positive fraction to its lowest terms, or whole number, in a box."""
    written = rf"\frac{{{above}}}{{{below}}}"
    value = Fraction(above, below)
    reduced = re.sub(r"(\d+)/(\d+)", r"\\frac{\1}{\2}", str(value))
    return box(reduced) if reduced == written else f"{written}={box(reduced)}"


def running_sum(terms: Sequence[int], *, boxed: bool = False) -> str:
    """Return the steps of a sum, one addition at a time: ``2+3+4=5+4=9``."""
    steps = []
    for position in range(1, len(terms)):
        rest = "".join(f"{term:+d}" for term in terms[position:])
        steps.append(f"{sum(terms[:position])}{rest}")
    total = sum(terms)
    return "=".join([*steps, box(total) if boxed else str(total)])


_NAMES = ["Ada", "Ben", "Eva", "Max", "Sam", "Tom"]
_THINGS = ["apples", "books", "cards", "pens"]


def _shopping(rng: Draw) -> Problem:
    name = rng.choice(_NAMES)
    (first, second) = rng.sample(_THINGS, 2)
    high = rng.by_level(4, 5, 6, 8, 9)
    a, b, c, d = (rng.randint(2, high) for _ in range(4))
    return Problem(
        f"{name} buys {a} {first} for ${b} each and {c} {second} for ${d} each. "
        f"How many dollars does {name} spend?",
        rf"The {first} cost ${a}\cdot{b}={a * b}$. The {second} cost ${c}\cdot{d}="
        rf"{c * d}$. Total: ${a * b}+{c * d}={box(a * b + c * d)}$.",
    )


def _change(rng: Draw) -> Problem:
    name, thing = rng.choice(_NAMES), rng.choice(_THINGS)
    count, price = (rng.up_to(2, 5, 6, 7, 8, 9) for _ in range(2))
    cost = count * price
    paid = cost + rng.up_to(1, 9, 15, 20, 30, 40)
    return Problem(
        f"{name} buys {count} {thing} for ${price} each and pays with ${paid}. "
        f"How many dollars does {name} get back?",
        rf"The {thing} cost ${count}\cdot{price}={cost}$. "
        f"Change: ${paid}-{cost}={box(paid - cost)}$.",
    )


def _give_and_buy(rng: Draw) -> Problem:
    (name, friend) = rng.sample(_NAMES, 2)
    thing = rng.choice(_THINGS)
    start = rng.up_to(8, 12, 15, 20, 30, 50)
    given = rng.randint(2, start - 2)
    bags, each = (rng.up_to(2, 4, 5, 6, 7, 9) for _ in range(2))
    rest = start - given
    return Problem(
        f"{name} has {start} {thing}, gives {given} to {friend} and buys {bags} bags of {each} "
        f"{thing}. How many {thing} does {name} have now?",
        rf"After giving: ${start}-{given}={rest}$. The bags hold ${bags}\cdot{each}="
        rf"{bags * each}$. Total: ${rest}+{bags * each}={box(rest + bags * each)}$.",
    )


def _times_as_many(rng: Draw) -> Problem:
    (name, friend) = rng.sample(_NAMES, 2)
    thing = rng.choice(_THINGS)
    own = rng.up_to(2, 9, 12, 15, 20, 30)
    times = rng.up_to(2, 3, 3, 4, 5, 6)
    return Problem(
        f"{name} has {own} {thing}. {friend} has {times} times as many. "
        f"How many {thing} do they have together?",
        rf"{friend} has ${times}\cdot{own}={times * own}$. "
        f"Total: ${own}+{times * own}={box(own + times * own)}$.",
    )


def _made_and_sold(rng: Draw) -> Problem:
    name = rng.choice(_NAMES)
    thing = rng.choice(["cakes", "chairs"])
    rate = rng.up_to(3, 6, 8, 9, 10, 12)
    hours = rng.up_to(2, 5, 5, 6, 7, 9)
    made = rate * hours
    sold = rng.randint(2, made - 2)
    return Problem(
        f"{name} makes {rate} {thing} an hour for {hours} hours and sells {sold}. "
        f"How many {thing} are left?",
        rf"{name} makes ${hours}\cdot{rate}={made}$. Left: ${made}-{sold}="
        rf"{box(made - sold)}$.",
    )


def _fair_shares(rng: Draw) -> Problem:
    thing = rng.choice(_THINGS)
    children = rng.up_to(2, 3, 4, 5, 6, 7)
    each = rng.up_to(2, 4, 5, 6, 6, 7)
    boxes = rng.up_to(2, 3, 3, 4, 4, 5)
    total = children * each * boxes
    return Problem(
        f"{boxes} boxes of {children * each} {thing} are shared equally by {children} children. "
        f"How many {thing} does each get?",
        rf"There are ${boxes}\cdot{children * each}={total}$ {thing}. "
        f"Each gets ${total}/{children}={box(boxes * each)}$.",
    )


def _saving_up(rng: Draw) -> Problem:
    name = rng.choice(_NAMES)
    thing = rng.choice(["bike", "tent"])
    saved = rng.up_to(2, 9, 12, 15, 20, 30)
    weekly = rng.up_to(2, 4, 5, 6, 8, 9)
    weeks = rng.up_to(2, 6, 8, 9, 10, 12)
    missing = weekly * weeks
    return Problem(
        f"{name} has ${saved} and saves ${weekly} a week. "
        f"In how many weeks can {name} buy a {thing} for ${saved + missing}?",
        f"{name} needs ${saved + missing}-{saved}={missing}$ more. "
        f"Weeks: ${missing}/{weekly}={box(weeks)}$.",
    )


GSM8K: Division = {
    _shopping: "train",
    _change: "train",
    _give_and_buy: "test",
    _times_as_many: "test",
    _made_and_sold: "test",
    _fair_shares: "train",
    _saving_up: "test",
}
"""All templates of the GSM8K-like benchmark, equally frequent within a split."""
