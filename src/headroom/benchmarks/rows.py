"""From a source's own columns to a question: one converter a kind of benchmark."""

import json
from collections.abc import Callable
from typing import Any

from headroom.config import Questions
from headroom.errors import BenchmarkError

_MATH_KEYS = ("problem", "answer", "subject", "level", "unique_id")
_GSM8K_KEYS = ("question", "answer")
_NO_ANSWER = ("", "None")
WITHOUT_ANSWER = {
    "train/algebra/24014.json",  # "\boxed 2" has no braces: PRM800K writes "None"
    "train/algebra/25040.json",  # "\boxed 9" likewise
    "train/number_theory/7115.json",  # the box is empty
    "train/number_theory/7117.json",  # the box is empty
}
"""Rows of MATH that the published files leave without a gold answer."""


class Reader:
    """Reads the columns of one row; its errors say where the row stands."""

    def __init__(self, place: str, row: dict[str, Any]) -> None:
        self.place = place
        self.row = row

    def require(self, keys: tuple[str, ...]) -> None:
        """Refuse a row that lacks a column."""
        missing = [key for key in keys if key not in self.row]
        if missing:
            raise BenchmarkError(
                f"{self.place} has no {missing[0]!r} but {', '.join(self.row) or 'nothing'}; "
                f"the columns of this benchmark are {', '.join(keys)}"
            )

    def text(self, key: str) -> str:
        """Return a column's text; only an answer may be empty."""
        value = self.row[key]
        if not isinstance(value, str) or not (value.strip() or key == "answer"):
            raise self.error(key, "a text that is not empty")
        return value

    def written(self, key: str) -> str:
        """Return a column's text, or its number as text."""
        value = self.row[key]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or not value.strip():
            raise self.error(key, "a text or number that is not empty")
        return value

    def level(self, key: str = "level") -> int | None:
        """Return a column's level, 1 to 5, or None."""
        value = self.row[key]
        if isinstance(value, str):  # all that CSV has
            value = int(value) if value.strip().isdecimal() else value.strip() or None
        if value is not None and (type(value) is not int or not 1 <= value <= 5):
            raise self.error(key, "a number from 1 to 5, or null")
        return value

    def error(self, key: str, allowed: str) -> BenchmarkError:
        """Return the error of a column that is not what it has to be."""
        return BenchmarkError(
            f"{self.place}: {key} is {short(self.row[key])}, not {allowed}; correct the row"
        )


def converter(questions: Questions) -> Callable[[Reader, Questions, int], dict[str, Any] | None]:
    """Return what turns a row of this benchmark into columns of `tables.QUESTIONS`.

    It takes the row, the section and the row's number; None stands for a row that is known to have
    no gold answer. Columns that a benchmark lacks are left out, and so are split and source row.
    """
    if questions.benchmark == "custom":
        return _custom
    return _gsm8k if questions.benchmark == "gsm8k" else _math


def _math(reader: Reader, questions: Questions, index: int) -> dict[str, Any] | None:
    reader.require(_MATH_KEYS)
    question_id, answer = reader.text("unique_id"), reader.text("answer")
    if answer.strip() in _NO_ANSWER:
        if question_id in WITHOUT_ANSWER:
            return None
        raise reader.error("answer", "an answer")
    return {
        "question_id": question_id,
        "subject": reader.text("subject"),
        "level": reader.level(),
        "question": reader.text("problem"),
        "answer": answer,
        "solution": reader.row.get("solution"),
    }


def _gsm8k(reader: Reader, questions: Questions, index: int) -> dict[str, Any]:
    """Convert a row of GSM8K, whose gold answer is the number after ``####``."""
    reader.require(_GSM8K_KEYS)
    solution, mark, answer = reader.text("answer").rpartition("####")
    answer = answer.strip().replace(",", "")
    if not mark or not answer:
        raise reader.error("answer", "a solution that ends with '#### ' and the final number")
    return {
        "question_id": f"gsm8k/{questions.split}/{index:05d}",
        "question": reader.text("question"),
        "answer": answer,
        "solution": solution.strip(),
    }


def _custom(reader: Reader, questions: Questions, index: int) -> dict[str, Any]:
    """Convert a row of a benchmark of the user's own, whose columns the config names."""
    columns = questions.columns
    assert columns is not None  # the schema fills it in
    reader.require(tuple(name for name in columns.model_dump().values() if name))
    return {
        "question_id": reader.written(columns.id) if columns.id else f"{index:06d}",
        "subject": reader.written(columns.subject) if columns.subject else None,
        "level": reader.level(columns.level) if columns.level else None,
        "question": reader.text(columns.question),
        "answer": reader.written(columns.answer).strip(),
    }


def short(value: Any) -> str:
    """Return a value as an error shows it."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
