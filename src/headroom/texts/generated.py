"""Generated texts, for the demo and for tests: which colour comes first; who took what where.

Words are separated by spaces. No text stands in two parts.
"""

from random import Random

from headroom.config.texts import Task
from headroom.errors import BenchmarkError
from headroom.texts.text import Text

_NAMES = ("ada", "ben", "carla", "dan", "elif", "femi", "gita", "hugo", "ines", "jonas", "kofi")
_THINGS = ("apple", "book", "card", "coin", "lamp", "map", "pencil", "shell", "stamp", "vase")
_VERBS = ("bought", "found", "lost", "sold", "took")
_PLACES = ("beside", "behind", "under", "near")
_ROOMS = ("attic", "cellar", "garden", "hall", "kitchen", "office", "shed")
_WEATHERS = ("cold", "dry", "hot", "warm", "wet", "windy")
_COLOURS = ("red", "blue")
_SHARES = (7, 1, 2)
"""Training, development and test part, of ten."""
_TRIES = 1000


def generate(task: Task, n: int, seed: int) -> list[list[Text]]:
    """Return training, development and test part, n texts in all.

    Raises:
        BenchmarkError: there are not so many different ones.
    """
    rng = Random(f"{task}/{seed}")
    make = _colours if task == "classification" else _deeds
    seen: set[str] = set()
    parts: list[list[Text]] = [[], [], []]
    part_of = [part for part, share in enumerate(_SHARES) for _ in range(share)]
    for number in range(n):
        text = next(
            (one for _ in range(_TRIES) if (one := make(rng, number)).text not in seen), None
        )
        if text is None:
            raise BenchmarkError(f"n: {n} is more than can be made; ask for at most {number}")
        seen.add(text.text)
        parts[part_of[number % len(part_of)]].append(text)
    return parts


def _colours(rng: Random, number: int) -> Text:
    """Both colours are named; the label is the first."""
    first, second = rng.sample(_COLOURS, 2)
    things = rng.sample(_THINGS, 3)
    words = f"the {first} {things[0]} lies {rng.choice(_PLACES)} the {second} {things[1]} ."
    other = f"{rng.choice(_NAMES)} {rng.choice(_VERBS)} the {things[2]} ."
    text = rng.choice([words, f"{other} {words}", f"{words} {other}"])
    return Text(f"{number:05d}", text, None, (first,))


def _deeds(rng: Random, number: int) -> Text:
    """Somebody took something somewhere; the answer is who, what or where."""
    name, place = rng.choice(_NAMES), rng.choice(_ROOMS)
    thing = rng.choice(_THINGS)
    if rng.random() < 0.5:
        thing = f"{rng.choice(_COLOURS)} {thing}"
    words = f"{name} took the {thing} to the {place} ."
    other = f"it was a {rng.choice(_WEATHERS)} day ."
    context = rng.choice([words, f"{other} {words}", f"{words} {other}"])
    question, answer = rng.choice(
        [("who took it ?", name), ("what was taken ?", thing), ("where is it now ?", place)]
    )
    return Text(f"{number:05d}", context, question, (answer,), (context.index(answer),))
