"""Whole splits of the benchmarks: from the hub, from a local file, or generated.

Every source ends in the columns of `tables.QUESTIONS`. A row that cannot be used is an error that
names its line; the few rows that the published data are known to have without a gold answer, or
twice, are left out with a warning.
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
from headroom.benchmarks.rows import Reader, converter, short
from headroom.config import Questions
from headroom.errors import BenchmarkError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class HubDataset:
    """A dataset on the Hugging Face hub, pinned."""

    path: str
    """Hub id."""
    name: str | None
    """Config of the dataset; None where it has one only."""
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
"""Where each benchmark is fetched from when the config names no file and no other revision."""

_TWICE = {"test/precalculus/24307.json"}
"""MATH holds this problem twice, under two ids; PRM800K gave both rows one id."""

Row = tuple[str, dict[str, Any]]
"""Where a row stands ("line 12", counted from 1), and its columns."""


def read_source(questions: Questions) -> pd.DataFrame:
    """Return the split that a question set is drawn from, in the columns of `tables.QUESTIONS`.

    Question ids are `unique_id` for MATH, which names the file in the original archive, and
    benchmark, split and row for GSM8K, which has no ids. Rows keep the order of the source.

    Raises:
        BenchmarkError: the source cannot be reached or read, is empty, is not the file that
            `revision` names, has other columns, a row without an answer, or an id twice.
    """
    if questions.generated:
        assert questions.n is not None  # the schema asks for it
        return generate(questions.benchmark, questions.split, questions.n, questions.seed)  # type: ignore[arg-type]
    if questions.file is not None:
        file = Path(questions.file).expanduser()
        return _table(questions, str(file), file_rows(file, questions.revision))
    hub = hub_dataset(questions)
    return _table(questions, hub.path, hub_rows(hub, questions.split))


def hub_dataset(questions: Questions) -> HubDataset:
    """Return where on the hub a question set's split lies."""
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
    """Yield the rows of a JSON Lines or CSV file, gzipped or not; blank lines are passed over.

    Raises:
        BenchmarkError: it is missing, damaged, of another kind, or not the revision asked for.
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
                f"{file} line {number} is not JSON ({error}); write one object a line"
            ) from None
        if not isinstance(row, dict):
            raise BenchmarkError(
                f"{file} line {number} is {short(row)}, not an object; write one object a line"
            )
        yield f"line {number}", row


def _csv_rows(file: Path, lines: Iterable[bytes]) -> Iterator[Row]:
    """Yield the rows below a header, each under its columns' names."""
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
    """Yield the rows of a split on the hub, or in the cache of an earlier fetch.

    Raises:
        BenchmarkError: it cannot be fetched.
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
    """Check rows in the hub's columns and return them as a table."""
    kept: dict[str, dict[str, Any]] = {}
    places: dict[str, str] = {}
    left_out: list[str] = []
    convert = converter(questions)
    column = questions.columns.split if questions.columns else None
    for index, (place, row) in enumerate(rows):
        if column is not None and str(row.get(column, questions.split)) != questions.split:
            continue
        question = convert(Reader(f"{origin} {place}", row), questions, index)
        if question is None:
            left_out.append(f"{row['unique_id']} (no gold answer)")
            continue
        question_id = question["question_id"]
        if question_id in kept:
            if question_id in _TWICE and question["question"] == kept[question_id]["question"]:
                left_out.append(f"{question_id} (second copy)")
                continue
            raise BenchmarkError(
                f"{origin}: id {question_id!r} stands at {places[question_id]} and again at "
                f"{place}; ids must differ"
            )
        place_in_source = {"split": questions.split, "source_row": index}
        kept[question_id] = {**dict.fromkeys(tables.QUESTIONS.names), **question, **place_in_source}
        places[question_id] = place
    if not kept:
        of = f" whose {column} is {questions.split!r}" if column else ""
        raise BenchmarkError(f"{origin} has no questions{of}; write one a line")
    if left_out:
        _LOG.warning("%s: left out %d rows: %s", origin, len(left_out), ", ".join(left_out))
    return pd.DataFrame(list(kept.values()), columns=tables.QUESTIONS.names)


def _unreadable(file: Path, error: OSError) -> BenchmarkError:
    if not file.exists():
        return BenchmarkError(
            f"{file} is missing; put it there, or write its `revision` (sha256) if the store "
            f"holds its questions already"
        )
    return BenchmarkError(f"{file} cannot be read ({error.strerror or error}); copy it again")
