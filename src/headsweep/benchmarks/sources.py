"""Splits of the benchmarks, from the hub, from a local file or generated.

All sources are converted to the columns of `tables.QUESTIONS`. A row that cannot be used is an
error that names its line. Only the few rows of the published data that are known to lack a gold
answer, or to be duplicates, are left out with a warning.
"""

import gzip
import json
import logging
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from headsweep.benchmarks.generated import generate
from headsweep.benchmarks.golds import should_be
from headsweep.benchmarks.row_files import Row, RowError, csv_rows, json_rows
from headsweep.config import Questions
from headsweep.config.questions import Columns
from headsweep.errors import BenchmarkError, quoted
from headsweep.files import tables
from headsweep.files.plain_files import digest_of, expanded, open_to_read

_LOG = logging.getLogger(__name__)


class HubDataset(NamedTuple):
    """A dataset on the Hugging Face hub: its id, config (None if it has only one) and commit."""

    path: str
    name: str | None
    revision: str


PINNED = {
    # The test part of PRM800K's split of MATH; its test.jsonl at this commit has sha256 35dc4108...
    "math500": HubDataset(
        "HuggingFaceH4/MATH-500", None, "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be"
    ),
    # The train part of the same split.
    "math_train": HubDataset(
        "nlile/hendrycks-MATH-benchmark", None, "465bcdb36f5962aa3512891498966df785fc3c18"
    ),
    "gsm8k": HubDataset("openai/gsm8k", "main", "740312add88f781978c0658806c59bc2815b9866"),
}
"""The default source of each benchmark, if the config names no file and no other revision."""

_MATH = Columns(question="problem", id="unique_id", subject="subject", level="level")
_WITHOUT_ANSWER = {
    "train/algebra/24014.json",  # "\boxed 2" has no braces: PRM800K writes "None"
    "train/algebra/25040.json",  # "\boxed 9" likewise
    "train/number_theory/7115.json",  # the box is empty
    "train/number_theory/7117.json",  # the box is empty
}
"""Rows of MATH that the published files leave without a gold answer."""

_TWICE = {"test/precalculus/24307.json"}
"""MATH has this problem twice, under two ids; PRM800K gave both rows the same id."""

_GROUP = re.compile(r"Overall|Level \d")
"""What tables call groups of all subjects."""
_NAMED_PARTS = 5  # in an error
_MISSING = re.compile(r"[+-]?(?:nan|inf)|null", re.IGNORECASE)
"""What programs write in place of a number or text that is not there."""


def read_source(questions: Questions) -> pd.DataFrame:
    """Return the split that a question set is drawn from, in the columns of `tables.QUESTIONS`.

    Question ids are `unique_id` for MATH, which names the file in the original archive, and
    benchmark, split and row for GSM8K, which has no ids. Rows keep the order of the source.

    Raises:
        BenchmarkError: the source cannot be reached or read, is empty, does not match `revision`,
            has other columns, a row without an answer, or a duplicate id.
    """
    if questions.generated:
        assert questions.n is not None  # the config schema requires it
        return generate(
            questions.benchmark,
            questions.split,
            questions.n,
            questions.seed,
            apart=questions.templates == "apart",
        )
    if questions.file is not None:
        file = expanded(questions.file)
        return _table(questions, str(file), file_rows(file, questions.revision))
    hub = hub_dataset(questions)
    return _table(questions, hub.path, hub_rows(hub, questions.split))


def hub_dataset(questions: Questions) -> HubDataset:
    """Return the dataset on the hub that a question set is drawn from."""
    if questions.dataset is not None:
        return HubDataset(questions.dataset, questions.subset, questions.revision or "")
    pinned = PINNED[questions.benchmark]
    return pinned._replace(revision=questions.revision or pinned.revision)


def file_revision(file: Path) -> str:
    """Return the sha256 of a file's content.

    Raises:
        BenchmarkError: the file is missing or cannot be read.
    """
    try:
        return digest_of(file)
    except OSError as error:
        raise _unreadable(file, error) from None


def check_file(file: Path, revision: str | None) -> None:
    """Refuse a file that is missing, cannot be read, or is of another revision, if one is given.

    Raises:
        BenchmarkError: one line.
    """
    sha256 = file_revision(file)
    if revision not in (None, sha256):
        raise BenchmarkError(
            f"{file} has sha256 {sha256}, not the revision {revision} of the config; "
            f"restore the file, or remove `revision` from the config"
        )


def file_rows(file: Path, revision: str | None) -> Iterator[Row]:
    """Yield the rows of a JSON Lines or CSV file, gzipped or not; blank lines are skipped.

    Raises:
        BenchmarkError: the file is missing, damaged, of another kind or of another revision.
    """
    name = file.name.lower()
    kind = Path(name.removesuffix(".gz")).suffix
    if kind not in _READERS:
        raise BenchmarkError(
            f"{file} is neither .jsonl nor .csv, nor one of them with .gz; convert it, or rename it"
        )
    check_file(file, revision)
    place = "its beginning"
    try:
        with open_to_read(file) as stored:
            is_packed = name.endswith(".gz")
            stream: Any = gzip.GzipFile(fileobj=stored) if is_packed else stored
            for place, row in _READERS[kind](stream):
                yield place, row
    except RowError as error:
        raise BenchmarkError(f"{file} {error}") from None
    except (EOFError, zlib.error) as error:
        raise BenchmarkError(
            f"{file} is damaged or cut off after {place} ({error}); copy it again"
        ) from None
    except OSError as error:
        raise _unreadable(file, error) from None


_READERS = {".jsonl": json_rows, ".csv": csv_rows}


def hub_rows(hub: HubDataset, split: str) -> Iterator[Row]:
    """Yield the rows of a split on the hub or in the cache.

    Raises:
        BenchmarkError: the split cannot be fetched, or is of another revision: without network the
            library takes the newest that the cache has.
    """
    from datasets import load_dataset  # slow to import
    from datasets.exceptions import DatasetGenerationError, DatasetsError

    try:
        data = load_dataset(hub.path, hub.name, split=split, revision=hub.revision)
    except (OSError, ValueError, DatasetsError) as error:
        cause = error.__cause__ if isinstance(error, DatasetGenerationError) else None
        reason = " ".join(str(cause or error).split())[:200]
        raise BenchmarkError(
            f"{hub.path} (revision {hub.revision}) cannot be fetched ({reason}); give the command, "
            f"or `snakemake fetch` with this config, where there is network, or name a `file` with "
            f"the same columns"
        ) from error
    read = [*(data.info.download_checksums or ())]
    wanted = f"hf://datasets/{hub.path}@{hub.revision}/"
    if not read or not all(address.startswith(wanted) for address in read):
        raise BenchmarkError(
            f"{hub.path}: the cache has {quoted(read[0] if read else 'files of no known revision')}"
            f", not revision {hub.revision}; run `snakemake fetch` with this config where there is "
            f"network, or write the revision of what is there"
        )
    for number, row in enumerate(data, start=1):
        yield f"row {number}", row


def _table(questions: Questions, origin: str, rows: Iterable[Row]) -> pd.DataFrame:
    """Check and convert a source's rows, and return them as a table."""
    kept: dict[str, tuple[str, dict[str, Any]]] = {}
    left_out: list[str] = []
    column = questions.columns.split if questions.columns else None
    other_parts: dict[str, None] = {}  # in order, each once
    for index, (place, row) in enumerate(rows):
        part = questions.split if column is None else str(row.get(column, questions.split))
        if part != questions.split:
            other_parts[part] = None
            continue
        question = _question(f"{origin} {place}", row, questions, index)
        question_id = question["question_id"]
        if question["answer"] is None:
            left_out.append(f"{question_id} (no gold answer)")
        elif question_id not in kept:
            kept[question_id] = place, question
        elif question_id in _TWICE and question["question"] == kept[question_id][1]["question"]:
            left_out.append(f"{question_id} (second copy)")
        else:
            raise BenchmarkError(
                f"{origin}: id {question_id!r} is at {kept[question_id][0]} and again at {place}; "
                f"ids must be unique"
            )
    if not kept:
        if other_parts:
            there = ", ".join(map(quoted, [*other_parts][:_NAMED_PARTS]))
            raise BenchmarkError(
                f"{origin} has no questions whose {column} is {questions.split!r}; name a split "
                f"that it has: {there}"
            )
        raise BenchmarkError(f"{origin} has no questions; write one on each line")
    if left_out:
        _LOG.warning("%s: left out %d rows: %s", origin, len(left_out), ", ".join(left_out))
    return pd.DataFrame([row for _, row in kept.values()], columns=tables.QUESTIONS.columns)


class _Cells(NamedTuple):
    """A row's columns, and its place for messages."""

    place: str
    row: Mapping[str, Any]

    def text(self, name: str, *, number: bool = True) -> str:
        """Return a cell's text; a number is one, too, unless it is not to be.

        Raises:
            BenchmarkError: the cell is empty, or stands for a value that is not there.
        """
        value = self.row[name]
        if number and isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(name, f"a non-empty text{' or number' if number else ''}")
        if _MISSING.fullmatch(value.strip()):
            raise self.wrong(name, "a cell with content: NaN, inf and null stand for none")
        return value

    def wrong(self, name: str, allowed: str) -> BenchmarkError:
        """Return the error that names a cell, and what is allowed there."""
        return BenchmarkError(
            f"{self.place}: {name} is {_short(self.row[name])}, not {allowed}; correct the row"
        )


def _question(
    place: str, row: Mapping[str, Any], questions: Questions, index: int
) -> dict[str, Any]:
    """Convert a row to the columns of `tables.QUESTIONS`.

    `answer` is None in a row of MATH that is known to have none.
    """
    is_gsm8k = questions.benchmark == "gsm8k"
    columns = questions.columns or (Columns() if is_gsm8k else _MATH)
    _check_columns(place, row, columns)
    cells = _Cells(place, row)
    question_id = cells.text(columns.id) if columns.id else f"{index:06d}"
    solution: str | None = None
    answer: str | None
    if is_gsm8k:
        question_id = f"gsm8k/{questions.split}/{index:05d}"
        solution, answer = _solution_and_answer(cells)
    elif questions.columns is not None:
        answer = cells.text(columns.answer).strip()
        if allowed := should_be(answer, questions.grader):
            raise cells.wrong(columns.answer, f"{allowed}, as grader {questions.grader_name} needs")
        if columns.solution and str(row[columns.solution] or "").strip():
            solution = cells.text(columns.solution, number=False)
    else:
        solution = row.get("solution")
        answer = _answer_of_math(cells, question_id)
    level = _level(row[columns.level]) if columns.level else None
    if level is not None and (type(level) is not int or not 1 <= level <= 5):
        raise cells.wrong(columns.level or "", "a number from 1 to 5, or null")
    subject = cells.text(columns.subject) if columns.subject else None
    if subject and _GROUP.fullmatch(subject):
        raise cells.wrong(columns.subject or "", "another name: this is a group of all subjects")
    return {
        "question_id": question_id,
        "split": questions.split,
        "subject": subject,
        "level": level,
        "question": cells.text(columns.question, number=False),
        "answer": answer,
        "solution": solution,
        "source_row": index,
    }


def _solution_and_answer(cells: _Cells) -> tuple[str, str]:
    """Return the solution of a row of GSM8K, and the number behind it, after ``####``."""
    solution, mark, number = cells.text("answer", number=False).rpartition("####")
    answer = number.strip().replace(",", "")
    if not mark or not answer or _MISSING.fullmatch(answer):
        raise cells.wrong("answer", "a solution that ends with '#### ' and the final number")
    return solution.strip(), answer


def _answer_of_math(cells: _Cells, question_id: str) -> str | None:
    """Return the gold answer of a row of MATH; None if the row is known to have none."""
    if str(cells.row["answer"]).strip() not in ("", "None"):
        return cells.text("answer")
    if question_id in _WITHOUT_ANSWER:
        return None
    raise cells.wrong("answer", "an answer")


def _check_columns(place: str, row: Mapping[str, Any], columns: Columns) -> None:
    """Refuse a row that lacks a column."""
    names = [name for name in columns.model_dump().values() if name]
    header = next(iter(row), "")
    if len(row) == 1 and any(separator in header for separator in ";\t"):
        raise BenchmarkError(f"{place}: semicolons or tabs part its cells; save it with commas")
    for name in names:
        if name not in row:
            raise BenchmarkError(
                f"{place} has no {name!r}, only {', '.join(row) or 'nothing'}; the columns of this "
                f"benchmark are {', '.join(names)}; name your own under `columns`, or with options "
                f"as --question-column"
            )


def _level(value: Any) -> Any:
    """Return a level's number, if it is one; in CSV every cell is text.

    A column with gaps is of floats where pandas wrote it.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, str):
        return value
    text = value.strip()
    number = text.removesuffix(".0")
    return int(number) if number.isdecimal() else text or None


def _short(value: Any) -> str:
    """Return a value as JSON of at most 60 characters, for an error message."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _unreadable(file: Path, error: OSError) -> BenchmarkError:
    if not file.exists():
        return BenchmarkError(
            f"{file.absolute()} is missing; put it there, or name another; a config may give its "
            f"`revision` (sha256) if the store holds its questions already"
        )
    return BenchmarkError(f"{file} cannot be read ({error.strerror or error}); copy it again")
