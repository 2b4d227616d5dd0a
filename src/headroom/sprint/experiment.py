"""What a head selector of a config reads and writes: its pool, its tables, where they lie."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from headroom import paths
from headroom.config import Config, Selector
from headroom.errors import TableError
from headroom.planning.batches import pool
from headroom.planning.store import Store
from headroom.record import Stopwatch, read_record, write_record
from headroom.sprint import methods, validation
from headroom.sprint.evaluation import Answers
from headroom.sprint.validation import Split
from headroom.tables import (
    ACCURACY,
    EMBEDDINGS,
    GRADED,
    QUESTIONS,
    TRAININGS,
    read_table,
    write_text,
)
from headroom.variants import BASE, Variant

Embeddings = dict[str, Float[np.ndarray, "questions embedding_dim"]]
"""By embedder, all of the same questions."""

Order = Int[np.ndarray, "questions pool"]
"""Numbers in the pool for each question, best first."""


@dataclass(frozen=True)
class Experiment:
    """A selector of a config: trained on one question set, tested on another."""

    config: Config
    name: str

    @property
    def options(self) -> Selector:
        """Its section of the config."""
        return self.config.selectors[self.name]

    @cached_property
    def store(self) -> Store:
        """Where its files lie."""
        return Store(self.config)

    @cached_property
    def heads(self) -> list[str]:
        """Names of the pool's members: heads, sorted, after the base model if it is one."""
        base = [BASE] if self.options.include_base else []
        return [str(member) for member in (*base, *pool(self.config, self.options))]

    @property
    def max_n(self) -> int:
        """Largest N: the pool has no more answers."""
        return min(self.options.max_n, len(self.heads))

    def output(self, template: str) -> Path:
        """Return where a file of the selector lies."""
        return self.store.path(template, selector=self.name, suffix="csv")

    def table(self, template: str, decoding: str, questions: str) -> Path:
        """Return where graded answers or Z of some decoding and question set lie."""
        names = {"model": self.options.model, "decoding": decoding, "questions": questions}
        return self.store.path(template, **names)

    def prompt_tokens(self, questions: str) -> float:
        """Return the mean length of a prompt, in tokens; NaN of answers from before it was kept."""
        answers = self.table(
            paths.ANSWERS.replace("{variant}", "base"), self.options.decoding, questions
        )
        return float(read_record(answers).get("prompt_tokens", math.nan))

    def embedded(self, questions: str, embedder: str) -> Path:
        """Return where the embeddings of a question set lie."""
        return self.store.path(paths.EMBEDDINGS, embedder=embedder, questions=questions)

    def embeddings(
        self, questions: str, ids: Sequence[str] | None = None
    ) -> tuple[list[str], Embeddings]:
        """Return questions of a set, all or by id, and their embeddings by each embedder.

        Raises:
            TableError: a table is missing, damaged, empty, or lacks a question.
        """
        found: Embeddings = {}
        for name in self.options.embedder:
            path = self.embedded(questions, name)
            table = read_table(path, EMBEDDINGS).set_index("question_id")
            ids = list(table.index if ids is None else ids)
            if not ids:
                raise TableError(f"{path} holds no question; remove it and rerun")
            found[name] = np.stack(_found(path, table, ids, ["vector"])["vector"].tolist())
        return list(ids or ()), found

    def texts(self, questions: str) -> pd.DataFrame:
        """Return a question set, columns `headroom.tables.QUESTIONS`."""
        return read_table(self.store.path(paths.QUESTIONS, questions=questions), QUESTIONS)

    def subjects(self, questions: str, ids: Sequence[str]) -> list[str | None]:
        """Return the subjects of some questions of a set."""
        found = self.texts(questions).set_index("question_id")["subject"]
        return [None if pd.isna(found[each]) else str(found[each]) for each in ids]

    def z(
        self, questions: str, variants: Sequence[str]
    ) -> tuple[list[str], Bool[np.ndarray, "questions variants"]]:
        """Return the ids of a question set and some columns of its accuracy matrix.

        Raises:
            TableError: the table is missing, damaged, or lacks a variant.
        """
        path = self.table(paths.ACCURACY, self.options.decoding, questions)
        table = read_table(path, ACCURACY, exact=False).set_index("question_id")
        rows = list(table.index)
        return rows, _found(path, table, rows, list(variants)).to_numpy(dtype=bool)

    def answers(
        self,
        questions: str,
        ids: Sequence[str],
        variants: Sequence[str] | None = None,
        decoding: str | None = None,
    ) -> Answers:
        """Return graded answers: a row a question, a column for each sample of each variant.

        Args:
            questions: name of the set.
            ids: of the questions.
            variants: names; by default the pool's.
            decoding: by default the selector's.

        Raises:
            TableError: the table is missing, damaged, or lacks an answer.
        """
        decoding, variants = decoding or self.options.decoding, variants or self.heads
        samples = self.config.decodings[decoding].samples
        path = self.table(paths.GRADED, decoding, questions)
        table = read_table(path, GRADED).set_index(["question_id", "variant", "sample"])
        cells = pd.MultiIndex.from_product([ids, variants, range(samples)])
        found = _found(path, table, cells, ["correct", "group", "tokens"])
        layers = self.config.models[self.options.model].layers
        places = [Variant.parse(name).layer for name in variants]
        shared = [1.0 if layer is None else layer / layers for layer in places]
        columns = [found[name].to_numpy().reshape(len(ids), -1) for name in found]
        columns.append(np.tile(np.repeat(shared, samples), (len(ids), 1)))
        return Answers(*columns)

    def samples(self, ids: Sequence[str]) -> dict[str, Answers]:
        """Return the base model's sampled answers to the test questions, by display name."""
        decodings, options = self.config.decodings, self.options
        temperatures = {name: decodings[name].temperature for name in options.sampling}
        return {
            method: self.answers(options.test, ids, [str(BASE)], decoding)
            for decoding, method in methods.sampling(temperatures).items()
        }

    @cached_property
    def _rankings(self) -> dict[tuple[str, str, int], tuple[list[str], Order]]:
        """Question ids and their rankings, by method, training and seed."""
        table = read_table(self.output(paths.TRAININGS), TRAININGS)
        return {
            (str(method), str(training), int(str(seed))): (
                list(part["question_id"]),
                np.stack(part["heads"].tolist()),
            )
            for (method, training, seed), part in table.groupby(
                ["method", "training", "seed"], sort=False
            )
        }

    def trainings(self) -> tuple[list[str], dict[tuple[str, str], list[Order]]]:
        """Return the test questions' ids and their rankings, one a seed, by method and training.

        Raises:
            TableError: the table is missing or damaged.
        """
        found = self._rankings
        questions = found[methods.SPRINT, validation.ALL, self.options.seeds[0]][0]
        orders: dict[tuple[str, str], list[Order]] = defaultdict(list)
        for (method, training, _), (_, order) in found.items():
            orders[method, training].append(order)
        return questions, orders

    def held_out(
        self, questions: Sequence[str], method: str = methods.SPRINT
    ) -> Iterator[tuple[Split, Order]]:
        """Yield folds of the training questions, each ranked by what was trained without it.

        Args:
            questions: ids of the training questions, in the order of `z`.
            method: SPRINT or a rival.
        """
        found = self._rankings
        seed = self.options.seeds[0]
        for number, fold in enumerate(
            validation.folds(len(questions), self.options.validation, seed)
        ):
            yield fold, found[method, validation.without(number), seed][1]


def write_csv(path: Path, table: pd.DataFrame, stopwatch: Stopwatch, facts: dict[str, Any]) -> None:
    """Write a table with six significant digits, and its record."""
    write_text(path, table.to_csv(index=False, float_format="%.6g", lineterminator="\n"))
    write_record(path, stopwatch, facts)


def _found(path: Path, table: pd.DataFrame, rows: Any, columns: list[str]) -> pd.DataFrame:
    try:
        return table.loc[rows, columns]
    except KeyError as error:
        lacking = " ".join(str(error.args[0]).split())
        raise TableError(f"{path} lacks rows or columns: {lacking}; remove it and rerun") from None
