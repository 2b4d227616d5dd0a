"""Test questions that resemble a training question.

Each has the first of these degrees that holds:

- ``same id``: the sets share the question.
- ``same text``: ignoring case and white space.
- ``other numbers``: the same text after masking all numbers.
- ``8-grams``: one training question has at least half of the question's 8-grams of words. Brown et
  al. 2020 (appendix C) search training data of language models with 13-grams; these questions are
  shorter.
- ``unknown``: the question's text is not available (an export without texts).
"""

import re
from collections import Counter, defaultdict

import pandas as pd

COLUMNS = ["question_id", "degree", "training_id"]

_GRAM = 8
_CONTAINED = 0.5
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORD = re.compile(r"\w+|[^\w\s]")


def overlap(train: pd.DataFrame, test: pd.DataFrame) -> pd.DataFrame:
    """Return the test questions that resemble a training question, columns `COLUMNS`.

    Args:
        train: columns `question_id` and `question`.
        test: the same.
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
    return pd.DataFrame(rows, columns=COLUMNS)


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
