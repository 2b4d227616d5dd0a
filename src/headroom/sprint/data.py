"""What SPRINT reads: embeddings, accuracy matrices and graded answers, as aligned arrays."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from headroom.errors import TableError
from headroom.sprint.evaluation import Answers
from headroom.tables import ACCURACY, EMBEDDINGS, GRADED, RANKING, TRAININGS, read_table
from headroom.variants import Variant


def read_embeddings(
    path: Path, questions: Sequence[str] | None = None
) -> tuple[list[str], Float[np.ndarray, "questions embedding_dim"]]:
    """Return question ids and their embeddings, in the order asked for or in the file's.

    Raises:
        TableError: the table is missing, damaged, empty, or lacks a question.
    """
    table = read_table(path, EMBEDDINGS).set_index("question_id")
    rows = list(table.index if questions is None else questions)
    if not rows:
        raise TableError(f"{path} holds no question; remove it and rerun")
    return rows, np.stack(_found(path, table, rows, ["vector"])["vector"].tolist())


def read_correct(
    path: Path, variants: Sequence[str]
) -> tuple[list[str], Bool[np.ndarray, "questions variants"]]:
    """Return question ids and the chosen columns of an accuracy matrix.

    Raises:
        TableError: the table is missing, damaged, or lacks a variant.
    """
    table = read_table(path, ACCURACY, exact=False).set_index("question_id")
    rows = list(table.index)
    return rows, _found(path, table, rows, list(variants)).to_numpy(dtype=bool)


def read_answers(
    path: Path, questions: Sequence[str], variants: Sequence[str], layers: int, samples: int = 1
) -> Answers:
    """Return graded answers: a row a question, a column for each sample of each variant.

    Args:
        path: of the table.
        questions: ids.
        variants: names.
        layers: how many the model has.
        samples: of each variant.

    Raises:
        TableError: the table is missing, damaged, or lacks an answer.
    """
    table = read_table(path, GRADED).set_index(["question_id", "variant", "sample"])
    cells = pd.MultiIndex.from_product([questions, variants, range(samples)])
    found = _found(path, table, cells, ["correct", "group", "tokens"])
    places = [Variant.parse(name).layer for name in variants]
    shared = [1.0 if layer is None else layer / layers for layer in places]
    columns = [found[name].to_numpy().reshape(len(questions), -1) for name in found]
    columns.append(np.tile(np.repeat(shared, samples), (len(questions), 1)))
    return Answers(*columns)


def read_ranking(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return question ids and, for each, the names of the heads, nearest first.

    Raises:
        TableError: the table is missing or damaged.
    """
    table = read_table(path, RANKING)
    return list(table["question_id"]), [list(heads) for heads in table["heads"]]


Rankings = dict[tuple[str, str, int], tuple[list[str], Int[np.ndarray, "questions pool"]]]
"""Question ids and, for each, numbers in the pool, best first: by method, training and seed."""


def read_trainings(path: Path) -> Rankings:
    """Return all rankings of a selector's pool.

    Raises:
        TableError: the table is missing or damaged.
    """
    grouped = read_table(path, TRAININGS).groupby(["method", "training", "seed"], sort=False)
    return {
        (str(method), str(training), int(str(seed))): (
            list(part["question_id"]),
            np.stack(part["heads"].tolist()),
        )
        for (method, training, seed), part in grouped
    }


def _found(path: Path, table: pd.DataFrame, rows: Any, columns: list[str]) -> pd.DataFrame:
    try:
        return table.loc[rows, columns]
    except KeyError as error:
        lacking = " ".join(str(error.args[0]).split())
        raise TableError(f"{path} lacks rows or columns: {lacking}; remove it and rerun") from None
