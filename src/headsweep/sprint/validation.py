"""Splits, folds and redraws of the training questions, the score by which settings are chosen, and
the test questions that resemble a training question.

The score of a setting is its Pass@N on the held-out part, averaged over N = 1..max_n and over
splits: the area under the curve. Where Pass@N saturates at large N, small N decide.
"""

import re
from collections import Counter, defaultdict
from itertools import product

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from headsweep.config import Selector
from headsweep.config.experiments import Geometry
from headsweep.errors import ConfigError
from headsweep.statistics.answers import pass_at_n_ordered

Z = Bool[np.ndarray, "questions pool"]
"""Which head of the pool solves which question."""

Order = Int[np.ndarray, "questions pool"]
"""For each question, numbers of heads in the pool, best first."""

Rows = Int[np.ndarray, " questions"]
"""Numbers of training questions."""

ALL = "all"
"""Name of the training on all training questions."""

REDRAWN = 2 / 3
"""Share of the training questions in each redraw."""


RESEMBLING = ["question_id", "degree", "training_id"]

_GRAM = 8
_CONTAINED = 0.5
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORD = re.compile(r"\w+|[^\w\s]")


def readings(options: Selector) -> dict[str, tuple[Geometry, float]]:
    """Return geometry and λ of every reading of the loss that a config asks for, by name."""
    pairs = product(options.geometry, options.diversity)
    return {f"{geometry}, λ = {value:g}": (geometry, value) for geometry, value in pairs}


def splits(questions: int, options: Selector) -> list[tuple[Rows, Rows]]:
    """Return a random split for each seed: the questions to learn from, and those held out.

    Raises:
        ConfigError: there are fewer than two questions.
    """
    held_out = min(max(1, round(questions * options.validation)), questions - 1)
    orders = [_shuffled(questions, seed) for seed in options.seeds]
    return [(np.sort(order[held_out:]), np.sort(order[:held_out])) for order in orders]


def redraws(questions: int, options: Selector) -> dict[str, Rows]:
    """Return by name what is trained on: all questions, then random subsamples of them.

    Subsamples are drawn without replacement; they show how far results depend on the draw (see
    `headsweep.sprint.evaluation.paired`).
    """
    size = max(2, round(questions * REDRAWN))  # a setting is chosen on a split of them
    found = {ALL: np.arange(questions)}
    for number in range(options.redraws):
        draw = np.random.default_rng([number, questions])
        found[f"redraw {number}"] = np.sort(draw.choice(questions, size, replace=False))
    return found


def folds(questions: int, options: Selector) -> dict[str, Rows]:
    """Return folds, by name of the training on all others; each question is in exactly one.

    Raises:
        ConfigError: there are fewer than two questions.
    """
    count = min(max(2, round(1 / options.validation)), questions)
    order = _shuffled(questions, options.seeds[0])
    return {f"without fold {number}": np.sort(order[number::count]) for number in range(count)}


def ranked_pass(correct: Z, order: Order, max_n: int) -> Float[np.ndarray, " max_n"]:
    """Return mean Pass@1..max_n over questions, heads taken in each question's order."""
    ranked = np.take_along_axis(correct, order, axis=1)
    return pass_at_n_ordered(ranked, max_n).mean(axis=0)


def _shuffled(questions: int, seed: int) -> Rows:
    if questions < 2:
        raise ConfigError(f"{questions} training questions cannot be split; use at least 2")
    return np.random.default_rng(seed).permutation(questions)


def overlap(train: pd.DataFrame, test: pd.DataFrame) -> pd.DataFrame:
    """Return the test questions that resemble a training question, columns `RESEMBLING`.

    Both sets have columns `question_id` and `question`. A degree is the first of these that holds:

    - ``same id``: the sets share the question.
    - ``same text``: ignoring case and white space.
    - ``other numbers``: the same text after masking all numbers.
    - ``8-grams``: one training question has at least half of the question's 8-grams of words. Brown
      et al. 2020 (appendix C) search training data of language models with 13-grams; these
      questions are shorter.
    - ``unknown``: the question's text is not available (an export without texts).
    """
    pairs = list(zip(train["question_id"], train["question"], strict=True))
    known: list[dict[str, str]] = [{}, {}, {}]
    holders: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for question_id, text in pairs:
        for forms, form in zip(known, (question_id, _folded(text), _masked(text)), strict=True):
            forms.setdefault(form, question_id)
        for gram in _grams(text):
            holders[gram].add(question_id)
    rows = []
    for question_id, text in zip(test["question_id"], test["question"], strict=True):
        same_id, same_text, masked = known
        found = {"same id": same_id.get(question_id)}
        if text:
            found["same text"] = same_text.get(_folded(text))
            found["other numbers"] = masked.get(_masked(text))
            found["8-grams"] = _container(_grams(text), holders)
        else:
            found["unknown"] = ""
        degree = next((degree for degree in found if found[degree] is not None), None)
        if degree is not None:
            rows.append((question_id, degree, found[degree]))
    return pd.DataFrame(rows, columns=RESEMBLING)


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
