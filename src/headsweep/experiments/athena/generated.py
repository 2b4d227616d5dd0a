"""Generated word problems for the demo and for tests: one or two operations, with distractors.

Problem i depends only on (seed, i).
"""

import re
from random import Random

from headsweep.experiments.athena.equations import NUMBER, Problem, evaluate, parse

_NAMES = ("ada", "ben", "carla", "dan", "elif", "femi", "gita", "hugo", "ines", "jonas", "kofi")
_THINGS = ("apples", "books", "cards", "coins", "eggs", "marbles", "pencils", "shells", "stamps")
_DISTRACTORS = (
    "{other} is {d} years old .",
    "the shop is {d} km away .",
    "{d} days ago it rained .",
    "a pen costs {d} cents .",
)
_DISTRACTED = 0.5  # share of problems with a distractor


_TABLE = """
{name} has {a} {things} . | {other} brings {b} more .
how many {things} are there now ? | a + b | any

{name} has {a} {things} . | {name} loses {b} of them .
how many {things} are left ? | a - b | a > b + c

there are {a} boxes . | each box holds {b} {things} .
how many {things} are in the boxes ? | a * b | any

{name} packs {a} {things} . | each bag takes {b} of them .
how many bags does {name} fill ? | a / b | b divides a

{name} finds {a} {things} . | {other} finds {b} . | their sister finds {c} .
how many {things} do the three find together ? | a + b + c | any

{name} owns {a} {things} . | {name} sells {b} on monday . | then {c} on friday .
how many {things} does {name} still own ? | a - b - c | a > b + c

{name} had {a} {things} . | {name} gave {b} to {other} . | then {name} bought {c} .
how many {things} does {name} have in the end ? | a - b + c | a > b + c

{name} buys {a} packs of {b} {things} . | {other} adds {c} loose ones .
how many {things} do they have altogether ? | a * b + c | any

{name} had {a} {things} . | {name} wrapped {b} presents with {c} {things} in each .
how many {things} remain unwrapped ? | a - b * c | a > b * c

a ticket costs {a} coins and a snack {b} . | {c} children buy one of each .
how many coins do they pay ? | ( a + b ) * c | any

a box of {things} costs {a} coins . | today it is {b} cheaper . | {name} takes {c} .
how many coins does {name} spend today ? | ( a - b ) * c | a > b + c

{name} has {a} {things} and {other} has {b} . | they share with {c} friends evenly .
how many {things} does each friend get ? | ( a + b ) / c | c divides a + b

of {a} {things} {b} are broken . | the others go on {c} shelves evenly .
how many {things} stand on each shelf ? | ( a - b ) / c | c divides a - b

{a} {things} are put in rows of {b} . | {c} rows are added .
how many rows are there ? | a / b + c | b divides a
"""
TEMPLATES = [
    [line.split(" | ") for line in pair.split("\n")] for pair in _TABLE.strip().split("\n\n")
]
"""The sentences of a story with numbers {a}, {b}, {c}; its question, equation and condition."""


def _draw(condition: str, rng: Random) -> tuple[int, int, int]:
    """Return numbers a, b and c that meet a template's condition."""
    randint = rng.randint
    match condition:
        case "a > b * c":
            b, c = randint(2, 6), randint(2, 9)
            return b * c + randint(1, 30), b, c
        case "c divides a + b":
            c, quotient = randint(2, 9), randint(5, 20)
            a = randint(1, c * quotient - 1)
            return a, c * quotient - a, c
        case "c divides a - b":
            b, c = randint(1, 30), randint(2, 9)
            return b + c * randint(2, 20), b, c
    a, b, c = (randint(2, 40) for _ in range(3))
    match condition:
        case "a > b + c":
            a = b + c + randint(1, 50)
        case "b divides a":
            a = b * randint(2, 12)
    return a, b, c


def generate(n: int, seed: int) -> list[Problem]:
    """Return n problems, cycling through the templates."""
    return [_problem(index, Random(f"wordproblems/{seed}/{index}")) for index in range(n)]


def _problem(index: int, rng: Random) -> Problem:
    sentences, (question, formula, condition) = TEMPLATES[index % len(TEMPLATES)]
    name, other = rng.sample(_NAMES, 2)
    words = {"name": name, "other": other, "things": rng.choice(_THINGS)}
    values = dict(zip("abcd", (*_draw(condition, rng), rng.randint(2, 40)), strict=True))
    story = list(sentences)
    if rng.random() < _DISTRACTED:
        story.insert(rng.randint(0, len(story)), rng.choice(_DISTRACTORS))

    body = " ".join(story)
    order = re.findall(r"\{([abcd])\}", body)
    places = {letter: f"n{place}" for place, letter in enumerate(order)}
    numbers = tuple(float(values[letter]) for letter in order)
    equation = parse(" ".join(places.get(token, token) for token in formula.split()))
    body = body.format(**words, **dict.fromkeys(values, NUMBER))
    return Problem(
        problem_id=f"generated/{index:05d}",
        text=f"{body} {question.format(**words)}",
        numbers=numbers,
        equation=equation,
        answer=evaluate(equation, numbers),
        part="train",
    )
