"""Complete splits of the benchmarks: from the hub, from a local file, or generated.

All sources are converted to the columns of `tables.QUESTIONS`. A row that cannot be used is an
error that names its line. Only the few rows of the published data that are known to lack a gold
answer, or to be duplicates, are left out with a warning.
"""

import csv
import gzip
import hashlib
import json
import logging
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from headroom import tables
from headroom.benchmarks.generated import generate
from headroom.config import Questions
from headroom.config.questions import Columns
from headroom.errors import BenchmarkError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class HubDataset:
    """A dataset on the Hugging Face hub, pinned."""

    path: str
    """Hub id."""
    name: str | None
    """Config of the dataset; None if it has only one."""
    revision: str
    """Commit hash."""


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
_NO_ANSWER = ("", "None")
_WITHOUT_ANSWER = {
    "train/algebra/24014.json",  # "\boxed 2" has no braces: PRM800K writes "None"
    "train/algebra/25040.json",  # "\boxed 9" likewise
    "train/number_theory/7115.json",  # the box is empty
    "train/number_theory/7117.json",  # the box is empty
}
"""Rows of MATH that the published files leave without a gold answer."""

_TWICE = {"test/precalculus/24307.json"}
"""MATH has this problem twice, under two ids; PRM800K gave both rows the same id."""

Row = tuple[str, dict[str, Any]]
"""A row's place ("line 12", counted from 1) and its columns."""


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
        return generate(questions.benchmark, questions.split, questions.n, questions.seed)  # type: ignore[arg-type]
    if questions.file is not None:
        file = Path(questions.file).expanduser()
        return _table(questions, str(file), file_rows(file, questions.revision))
    hub = hub_dataset(questions)
    return _table(questions, hub.path, hub_rows(hub, questions.split))


def hub_dataset(questions: Questions) -> HubDataset:
    """Return the dataset on the hub that a question set is drawn from."""
    if questions.dataset is not None:
        return HubDataset(questions.dataset, questions.subset, questions.revision or "")
    pinned = PINNED[questions.benchmark]
    return replace(pinned, revision=questions.revision or pinned.revision)


def file_revision(file: Path) -> str:
    """Return the sha256 of a file's content.

    Raises:
        BenchmarkError: the file is missing or cannot be read.
    """
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(file, error) from None


def file_rows(file: Path, revision: str | None) -> Iterator[Row]:
    """Yield the rows of a JSON Lines or CSV file, gzipped or not; blank lines are skipped.

    Raises:
        BenchmarkError: the file is missing, damaged, of another kind or of another revision.
    """
    kind = Path(file.name.removesuffix(".gz")).suffix
    if kind not in _READERS:
        raise BenchmarkError(
            f"{file} is neither .jsonl nor .csv, nor one of them with .gz; convert it, or rename it"
        )
    found = file_revision(file)
    if revision not in (None, found):
        raise BenchmarkError(
            f"{file} has sha256 {found}, not the revision {revision} of the config; "
            f"restore the file, or remove `revision` from the config"
        )
    place = "its beginning"
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            for place, row in _READERS[kind](file, stream):
                yield place, row
    except (EOFError, zlib.error) as error:
        raise BenchmarkError(
            f"{file} is damaged or cut off after {place} ({error}); copy it again"
        ) from None
    except OSError as error:
        raise _unreadable(file, error) from None


def _json_rows(file: Path, lines: Iterable[bytes]) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise BenchmarkError(
                f"{file} line {number} is not JSON ({error}); write one object on each line"
            ) from None
        if not isinstance(row, dict):
            raise BenchmarkError(
                f"{file} line {number} is {_short(row)}, not an object; write one on each line"
            )
        yield f"line {number}", row


def _csv_rows(file: Path, lines: Iterable[bytes]) -> Iterator[Row]:
    """Yield the rows below the header, by column name."""
    text = csv.DictReader((line.decode("utf-8-sig") for line in lines), strict=True)
    try:
        for row in text:
            if None in row or None in row.values():
                raise BenchmarkError(
                    f"{file} line {text.line_num} has more or fewer cells than the header; "
                    f"put cells that hold commas or line breaks in double quotes"
                )
            yield f"line {text.line_num}", row
    except (csv.Error, UnicodeDecodeError) as error:
        raise BenchmarkError(
            f"{file} after line {text.line_num} is not CSV in UTF-8 ({error}); save it as such"
        ) from None


_READERS = {".jsonl": _json_rows, ".csv": _csv_rows}


def hub_rows(hub: HubDataset, split: str) -> Iterator[Row]:
    """Yield the rows of a split on the hub or in the cache.

    Raises:
        BenchmarkError: the split cannot be fetched.
    """
    from datasets import load_dataset  # slow to import
    from datasets.exceptions import DatasetsError

    try:
        data = load_dataset(hub.path, hub.name, split=split, revision=hub.revision)
    except (OSError, ValueError, DatasetsError) as error:
        reason = " ".join(str(error).split())[:200]
        raise BenchmarkError(
            f"{hub.path} (revision {hub.revision}) cannot be fetched ({reason}); run "
            f"`snakemake fetch` with this config where there is network, or name a `file` with the "
            f"same columns"
        ) from error
    for number, row in enumerate(data, start=1):
        yield f"row {number}", row


def _table(questions: Questions, origin: str, rows: Iterable[Row]) -> pd.DataFrame:
    """Check and convert a source's rows, and return them as a table."""
    kept: dict[str, dict[str, Any]] = {}
    places: dict[str, str] = {}
    left_out: list[str] = []
    convert = _gsm8k if questions.benchmark == "gsm8k" else _mapped
    column = questions.columns.split if questions.columns else None
    for index, (place, row) in enumerate(rows):
        if column is not None and str(row.get(column, questions.split)) != questions.split:
            continue
        question = convert(_Row(f"{origin} {place}", row), questions, index)
        if question is None:
            left_out.append(f"{row['unique_id']} (no gold answer)")
            continue
        question_id = question["question_id"]
        if question_id in kept:
            if question_id in _TWICE and question["question"] == kept[question_id]["question"]:
                left_out.append(f"{question_id} (second copy)")
                continue
            raise BenchmarkError(
                f"{origin}: id {question_id!r} is at {places[question_id]} and again at {place}; "
                f"ids must be unique"
            )
        place_in_source = {"split": questions.split, "source_row": index}
        kept[question_id] = {**dict.fromkeys(tables.QUESTIONS.names), **question, **place_in_source}
        places[question_id] = place
    if not kept:
        of = f" whose {column} is {questions.split!r}" if column else ""
        raise BenchmarkError(f"{origin} has no questions{of}; write one on each line")
    if left_out:
        _LOG.warning("%s: left out %d rows: %s", origin, len(left_out), ", ".join(left_out))
    return pd.DataFrame(list(kept.values()), columns=tables.QUESTIONS.names)


class _Row:
    """Reads the columns of one row; its errors name the row's place."""

    def __init__(self, place: str, columns: dict[str, Any]) -> None:
        self.place = place
        self.columns = columns

    def require(self, keys: tuple[str, ...]) -> None:
        """Refuse a row that lacks a column."""
        for key in keys:
            if key not in self.columns:
                raise BenchmarkError(
                    f"{self.place} has no {key!r}, only {', '.join(self.columns) or 'nothing'}; "
                    f"the columns of this benchmark are {', '.join(keys)}; name your own under "
                    f"`columns`, or with --question-column and --answer-column"
                )

    def text(self, key: str, *, number: bool = False) -> str:
        """Return a column's text, or where it is allowed its number as text."""
        value = self.columns[key]
        if number and isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or not value.strip():
            raise self.error(key, f"a non-empty text{' or number' if number else ''}")
        return value

    def level(self, key: str) -> int | None:
        """Return a column's level, 1 to 5, or None."""
        value = self.columns[key]
        if isinstance(value, str):  # in CSV every cell is text
            value = int(value) if value.strip().isdecimal() else value.strip() or None
        if value is not None and (type(value) is not int or not 1 <= value <= 5):
            raise self.error(key, "a number from 1 to 5, or null")
        return value

    def error(self, key: str, allowed: str) -> BenchmarkError:
        """Return the error for a column with a wrong value."""
        return BenchmarkError(
            f"{self.place}: {key} is {_short(self.columns[key])}, not {allowed}; correct the row"
        )


def _mapped(row: _Row, questions: Questions, index: int) -> dict[str, Any] | None:
    """Convert a row of MATH, or of a custom benchmark, whose columns the config names.

    Returns None for a row that is known to have no gold answer.
    """
    math = questions.columns is None
    columns = questions.columns or _MATH
    row.require(tuple(name for name in columns.model_dump().values() if name))
    question_id = row.text(columns.id, number=True) if columns.id else f"{index:06d}"
    if math and str(row.columns["answer"]).strip() in _NO_ANSWER:
        if question_id in _WITHOUT_ANSWER:
            return None
        raise row.error("answer", "an answer")
    answer = row.text(columns.answer, number=True)
    return {
        "question_id": question_id,
        "subject": row.text(columns.subject, number=True) if columns.subject else None,
        "level": row.level(columns.level) if columns.level else None,
        "question": row.text(columns.question),
        "answer": answer if math else answer.strip(),
        "solution": row.columns.get("solution") if math else None,
    }


def _gsm8k(row: _Row, questions: Questions, index: int) -> dict[str, Any]:
    """Convert a row of GSM8K, whose gold answer is the number after ``####``."""
    row.require(("question", "answer"))
    solution, mark, answer = row.text("answer").rpartition("####")
    answer = answer.strip().replace(",", "")
    if not mark or not answer:
        raise row.error("answer", "a solution that ends with '#### ' and the final number")
    return {
        "question_id": f"gsm8k/{questions.split}/{index:05d}",
        "question": row.text("question"),
        "answer": answer,
        "solution": solution.strip(),
    }


def _short(value: Any) -> str:
    """Return a value as JSON of at most 60 characters, for an error message."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _unreadable(file: Path, error: OSError) -> BenchmarkError:
    if not file.exists():
        return BenchmarkError(
            f"{file} is missing; put it there, or write its `revision` (sha256) if the store "
            f"holds its questions already"
        )
    return BenchmarkError(f"{file} cannot be read ({error.strerror or error}); copy it again")
