"""The answers of one model to one question set under one decoding: which are wanted, kept, missing.

This module imports neither torch nor pandas: a job whose answers are all there needs neither. But
where some were taken over from another draw, the base model's job loads a tokenizer.
"""

import contextlib
import io
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow.json import ParseOptions, ReadOptions, read_json

from headsweep.config import Config, Decoding, GraderName
from headsweep.config.titles import title
from headsweep.engine.unit import Begun, Key, Unit
from headsweep.errors import EngineError, HeadsweepError, TableError, quoted
from headsweep.files import paths
from headsweep.files.plain_files import sync_file
from headsweep.files.record import Stopwatch, record_path, write_record
from headsweep.files.safe_files import read_arrow, read_metadata, write_table
from headsweep.files.tables import ANSWERS, QUESTIONS
from headsweep.models.guard import read_decoder_config
from headsweep.store import journal
from headsweep.store.batches import Batch
from headsweep.store.hard_links import link
from headsweep.store.keys import settings, split_key
from headsweep.variants import BASE, Variant
from headsweep.words import doing

_LOG = logging.getLogger(__name__)
_MOST_BYTES = 1 << 30  # of a block of JSON
_ENDS = ("eos", "length", "stop")  # `requests.StopReason`, which imports numpy
_MOST_TOKENS = 1 << 31  # ids of tokens have 32 bits


class _Journaled(NamedTuple):
    """What a journal holds."""

    answers: dict[Key, dict[str, Any]]
    begun: dict[Key, Begun]  # of each answer the record of the highest rank
    engine: dict[str, Any]  # what the last engine said of itself


@dataclass(frozen=True)
class Work:
    """The answers of a batch: its tables, its journals, and what they lack."""

    batch: Batch

    @property
    def config(self) -> Config:
        """The config that the batch is of."""
        return self.batch.store.config

    @property
    def decoding(self) -> Decoding:
        """How the batch is decoded."""
        return self.config.decodings[self.batch.decoding]

    @cached_property
    def split(self) -> str:
        """Key of the split: answers to its questions are good for every draw from it."""
        return split_key(self.config, self.batch.questions)

    @property
    def told(self) -> str:
        """What is done, in words."""
        names = {
            "model": title(self.config, "models", self.batch.model),
            "questions": title(self.config, "questions", self.batch.questions),
            "decoding": self.batch.decoding,
        }
        return doing("generate", names)

    @cached_property
    def texts(self) -> dict[str, str]:
        """The questions, by id, in order.

        Raises:
            TableError: the question set is missing or damaged.
        """
        table = read_arrow(self.batch.path(QUESTIONS), QUESTIONS)
        ids, texts = (table.column(name).to_pylist() for name in ("question_id", "question"))
        return dict(zip(ids, texts, strict=True))

    def check_prompts(self) -> None:
        """Refuse questions that the model cannot read, before the first is answered.

        Raises:
            ModelError, BenchmarkError, TableError: one line.
        """
        from headsweep.benchmarks.prompts import check_prompts  # imports transformers

        check_prompts(self._model_folder, self.texts, self.decoding, self.grader_name)

    @property
    def lacking(self) -> list[Variant]:
        """The variants of the batch whose table is missing."""
        return [variant for variant in self.batch.variants if not self.output(variant).exists()]

    def output(self, variant: Variant) -> Path:
        """Return the path of a variant's table."""
        return self.batch.path(ANSWERS, variant=variant)

    def journal(self, variant: Variant) -> Path:
        """Return where a variant's answers are kept until they are complete."""
        return self.batch.path(paths.JOURNAL, variant=variant)

    def finished(self, variant: Variant) -> Path:
        """Return the second name of a variant's table, for the time of a run."""
        return self.batch.path(paths.FINISHED, variant=variant)

    def lock(self, variant: Variant) -> str:
        """Return the name of the lock that whoever answers with a variant holds."""
        return "/".join([*self.batch.keys, str(variant)])

    def unanswered(self, variant: Variant) -> list[Key]:
        """Return what a variant has not answered, in order."""
        # An NFS client may take its own picture of a folder for true for a minute; a change of the
        # folder has it look at what others have put there.
        with contextlib.suppress(OSError):
            os.utime(self.journal(variant).parent)
        answers = self._journaled(variant).answers  # before the table, which takes its place
        if self._finished_before(variant):
            return []
        return [key for key in self.wanted if key not in answers]

    @property
    def counted(self) -> tuple[int, int]:
        """How many answers of the batch's variants are there, and how many are wanted.

        Those to other draws from the same split are there, too. Records of journals are counted
        without parsing them: half of a paper's sweep is 400 MB.

        Raises:
            TableError: the question set is missing or damaged.
        """
        each = len(self.wanted)
        total = each * len(self.batch.variants)
        lacking = 0
        for variant in self.lacking:
            ended = journal.count_ended(self.journal(variant))
            elsewhere = len(self.answered_elsewhere(variant).intersection(self.wanted))
            lacking += each - min(each, max(ended, elsewhere))
        return total - lacking, total

    def so_far(self, variant: Variant) -> pa.Table:
        """Return a variant's answers so far, as `tables.ANSWERS`: of its table, else its journal.

        Nothing is locked or changed: an engine may be at work.

        Raises:
            TableError: the table is damaged.
        """
        # Read before the table, which takes the journal's place.
        answers = self._journaled(variant).answers
        for file in (self.output(variant), self.finished(variant)):
            if file.exists():
                return read_arrow(file, ANSWERS)
        return _table([*answers.values()]) if answers else ANSWERS.schema.empty_table()

    def take_over(self, variant: Variant) -> None:
        """Put answers to other draws from the same split into the journal; the lock must be held.

        Taken are those that this question set lacks.
        """
        lacking = self.unanswered(variant)
        if not lacking:
            return
        answers = {
            (row["question_id"], row["sample"]): {**row, "reused": True}
            for row in self._rows_elsewhere(variant)
        }
        reusable = [answers[key] for key in lacking if key in answers]
        if reusable:
            journal.append(self.journal(variant), reusable)

    def answered_elsewhere(self, variant: Variant) -> set[Key]:
        """Return what tables of other draws from the same split answer."""
        return {
            (row["question_id"], row["sample"])
            for row in self._rows_elsewhere(variant, ["question_id", "sample"])
        }

    def begun(self, variant: Variant) -> dict[Key, Begun]:
        """Return what an engine, stopped since, had of a variant's answers."""
        return self._journaled(variant).begun

    def unit(
        self,
        requests: list[tuple[Variant, Key]],
        base: dict[str, list[int]],
        begun: Mapping[tuple[Variant, Key], Begun] = MappingProxyType({}),
    ) -> Unit:
        """Return requests with all that an engine needs to answer them."""
        questions = {question for _, (question, _) in requests}
        return Unit(
            self.decoding,
            self.grader_name,
            {question: text for question, text in self.texts.items() if question in questions},
            requests,
            {question: tokens for question, tokens in base.items() if question in questions},
            dict(begun),
        )

    def base(self) -> dict[str, list[int]]:
        """Return the token ids of the base model's greedy answers, as far as they are known."""
        if not self.decoding.greedy:
            return {}
        rows = list(self._journaled(BASE).answers.values())
        if self.output(BASE).exists():
            rows = read_arrow(self.output(BASE), ANSWERS).to_pylist()
            if problem := next(filter(None, map(self._problem, rows)), None):
                raise TableError(f"{self.output(BASE)}: {problem}; remove it and run again")
        return {row["question_id"]: row["token_ids"] for row in rows}

    def write(self, variant: Variant, stopwatch: Stopwatch) -> int:
        """Make a variant's table and record from its complete journal; return how many answers.

        The variant's lock must be held: two that write at once remove each other's journal.
        A table that was finished before and that Snakemake has removed is put back: it removes the
        output of a job that it did not see end, and of all jobs of a group of which one fails.

        Raises:
            EngineError: the journal is not complete: someone has removed it.
        """
        output = self.output(variant)
        journaled = self._journaled(variant)
        is_complete = journaled.answers.keys() >= set(self.wanted)
        was_finished = self._finished_before(variant)
        # A run may have been killed between a table and its record, which the journal survives.
        if is_complete and not (was_finished and record_path(output).exists()):
            self._write_complete(variant, journaled, stopwatch)
            for file in (output, record_path(output)):  # or a power cut may cost both
                sync_file(file)
            link(output, self.finished(variant))
        elif was_finished:  # Snakemake has removed the table, or a twin of the job has written it
            link(self.finished(variant), output)
        else:
            raise EngineError(f"{self.journal(variant)} has lost answers; run again")
        journal.remove(self.journal(variant))
        return len(self.wanted)

    def _write_complete(
        self, variant: Variant, journaled: _Journaled, stopwatch: Stopwatch
    ) -> None:
        """Write a variant's table and record from all its answers."""
        rows = [journaled.answers[key] for key in self.wanted]
        names = {**self.batch.keys._asdict(), "variant": str(variant), "split": self.split}
        write_table(self.output(variant), _table(rows), ANSWERS, names)
        facts = {
            **names,
            **journaled.engine,
            "settings": {
                "model": settings(self.config, "models", self.batch.model),
                "decoding": settings(self.config, "decodings", self.batch.decoding),
                "questions": settings(self.config, "questions", self.batch.questions),
            },
            "answers": len(rows),
            "reused": sum(row.get("reused", False) for row in rows),
            "new_tokens": sum(len(row["token_ids"]) for row in rows),
            "truncated": sum(row["stop_reason"] == "length" for row in rows),
        }
        if (prompt_tokens := self._prompt_tokens(variant, rows)) is not None:
            facts["prompt_tokens"] = prompt_tokens
        write_record(self.output(variant), stopwatch, facts)

    def _prompt_tokens(self, variant: Variant, rows: Sequence[Mapping[str, Any]]) -> float | None:
        """Return the mean length of a question's prompt in tokens; None if it is not known.

        Answers taken over from another draw do not tell it. Then prompts are counted, once for all
        variants, if the model is here.
        """
        lengths = [row["prompt_tokens"] for row in rows if "prompt_tokens" in row]
        if len(lengths) < len(rows):
            if not variant.is_base:
                return None
            try:
                folder = self._model_folder
                # Imports transformers.
                from headsweep.benchmarks.prompts import encode_within_limits

                asked = [*self.texts.values()]
                encoded = encode_within_limits(folder, asked, self.decoding, self.grader_name)
                lengths = [*map(len, encoded.prompts)]
            except HeadsweepError as error:
                _LOG.info("the length of prompts is unknown: %s", error)
                return None
        return sum(lengths) / len(lengths)

    @property
    def _model_folder(self) -> Path:
        return self.batch.store.model_folder(self.batch.model)

    @property
    def grader_name(self) -> GraderName:
        """How the answers are graded, which the prompt's last words depend on."""
        return self.config.questions[self.batch.questions].grader_name

    @cached_property
    def wanted(self) -> list[Key]:
        """What each variant is to answer, in order: questions, each with its samples."""
        samples = range(self.decoding.samples)
        return [(question, sample) for question in self.texts for sample in samples]

    def _finished_before(self, variant: Variant) -> bool:
        try:
            read_arrow(self.finished(variant), ANSWERS)
        except TableError:
            return False
        return True

    def _journaled(self, variant: Variant) -> _Journaled:
        """Read a variant's journal."""
        answers: dict[Key, dict[str, Any]] = {}
        begun: dict[Key, Begun] = {}
        engine: dict[str, Any] = {}
        for record in journal.read(self.journal(variant)):
            if "engine" in record:
                engine = record.pop("engine")
            if not record:
                continue
            if problem := self._problem(record):
                _LOG.warning("%s: left out, and made again: %s", self.journal(variant), problem)
                continue
            key = record["question_id"], record["sample"]
            if "stop_reason" in record:
                answers[key] = record
                continue
            # Records of engines that knew of no attempts are of the first.
            kept = Begun(record["token_ids"], record["margin"], record.get("attempt", 0))
            if key not in begun or kept.rank > begun[key].rank:
                begun[key] = kept
        return _Journaled(answers, begun, engine)

    def _problem(self, row: Mapping[str, Any]) -> str:
        """Return why a row or record cannot be an answer, or the beginning of one; empty if it can.

        A token that the model does not have would end every engine that reads it.
        """
        tokens = row.get("token_ids")
        most = self.decoding.max_new_tokens
        name = f"an answer to question {quoted(row.get('question_id'))}"
        if not isinstance(tokens, list) or not set(map(type, tokens)) <= {int}:
            return f"{name} has tokens {quoted(tokens)}, which are no ids"
        if len(tokens) > most:
            return f"{name} has {len(tokens)} tokens, and {most} is the limit"
        if tokens and not 0 <= min(tokens) <= max(tokens) < self._vocabulary:
            beyond = min(tokens) if min(tokens) < 0 else max(tokens)
            return f"{name} has token {beyond}, and the model has 0 to {self._vocabulary - 1}"
        numbers = [row.get("sample"), row.get("prompt_tokens", 1), row.get("attempt", 0)]
        if not all(type(number) is int and 0 <= number < _MOST_TOKENS for number in numbers):
            return f"{name} has sample, prompt_tokens and attempt {quoted(numbers)}"
        texts = [row.get("question_id"), row.get("text", ""), row.get("stop_reason", "eos")]
        if not all(isinstance(text, str) for text in texts) or texts[-1] not in _ENDS:
            return f"{name} has id, text and stop_reason {quoted(texts)}"
        if not isinstance(row.get("margin"), float | int):
            return f"{name} has margin {quoted(row.get('margin'))}"
        return ""

    @cached_property
    def _vocabulary(self) -> int:
        """How many tokens the model has, where it is here and says so."""
        try:
            stated = read_decoder_config(self._model_folder).get("vocab_size")
        except HeadsweepError:  # answers are graded where no model is
            return _MOST_TOKENS
        return stated if isinstance(stated, int) else _MOST_TOKENS

    def _rows_elsewhere(
        self, variant: Variant, columns: list[str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield the variant's rows in tables of other draws from the same split."""
        output = self.output(variant)
        for file in sorted(output.parent.parent.glob(f"*/{output.name}")):
            if file == output:
                continue
            try:
                if read_metadata(file).get("split") == self.split:
                    rows = read_arrow(file, ANSWERS, columns=columns).to_pylist()
                    if problem := columns is None and next(
                        filter(None, map(self._problem, rows)), None
                    ):
                        raise TableError(f"{file}: {problem}")
                    yield from rows
            except TableError as error:
                _LOG.warning("not reused: %s", error)


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    """Make a table of answers; Arrow's reader of JSON does not import pandas, `from_pylist` does.

    That import would take as long as everything else in a job whose answers are journaled.
    """
    lines = "\n".join(map(json.dumps, rows)).encode()
    size = min(len(lines), _MOST_BYTES)  # Arrow counts a block's bytes in 32 bits
    answers = ParseOptions(explicit_schema=ANSWERS.schema, unexpected_field_behavior="ignore")
    return read_json(io.BytesIO(lines), ReadOptions(block_size=size), answers)
