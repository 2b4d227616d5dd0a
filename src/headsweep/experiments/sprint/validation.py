"""Splits and redraws of the training questions, the score by which settings are chosen, and the
test questions that resemble a training question.

The score of a setting is its Pass@N on the held-out part, averaged over N = 1..max_n and over
splits: the area under the curve. Where Pass@N saturates at large N, small N decide.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from headsweep.config import Selector
from headsweep.config.experiments import Geometry
from headsweep.errors import ConfigError
from headsweep.statistics.answers import pass_at_n_ordered
from headsweep.statistics.differences import SUBSAMPLE
from headsweep.text import percent

Z = Bool[np.ndarray, "questions pool"]
"""Which head of the pool solves which question."""

Order = Int[np.ndarray, "questions pool"]
"""For each question, numbers of heads in the pool, best first."""

Rows = Int[np.ndarray, " questions"]
"""Numbers of training questions."""

ALL = "all"
"""Name of the training on all training questions."""

LIKENESS = ["question_id", "degree", "training_id", "equal", "resembles"]
"""Columns of the table of test questions: the degree to which each resembles a training question,
and which one; 1 if it equals one but for numbers, 1 if it resembles one to any degree, else 0, and
empty where that is unknown."""

APART_FROM_ALL, UNKNOWN = "none", "unknown"
_EQUAL = ("same id", "same text", "other numbers")

_GRAM = 8
_CONTAINED = 0.5
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORD = re.compile(r"\w+|[^\w\s]")


class LossReading(NamedTuple):
    """A reading of the loss and of the questions, all else as chosen."""

    geometry: Geometry
    diversity: float
    """λ."""
    embedder: str
    against: str = ""
    """Name of the reading that it is held against; empty for those that others are held against."""


def reading_of(setting: Mapping[str, Any]) -> LossReading:
    """Return the reading of a selector's chosen setting."""
    return LossReading(setting["geometry"], setting["diversity"], setting["embedder"])


def reading_title(setting: Mapping[str, Any] | LossReading) -> str:
    """Return the geometry and λ of a selector's setting, as ``sphere, λ = 0.1``."""
    reading = setting if isinstance(setting, LossReading) else reading_of(setting)
    return f"{reading.geometry}, λ = {reading.diversity:g}"


def readings(options: Selector, chosen: LossReading) -> dict[str, LossReading]:
    """Return by name every reading that a config asks for.

    With the chosen embedder, every geometry and λ: each is held against the least λ, such as 0,
    of its geometry. Every other embedder, with the chosen geometry and λ, is held against the
    chosen one.
    """

    def name(reading: LossReading) -> str:
        title = reading_title(reading)
        return f"{title}, {reading.embedder}" if len(options.embedder) > 1 else title

    named_readings = {}
    least = min(options.diversity)
    for geometry, diversity in product(options.geometry, options.diversity):
        reading = chosen._replace(geometry=geometry, diversity=diversity)
        without = name(reading._replace(diversity=least))
        against = "" if diversity == least else without
        named_readings[name(reading)] = reading._replace(against=against)
    for embedder in options.embedder:
        if embedder != chosen.embedder:
            reading = chosen._replace(embedder=embedder)
            named_readings[name(reading)] = reading._replace(against=name(chosen))
    return named_readings


def splits(questions: int, options: Selector) -> list[tuple[Rows, Rows]]:
    """Return a random split for each seed: the questions to learn from, and those held out.

    Raises:
        ConfigError: there are fewer than two questions.
    """
    if questions < 2:
        raise ConfigError(f"{questions} training questions cannot be split; use at least 2")
    held_out = min(max(1, round(questions * options.validation)), questions - 1)
    orders = [np.random.default_rng(seed).permutation(questions) for seed in options.seeds]
    return [(np.sort(order[held_out:]), np.sort(order[:held_out])) for order in orders]


def redraws(questions: int, options: Selector) -> dict[str, Rows]:
    """Return by name what is trained on: all questions, then random subsamples of them.

    Subsamples are drawn without replacement; they show how far results depend on the draw (see
    `headsweep.statistics.differences`).
    """
    size = max(2, round(questions * SUBSAMPLE))  # a setting is chosen on a split of them
    rows = {ALL: np.arange(questions)}
    for number, name in enumerate(draws(options)[1:]):
        draw = np.random.default_rng([number, questions])
        rows[name] = np.sort(draw.choice(questions, size, replace=False))
    return rows


def draws(options: Selector) -> list[str]:
    """Return the names of `redraws`."""
    return [ALL, *(f"redraw {number}" for number in range(options.redraws))]


def ranked_pass(correct: Z, order: Order, max_n: int) -> Float[np.ndarray, " max_n"]:
    """Return mean Pass@1..max_n over questions, heads taken in each question's order."""
    ranked = np.take_along_axis(correct, order, axis=1)
    return pass_at_n_ordered(ranked, max_n).mean(axis=0)


def overlap(train: pd.DataFrame, test: pd.DataFrame, *, one_origin: bool = True) -> pd.DataFrame:
    """Return to what degree each test question resembles a training question, columns `LIKENESS`.

    Both sets have columns `question_id` and `question`. A degree is the first of these that holds:

    - ``same id``: the sets share the question. Ids are compared if both sets have `one_origin`:
      those of different files may be equal by chance, as row numbers are.
    - ``same text``: ignoring case and white space.
    - ``other numbers``: the same text after masking all numbers.
    - ``8-grams``: one training question has at least half of the question's 8-grams of words. Brown
      et al. 2020 (appendix C) search training data of language models with 13-grams; these
      questions are shorter.
    - ``unknown``: its text, or that of a training question, is missing (an export without texts).
    - ``none``.
    """
    same_id, same_text, masked = dict[str, str](), dict[str, str](), dict[str, str]()
    holders: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for question_id, text in zip(train["question_id"], train["question"], strict=True):
        if one_origin:
            same_id[question_id] = question_id
        if text:
            same_text.setdefault(_folded(text), question_id)
            masked.setdefault(_masked(text), question_id)
        for gram in _grams(text):
            holders[gram].add(question_id)
    all_known = bool((train["question"] != "").all())
    rows = []
    for question_id, text in zip(test["question_id"], test["question"], strict=True):
        alike = {
            "same id": same_id.get(question_id),
            "same text": same_text.get(_folded(text)),
            "other numbers": masked.get(_masked(text)),
            "8-grams": _container(_grams(text), holders),
        }
        otherwise = APART_FROM_ALL if text and all_known else UNKNOWN
        degree = next((degree for degree in alike if alike[degree] is not None), otherwise)
        rows.append((question_id, degree, alike.get(degree)))
    table = pd.DataFrame(rows, columns=LIKENESS[:3])
    is_known = table["degree"] != UNKNOWN
    table["equal"] = table["degree"].isin(_EQUAL).astype("Int8").where(is_known)
    table["resembles"] = (table["degree"] != APART_FROM_ALL).astype("Int8").where(is_known)
    return table


LIKE = (
    "Of {n} test questions {equal} equal a training question but for numbers; {resembling} "
    "resemble one."
)
"""Says what a table of `overlap` has."""
SOME_UNKNOWN = "Of the others it is unknown: texts are missing."
ALL_UNKNOWN = (
    "Whether test questions resemble training questions is unknown: their texts are missing."
)


def likeness(table: pd.DataFrame) -> str:
    """Say how many test questions resemble training questions, from a table of `overlap`."""
    rows = table.dropna(subset="resembles")
    if rows.empty:
        return ALL_UNKNOWN
    sentence = LIKE.format(
        equal=percent(rows["equal"].mean()),
        resembling=percent(rows["resembles"].mean()),
        n=f"{len(rows):,}",
    )
    return sentence if len(rows) == len(table) else f"{sentence} {SOME_UNKNOWN}"


def _container(grams: set[tuple[str, ...]], holders: dict[tuple[str, ...], set[str]]) -> str | None:
    """Return the training question with most of the n-grams, if it has enough of them."""
    held = Counter(holder for gram in grams for holder in holders.get(gram, ()))
    if not held:
        return None
    holder, count = min(held.items(), key=lambda item: (-item[1], item[0]))
    return holder if count >= _CONTAINED * len(grams) else None


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _masked(text: str) -> str:
    return _NUMBER.sub("#", _folded(text))


def _grams(text: str) -> set[tuple[str, ...]]:
    words = _WORD.findall(_folded(text))
    return {tuple(words[i : i + _GRAM]) for i in range(len(words) - _GRAM + 1)}
