"""What a head selector of a config reads and writes: its pool, its tables, where they lie."""

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
from headroom.planning.batches import pool
from headroom.planning.store import Store
from headroom.record import Stopwatch, write_record
from headroom.sprint import data, methods, validation
from headroom.sprint.evaluation import Answers
from headroom.sprint.validation import Split
from headroom.tables import QUESTIONS, read_table, write_text
from headroom.variants import BASE

Embeddings = dict[str, Float[np.ndarray, "questions embedding_dim"]]
"""By embedder, all of the same questions."""


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

    def embedded(self, questions: str, embedder: str) -> Path:
        """Return where the embeddings of a question set lie."""
        return self.store.path(paths.EMBEDDINGS, embedder=embedder, questions=questions)

    def embeddings(
        self, questions: str, ids: Sequence[str] | None = None
    ) -> tuple[list[str], Embeddings]:
        """Return questions of a set, all or by id, and their embeddings by each embedder."""
        found: Embeddings = {}
        for name in self.options.embedder:
            ids, found[name] = data.read_embeddings(self.embedded(questions, name), ids)
        return list(ids or ()), found

    def texts(self, questions: str) -> pd.DataFrame:
        """Return a question set, columns `headroom.tables.QUESTIONS`."""
        return read_table(self.store.path(paths.QUESTIONS, questions=questions), QUESTIONS)

    def subjects(self, questions: str, ids: Sequence[str]) -> list[str | None]:
        """Return the subjects of some questions of a set."""
        found = self.texts(questions).set_index("question_id")["subject"]
        return [None if pd.isna(found[each]) else str(found[each]) for each in ids]

    def training_z(
        self, variants: Sequence[str]
    ) -> tuple[list[str], Bool[np.ndarray, "questions variants"]]:
        """Return the training questions' ids and their Z."""
        path = self.table(paths.ACCURACY, self.options.decoding, self.options.train)
        return data.read_correct(path, variants)

    def answers(
        self, questions: str, ids: Sequence[str], variants: Sequence[str] | None = None
    ) -> Answers:
        """Return graded answers to a question set, a column a variant: by default the pool's."""
        path = self.table(paths.GRADED, self.options.decoding, questions)
        return data.read_answers(path, ids, variants or self.heads, self._layers)

    def samples(self, ids: Sequence[str]) -> dict[str, Answers]:
        """Return the base model's sampled answers to the test questions, by display name."""
        decodings = self.config.decodings
        temperatures = {name: decodings[name].temperature for name in self.options.sampling}
        return {
            method: data.read_answers(
                self.table(paths.GRADED, decoding, self.options.test),
                ids,
                [str(BASE)],
                self._layers,
                decodings[decoding].samples,
            )
            for decoding, method in methods.sampling(temperatures).items()
        }

    def nearest(self) -> tuple[list[str], Int[np.ndarray, "questions pool"]]:
        """Return the test questions' ids and, for each, numbers in the pool, nearest first."""
        questions, ranked = data.read_ranking(self.output(paths.RANKING))
        number = {head: index for index, head in enumerate(self.heads)}
        return questions, np.array([[number[head] for head in row] for row in ranked])

    @property
    def _layers(self) -> int:
        return self.config.models[self.options.model].layers

    @cached_property
    def _rankings(self) -> data.Rankings:
        return data.read_trainings(self.output(paths.TRAININGS))

    def trainings(
        self,
    ) -> tuple[list[str], dict[tuple[str, str], list[Int[np.ndarray, "questions pool"]]]]:
        """Return the test questions' ids and their rankings, one a seed, by method and training."""
        found = self._rankings
        questions = found[methods.SPRINT, validation.ALL, self.options.seeds[0]][0]
        orders: dict[tuple[str, str], list[Int[np.ndarray, "questions pool"]]] = defaultdict(list)
        for (method, training, _), (_, order) in found.items():
            orders[method, training].append(order)
        return questions, orders

    def held_out(
        self, questions: Sequence[str], method: str = methods.SPRINT
    ) -> Iterator[tuple[Split, Int[np.ndarray, "held_out pool"]]]:
        """Yield folds of the training questions, each ranked by what was trained without it.

        Args:
            questions: ids of the training questions, in the order of `training_z`.
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
