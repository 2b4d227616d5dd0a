"""What a decoder learns and is asked: questions, some with its own right answer."""

from typing import NamedTuple

import pandas as pd

from headroom.errors import ModelError
from headroom.variants import BASE


class Question(NamedTuple):
    """A question, with an answer to learn where there is one."""

    question_id: str
    subject: str
    text: str
    gold: str
    taught: tuple[int, ...] = ()
    """Token ids of the unpruned model's own right answer."""
    ended: bool = True
    """Whether that answer came to its end before the token limit."""


def to_answer(questions: pd.DataFrame) -> list[Question]:
    """Return a question set (`tables.QUESTIONS`) to be answered."""
    return [
        Question(row["question_id"], row["subject"] or "all", row["question"], row["answer"])
        for row in questions.astype(object).where(questions.notna(), None).to_dict("records")
    ]


def to_learn(
    questions: pd.DataFrame, answers: pd.DataFrame, graded: pd.DataFrame
) -> list[Question]:
    """Return the questions of a training set that the unpruned model answers right.

    Args:
        questions: the question set, as `tables.QUESTIONS`.
        answers: the model's answers to it, one each, as `tables.ANSWERS`.
        graded: their verdicts, as `tables.GRADED`; other variants are passed over.

    Raises:
        ModelError: no answer is right.
    """
    right = set(graded[(graded["variant"] == str(BASE)) & graded["correct"]]["question_id"])
    given = {row["question_id"]: row for row in answers.to_dict("records")}
    found = [
        row._replace(
            taught=tuple(map(int, given[row.question_id]["token_ids"])),
            ended=given[row.question_id]["stop_reason"] == "eos",
        )
        for row in to_answer(questions)
        if row.question_id in right
    ]
    if not found:
        raise ModelError(
            f"none of {len(questions)} training questions is answered right, so there is nothing "
            f"to learn from; use easier questions, or a better model"
        )
    return found
