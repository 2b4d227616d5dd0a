"""The files that a head selector's jobs read and write: its pool, its tables and their paths."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from headsweep.errors import TableError
from headsweep.experiments.sprint.pass_at_n import Answers
from headsweep.experiments.sprint.rankers import EmbeddedQuestions
from headsweep.experiments.sprint.validation import Z
from headsweep.files import safe_files, tables
from headsweep.files.record import Stopwatch, read_record, write_record
from headsweep.files.tables import FileKind, Table
from headsweep.store.batches import pool
from headsweep.store.layout import Store
from headsweep.variants import BASE, FAMILIES, Variant


class GradedAnswers:
    """The graded answers of a model of a config. Each table is read once."""

    def __init__(self, store: Store, model: str) -> None:
        self._store = store
        self._model = model
        keys = ["question_id", "variant", "sample"]
        self._read = cache(lambda path: safe_files.read_table(path, tables.GRADED).set_index(keys))

    def of(
        self,
        decoding: str,
        questions: str,
        variants: Sequence[str],
        ids: Sequence[str] | None = None,
        samples: int | None = None,
    ) -> Answers:
        """Return answers: a row for each question, a column for each variant and sample.

        Args:
            decoding: config name.
            questions: config name.
            variants: the variants that answer.
            ids: which questions; all if None.
            samples: how many samples of each variant; all if None.

        Raises:
            TableError: the table is missing or damaged, or lacks an answer.
        """
        path = self._path(tables.GRADED, decoding, questions)
        table = self._read(path)
        ids = list(table.index.unique("question_id")) if ids is None else ids
        samples = samples or self._store.config.decodings[decoding].samples
        cells = pd.MultiIndex.from_product([ids, variants, range(samples)])
        graded = _part(path, table, cells, ["correct", "group", "tokens"])
        depth = self._store.config.models[self._model].layers
        costs = [costs_of(Variant.parse(name), depth) for name in variants]

        def grid(column: str) -> np.ndarray:
            return graded[column].to_numpy().reshape(len(ids), -1)

        def repeated(shares: Sequence[float]) -> np.ndarray:
            """Repeat each variant's share for its samples, and all of them for each question."""
            return np.tile(np.repeat(shares, samples), (len(ids), 1))

        return Answers(
            correct=grid("correct"),
            group=grid("group"),
            tokens=grid("tokens"),
            shared=repeated([cost.shared for cost in costs]),
            alone=repeated([cost.alone for cost in costs]),
        )

    def prompt_tokens(self, decoding: str, questions: str) -> float:
        """Return the mean length of a question's prompt in tokens.

        NaN if the base model's record does not say it: answers to some questions were taken over
        from another draw where the model was not at hand.
        """
        base = self._path(tables.ANSWERS, decoding, questions, variant=BASE)
        return float(read_record(base).get("prompt_tokens", np.nan))

    def _path(self, kind: FileKind, decoding: str, questions: str, **names: object) -> Path:
        return self._store.path(
            kind, model=self._model, decoding=decoding, questions=questions, **names
        )


class PromptCost(NamedTuple):
    """The shares of a model's layers that process the prompt for a variant.

    Their sum is the work of a token as a share of the base model's.
    """

    shared: float
    """Layers that process it as in the base model."""
    alone: float
    """Layers that process it for this variant alone."""


def costs_of(variant: Variant, depth: int) -> PromptCost:
    """Return what a variant of a model of `depth` layers costs."""
    if variant.is_base:
        return PromptCost(1.0, 0.0)
    work = FAMILIES[variant.kind].work(variant, depth)
    below = (variant.layer or 0) / depth
    return PromptCost(shared=below, alone=work - below)


class Experiment:
    """A selector of a config: trained on one question set, tested on another.

    All methods that read raise `TableError` where a table is missing, damaged, or lacks rows.
    """

    def __init__(self, store: Store, name: str) -> None:
        self.name = name
        self.options = store.config.selectors[name]
        self.store = store
        self.stopwatch = Stopwatch()
        members = [BASE] if self.options.include_base else []
        self.heads = [str(member) for member in (*members, *pool(store.config, self.options))]
        """Names of the pool's members: the base model if it is included, then the heads, sorted."""

    def output(self, kind: FileKind) -> Path:
        """Return the path of one of the selector's files."""
        return self.store.path(kind, selector=self.name)

    def save(
        self,
        kind: FileKind,
        content: pd.DataFrame | str,
        facts: Mapping[str, Any],
        **measured: Any,
    ) -> None:
        """Write a file of the selector and its record.

        A Parquet table has the facts as its metadata; a CSV table has six significant digits. What
        was `measured` differs from run to run: only the record keeps it.
        """
        path = self.output(kind)
        if isinstance(content, str):
            safe_files.write_text(path, content)
        elif isinstance(kind, Table):
            safe_files.write_table(path, content, kind, facts)
        else:
            safe_files.write_csv(path, content, 6)
        write_record(path, self.stopwatch, {**facts, **measured})

    def questions(self, questions: str, ids: Sequence[str] | None = None) -> EmbeddedQuestions:
        """Return embeddings and subjects of a question set: of all or those given."""
        texts = self.texts(questions).set_index("question_id")
        embeddings = {}
        ids = list(texts.index) if ids is None else ids
        for name in self.options.embedder:
            path = self.store.path(tables.EMBEDDINGS, embedder=name, questions=questions)
            table = safe_files.read_table(path, tables.EMBEDDINGS).set_index("question_id")
            embeddings[name] = np.stack(_part(path, table, ids, ["vector"])["vector"].tolist())
        subjects = texts["subject"][list(ids)]
        known_subjects = [None if pd.isna(subject) else str(subject) for subject in subjects]
        return EmbeddedQuestions(ids, embeddings, known_subjects)

    def texts(self, questions: str) -> pd.DataFrame:
        """Return a question set, columns `headsweep.files.tables.QUESTIONS`."""
        return self.store.read(tables.QUESTIONS, questions=questions)

    def z(self, questions: str) -> tuple[list[str], Z]:
        """Return ids of a question set, and the pool's columns of its accuracy matrix."""
        path = self.store.path(
            tables.ACCURACY,
            model=self.options.model,
            decoding=self.options.decoding,
            questions=questions,
        )
        table = safe_files.read_table(path, tables.ACCURACY).set_index("question_id")
        rows = list(table.index)
        return rows, _part(path, table, rows, self.heads).to_numpy(dtype=bool)


def _part(path: Path, table: pd.DataFrame, rows: Any, columns: list[str]) -> pd.DataFrame:
    try:
        return table.loc[rows, columns]
    except KeyError as error:
        lacking = " ".join(str(error.args[0]).split())
        raise TableError(f"{path} lacks rows or columns: {lacking}; remove it and rerun") from None
