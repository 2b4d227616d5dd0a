"""The work on one question set under one decoding of one model: what is asked, kept, lacking.

Light: no torch, no pandas. A job whose answers are all there loads no more.
"""

import contextlib
import io
import json
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.json import ParseOptions, ReadOptions, read_json

from headsweep import paths
from headsweep.config import Config, Decoding, Family
from headsweep.errors import EngineError, TableError
from headsweep.generation import journal
from headsweep.planning.batches import Batch, find_batch
from headsweep.planning.store import Store, settings, split_key
from headsweep.record import Stopwatch, record_path, write_record
from headsweep.tables import ANSWERS, QUESTIONS, read_arrow, read_metadata, write_table
from headsweep.variants import BASE, Variant

_LOG = logging.getLogger(__name__)

Key = tuple[str, int]  # question id and sample: what a variant gives one answer to


@dataclass(frozen=True)
class Unit:
    """Requests that an engine answers in one run."""

    decoding: Decoding
    family: Family
    questions: dict[str, str]  # texts by question id
    requests: list[tuple[Variant, Key]]
    base: dict[str, list[int]]
    """What is known of the base model's answers, by question id: a draft for the others'."""


@dataclass(frozen=True)
class Work:
    """A batch of the plan, by config names, and its files."""

    config: Config
    model: str
    decoding: str
    questions: str

    @cached_property
    def keys(self) -> dict[str, str]:
        """The keys that fill the path templates."""
        return Store(self.config).keys(
            model=self.model, decoding=self.decoding, questions=self.questions
        )

    @cached_property
    def split(self) -> str:
        """Key of the split: answers to its questions are good for every draw from it."""
        return split_key(self.config, self.questions)

    @cached_property
    def texts(self) -> dict[str, str]:
        """The questions, by id, in order.

        Raises:
            TableError: the question set is missing or damaged.
        """
        table = read_arrow(Path(QUESTIONS.path.format(**self.keys)), QUESTIONS)
        ids, texts = (table.column(name).to_pylist() for name in ("question_id", "question"))
        return dict(zip(ids, texts, strict=True))

    @cached_property
    def batch(self) -> Batch:
        """The batch, with all variants that the config has answer these questions."""
        return find_batch(self.config, self.model, self.decoding, self.questions)

    @property
    def lacking(self) -> list[Variant]:
        """The variants of the batch whose table is missing."""
        return [each for each in self.batch.variants if not self.output(each).exists()]

    def part(self, variant: Variant) -> str:
        """Name the part of the batch that one engine answers: all, or a group in a SLURM job."""
        if "SLURM_JOB_ID" not in os.environ:
            return "all"
        return self.batch.groups.get(variant, "not planned")

    def output(self, variant: Variant) -> Path:
        """Return the path of a variant's table."""
        return Path(ANSWERS.path.format(variant=variant, **self.keys))

    def journal(self, variant: Variant) -> Path:
        """Return where a variant's answers are kept until they are complete."""
        return Path(paths.JOURNAL.format(variant=variant, **self.keys))

    def finished(self, variant: Variant) -> Path:
        """Return the second name of a variant's table, for the time of a run."""
        return Path(paths.FINISHED.format(variant=variant, **self.keys))

    def lock(self, variant: Variant) -> str:
        """Return the name of the lock that whoever answers with a variant holds."""
        return "/".join([*self.keys.values(), str(variant)])

    def unanswered(self, variant: Variant) -> list[Key]:
        """Return what a variant has not answered, in order."""
        # An NFS client may take its own picture of a folder for true for a minute; a change of the
        # folder has it look at what others have put there.
        with contextlib.suppress(OSError):
            os.utime(self.journal(variant).parent)
        if self._finished_before(variant):
            return []
        kept = self._kept(variant)[0]
        return [key for key in self._asked if key not in kept]

    def so_far(self, variant: Variant) -> pa.Table:
        """Return a variant's answers so far, as `tables.ANSWERS`: of its table, else its journal.

        Nothing is locked or changed: an engine may be at work.

        Raises:
            TableError: the table is damaged.
        """
        kept = self._kept(variant)[0]  # before the table, which takes the journal's place
        for file in (self.output(variant), self.finished(variant)):
            if file.exists():
                return read_arrow(file, ANSWERS)
        return _table([*kept.values()]) if kept else ANSWERS.schema.empty_table()

    def missing(self, variant: Variant) -> list[Key]:
        """Return what a variant has not answered, in order; its lock must be held.

        Answers that the store holds, made for another draw from the same split, are taken over
        into the journal first.
        """
        if left := self.unanswered(variant):
            found = dict(self._elsewhere(variant))
            if taken := [found[key] for key in left if key in found]:
                journal.append(self.journal(variant), taken)
            left = [key for key in left if key not in found]
        return left

    def unit(self, requests: list[tuple[Variant, Key]], base: dict[str, list[int]]) -> Unit:
        """Return requests with all that an engine needs to answer them."""
        asked = {question for _, (question, _) in requests}
        return Unit(
            self.config.decodings[self.decoding],
            self.config.questions[self.questions].family,
            {question: text for question, text in self.texts.items() if question in asked},
            requests,
            {question: tokens for question, tokens in base.items() if question in asked},
        )

    def base(self) -> dict[str, list[int]]:
        """Return the token ids of the base model's greedy answers, as far as they are known."""
        if not self.config.decodings[self.decoding].greedy:
            return {}
        rows = list(self._kept(BASE)[0].values())
        if self.output(BASE).exists():
            rows = read_arrow(self.output(BASE), ANSWERS).to_pylist()
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
        kept, engine = self._kept(variant)
        complete = kept.keys() >= set(self._asked)
        # A run may have been killed between a table and its record, which the journal survives.
        unrecorded = complete and not record_path(output).exists()
        if self._finished_before(variant) and not unrecorded:  # maybe by a twin of the job
            _link(self.finished(variant), output)
            journal.remove(self.journal(variant))
            return len(self._asked)
        if not complete:
            raise EngineError(f"{self.journal(variant)} has lost answers; run again")
        rows = [kept[key] for key in self._asked]
        facts = {**self.keys, "variant": str(variant), "split": self.split}
        write_table(output, _table(rows), ANSWERS, facts)
        facts |= engine | {
            "settings": {
                "model": settings(self.config, "models", self.model),
                "decoding": settings(self.config, "decodings", self.decoding),
                "questions": settings(self.config, "questions", self.questions),
            },
            "answers": len(rows),
            "reused": sum(row.get("reused", False) for row in rows),
            "new_tokens": sum(len(row["token_ids"]) for row in rows),
            "truncated": sum(row["stop_reason"] == "length" for row in rows),
        }
        if prompts := [row["prompt_tokens"] for row in rows if "prompt_tokens" in row]:
            facts["prompt_tokens"] = sum(prompts) / len(prompts)  # not of answers taken over
        write_record(output, stopwatch, facts)
        _link(output, self.finished(variant))
        journal.remove(self.journal(variant))
        return len(rows)

    @cached_property
    def _asked(self) -> list[Key]:
        samples = range(self.config.decodings[self.decoding].samples)
        return [(question, sample) for question in self.texts for sample in samples]

    def _finished_before(self, variant: Variant) -> bool:
        try:
            read_arrow(self.finished(variant), ANSWERS)
        except TableError:
            return False
        return True

    def _kept(self, variant: Variant) -> tuple[dict[Key, dict[str, Any]], dict[str, Any]]:
        """Return the answers in the journal, and what their engine said of itself."""
        answers: dict[Key, dict[str, Any]] = {}
        engine: dict[str, Any] = {}
        for record in journal.read(self.journal(variant)):
            engine = record.pop("engine", engine)
            if record:
                answers[record["question_id"], record["sample"]] = record
        return answers, engine

    def _elsewhere(self, variant: Variant) -> Iterator[tuple[Key, dict[str, Any]]]:
        """Yield the variant's answers to other draws from the same split."""
        output = self.output(variant)
        for file in sorted(output.parent.parent.glob(f"*/{output.name}")):
            if file == output:
                continue
            try:
                if read_metadata(file).get("split") == self.split:
                    for row in read_arrow(file, ANSWERS).to_pylist():
                        yield (row["question_id"], row["sample"]), {**row, "reused": True}
            except TableError as error:
                _LOG.warning("not reused: %s", error)


def keep_finished(table: Path) -> None:
    """Give a table of answers, if it is there, its second name before a run.

    Snakemake removes the output of a job before it starts it, and it starts jobs whose model or
    question set is made again. The second name brings the answers back.
    """
    if table.exists():
        _link(table, Path(paths.STORE, ".journal", table.relative_to(paths.STORE)))


def forget_finished(config: Config, complete: Iterable[Batch]) -> None:
    """Drop the second names of the tables of batches whose jobs have all ended."""
    for batch in complete:
        work = Work(config, **batch.names)
        folder = work.finished(BASE).parent
        for file in folder.glob("*.parquet"):
            if (work.output(BASE).parent / file.name).exists():
                with contextlib.suppress(OSError):  # the next run tries again
                    file.unlink()
        with contextlib.suppress(OSError):  # not there, or not empty: another run is under way
            folder.rmdir()


def _link(file: Path, name: Path) -> None:
    """Give a file a second name; where the disk knows no hard links, it has just the first."""
    name.parent.mkdir(parents=True, exist_ok=True)
    temporary = name.with_name(f".{name.name}.{os.getpid()}.tmp")
    try:
        with contextlib.suppress(OSError):
            os.link(file, temporary)
            temporary.replace(name)
    finally:
        temporary.unlink(missing_ok=True)  # rename leaves it where both name one file


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    """Make a table of answers; Arrow's reader of JSON does not import pandas, `from_pylist` does.

    That import would take as long as everything else in a job whose answers are journaled.
    """
    lines = "\n".join(map(json.dumps, rows)).encode()
    answers = ParseOptions(explicit_schema=ANSWERS.schema, unexpected_field_behavior="ignore")
    return read_json(io.BytesIO(lines), ReadOptions(block_size=len(lines)), answers)
