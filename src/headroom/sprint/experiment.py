"""The files that a head selector's jobs read and write: its pool, its tables and their paths."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from jaxtyping import Bool, Int

from headroom import paths
from headroom.config import Config, Selector
from headroom.errors import TableError
from headroom.planning.batches import pool
from headroom.planning.store import Store
from headroom.record import Stopwatch, read_record, write_record
from headroom.sprint import methods, validation
from headroom.sprint.evaluation import Answers
from headroom.sprint.rankers import Questions
from headroom.tables import (
    ACCURACY,
    EMBEDDINGS,
    GRADED,
    QUESTIONS,
    TRAININGS,
    read_table,
    write_table,
    write_text,
)
from headroom.variants import BASE, FAMILIES, Variant

Order = Int[np.ndarray, "questions pool"]
"""For each question, head numbers in the pool, best first."""


@dataclass(frozen=True)
class GradedAnswers:
    """The graded answers of a model of a config. Each table is read once."""

    config: Config
    model: str
    """Config name."""
    _tables: dict[Path, pd.DataFrame] = field(default_factory=dict)

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
        names = {"model": self.model, "decoding": decoding, "questions": questions}
        path = Store(self.config).path(paths.GRADED, **names)
        if path not in self._tables:
            keys = ["question_id", "variant", "sample"]
            self._tables[path] = read_table(path, GRADED).set_index(keys)
        table = self._tables[path]
        ids = list(table.index.unique("question_id")) if ids is None else ids
        samples = samples or self.config.decodings[decoding].samples
        cells = pd.MultiIndex.from_product([ids, variants, range(samples)])
        found = _found(path, table, cells, ["correct", "group", "tokens"])
        correct, group, tokens = (found[name].to_numpy().reshape(len(ids), -1) for name in found)
        depth = self.config.models[self.model].layers
        costs = [costs_of(Variant.parse(name), depth) for name in variants]
        work, *passes = np.tile(np.repeat(costs, samples, axis=0), (len(ids), 1, 1)).T
        return Answers(correct, group, tokens, tokens * work.T, *(part.T for part in passes))

    def prompt_tokens(self, decoding: str, questions: str) -> float:
        """Return the mean length of a question's prompt in tokens; NaN if unknown.

        Answers taken over from another draw do not tell it; where all of the base model's were, the
        variant with the fewest does.
        """
        names = {"model": self.model, "decoding": decoding, "questions": questions}
        base = Store(self.config).path(paths.ANSWERS, variant=BASE, **names)
        found = read_record(base)
        if "prompt_tokens" not in found:
            others = map(read_record, sorted(base.parent.glob("*.parquet")))
            known = (each for each in others if "prompt_tokens" in each)
            found = min(known, key=lambda each: each.get("reused", 0), default={})
        return float(found.get("prompt_tokens", np.nan))


def costs_of(variant: Variant, depth: int) -> tuple[float, float, float]:
    """Return what a variant of a model with `depth` layers costs, as shares of the base model's.

    Returns:
        The work of a generated token; the share of the layers that process the prompt as in the
        base model; the share that processes it for this variant alone.
    """
    if variant.is_base:
        return 1.0, 1.0, 0.0
    if FAMILIES[variant.kind].on_weights:
        return 1.0, 0.0, 1.0
    work, first = FAMILIES[variant.kind].work(variant, depth), (variant.layer or 0) / depth
    return work, first, work - first


@dataclass(frozen=True)
class Experiment:
    """A selector of a config: trained on one question set, tested on another.

    All methods that read raise `TableError` where a table is missing, damaged, or lacks rows.
    """

    config: Config
    name: str
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    @property
    def options(self) -> Selector:
        """The selector's section of the config."""
        return self.config.selectors[self.name]

    @cached_property
    def store(self) -> Store:
        """Paths of the run's files."""
        return Store(self.config)

    @cached_property
    def heads(self) -> list[str]:
        """Names of the pool's members: the base model if it is included, then the heads, sorted."""
        base = [BASE] if self.options.include_base else []
        return [str(member) for member in (*base, *pool(self.config, self.options))]

    @property
    def max_n(self) -> int:
        """Largest N, at most the size of the pool."""
        return min(self.options.max_n, len(self.heads))

    def output(self, template: str) -> Path:
        """Return the path of one of the selector's files."""
        return self.store.path(template, selector=self.name)

    def save(
        self,
        template: str,
        content: pd.DataFrame | str,
        facts: Mapping[str, Any],
        schema: pa.Schema | None = None,
        **measured: Any,
    ) -> None:
        """Write a file of the selector and its record.

        Args:
            template: path template, from `headroom.paths`.
            content: a text or a table.
            facts: kept in the record, and in the metadata of a Parquet table.
            schema: schema of a Parquet table; without one a table is CSV with six significant
                digits.
            measured: facts that differ from run to run; only the record keeps them.
        """
        path = self.output(template)
        if schema is not None and not isinstance(content, str):
            write_table(path, content, schema, facts)
        else:
            if not isinstance(content, str):
                content = content.to_csv(index=False, float_format="%.6g", lineterminator="\n")
            write_text(path, content)
        write_record(path, self.stopwatch, {**facts, **measured})

    def embedded(self, questions: str, embedder: str) -> Path:
        """Return the path of a question set's embeddings."""
        return self.store.path(paths.EMBEDDINGS, embedder=embedder, questions=questions)

    def questions(
        self, questions: str, ids: Sequence[str] | None = None
    ) -> tuple[list[str], Questions]:
        """Return ids, and embeddings with subjects, of a question set: all or those given."""
        found = {}
        for name in self.options.embedder:
            path = self.embedded(questions, name)
            table = read_table(path, EMBEDDINGS).set_index("question_id")
            ids = list(table.index if ids is None else ids)
            if not ids:
                raise TableError(f"{path} holds no question; remove it and rerun")
            found[name] = np.stack(_found(path, table, ids, ["vector"])["vector"].tolist())
        ids = list(ids or ())
        subject = self.texts(questions).set_index("question_id")["subject"][ids]
        return ids, Questions(found, [None if pd.isna(each) else str(each) for each in subject])

    def texts(self, questions: str) -> pd.DataFrame:
        """Return a question set, columns `headroom.tables.QUESTIONS`."""
        return read_table(self.store.path(paths.QUESTIONS, questions=questions), QUESTIONS)

    def z(self, questions: str) -> tuple[list[str], Bool[np.ndarray, "questions pool"]]:
        """Return ids of a question set, and the pool's columns of its accuracy matrix."""
        names = {"decoding": self.options.decoding, "questions": questions}
        path = self.store.path(paths.ACCURACY, model=self.options.model, **names)
        table = read_table(path, ACCURACY, exact=False).set_index("question_id")
        rows = list(table.index)
        return rows, _found(path, table, rows, self.heads).to_numpy(dtype=bool)

    @cached_property
    def graded(self) -> GradedAnswers:
        """The model's graded answers."""
        return GradedAnswers(self.config, self.options.model)

    def answers(self, questions: str, ids: Sequence[str]) -> Answers:
        """Return the pool's answers to some questions of a set."""
        return self.graded.of(self.options.decoding, questions, self.heads, ids)

    def samples(self, ids: Sequence[str]) -> dict[str, Answers]:
        """Return the base model's sampled answers to the test questions, by display name."""
        decodings, options = self.config.decodings, self.options
        temperatures = {name: decodings[name].temperature for name in options.sampling}
        return {
            method: self.graded.of(decoding, options.test, [str(BASE)], ids)
            for decoding, method in methods.sampling(temperatures).items()
        }

    @cached_property
    def rankings(self) -> dict[tuple[str, str], list[Order]]:
        """Rankings by method and training, one for each seed, of `tested` or the fold left out."""
        found = defaultdict(list)
        columns = ["method", "training", "seed"]
        for (method, training, _), part in self._trainings.groupby(columns, sort=False):
            found[str(method), str(training)].append(np.stack(part["heads"].tolist()))
        return dict(found)

    @cached_property
    def tested(self) -> list[str]:
        """Ids of the test questions, in the order of their rankings."""
        table = self._trainings
        own = (table["method"] == methods.SPRINT) & (table["training"] == validation.ALL)
        return list(table.loc[own & (table["seed"] == self.options.seeds[0]), "question_id"])

    @cached_property
    def _trainings(self) -> pd.DataFrame:
        return read_table(self.output(paths.TRAININGS), TRAININGS)


def _found(path: Path, table: pd.DataFrame, rows: Any, columns: list[str]) -> pd.DataFrame:
    try:
        return table.loc[rows, columns]
    except KeyError as error:
        lacking = " ".join(str(error.args[0]).split())
        raise TableError(f"{path} lacks rows or columns: {lacking}; remove it and rerun") from None
