"""Whole splits of the benchmarks: from the hub, from a local file, or generated.

Every source ends in the columns of `tables.QUESTIONS`. A row that cannot be used is an error that
names its line; the few rows that the published data are known to have without a gold answer, or
twice, are left out with a warning.
"""

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

_MATH_KEYS = ("problem", "answer", "subject", "level", "unique_id")
_GSM8K_KEYS = ("question", "answer")
_NO_ANSWER = ("", "None")
_WITHOUT_ANSWER = {
    "train/algebra/24014.json",  # "\boxed 2" has no braces: PRM800K writes "None"
    "train/algebra/25040.json",  # "\boxed 9" likewise
    "train/number_theory/7115.json",  # the box is empty
    "train/number_theory/7117.json",  # the box is empty
}
"""Rows of MATH that the published files leave without a gold answer."""
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
    pinned = PINNED[questions.benchmark]
    hub = replace(pinned, revision=questions.revision or pinned.revision)
    return _table(questions, hub.path, hub_rows(hub, questions.split))


def check_file(questions: Questions) -> int:
    """Read a question set's file as `read_source` would; return how many questions it holds.

    Raises:
        BenchmarkError: as `read_source`.
    """
    return len(read_source(questions))


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
    """Yield the rows of a .jsonl or .jsonl.gz file; blank lines are passed over.

    Raises:
        BenchmarkError: it is missing, damaged, of another kind, or not the revision asked for.
    """
    if not file.name.endswith((".jsonl", ".jsonl.gz")):
        raise BenchmarkError(f"{file} is neither .jsonl nor .jsonl.gz; convert it, or rename it")
    found = file_revision(file)
    if revision not in (None, found):
        raise BenchmarkError(
            f"{file} has sha256 {found}, not the revision {revision} of the config; "
            f"restore the file, or remove `revision` from the config"
        )
    number = 0
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    yield f"line {number}", _parse(line, file, number)
    except (EOFError, zlib.error) as error:
        raise BenchmarkError(
            f"{file} is damaged or cut off after line {number} ({error}); copy it again"
        ) from None
    except OSError as error:
        raise _unreadable(file, error) from None


def _parse(line: bytes, file: Path, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BenchmarkError(
            f"{file} line {number} is not JSON ({error}); write one object a line"
        ) from None
    if not isinstance(row, dict):
        raise BenchmarkError(
            f"{file} line {number} is {_short(row)}, not an object; write one object a line"
        )
    return row


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
    for index, (place, row) in enumerate(rows):
        reader = _Reader(f"{origin} {place}", row)
        convert = _gsm8k if questions.family == "gsm8k" else _math
        question = convert(reader, questions, index)
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
        kept[question_id] = question
        places[question_id] = place
    if not kept:
        raise BenchmarkError(f"{origin} has no questions; write one JSON object a line")
    if left_out:
        _LOG.warning("%s: left out %d rows: %s", origin, len(left_out), ", ".join(left_out))
    return pd.DataFrame(list(kept.values()), columns=tables.QUESTIONS.names)


class _Reader:
    """Reads the columns of one row; its errors say where the row stands."""

    def __init__(self, place: str, row: dict[str, Any]) -> None:
        self.place = place
        self.row = row

    def require(self, keys: tuple[str, ...]) -> None:
        missing = [key for key in keys if key not in self.row]
        if missing:
            raise BenchmarkError(
                f"{self.place} has no {missing[0]!r} but {', '.join(self.row) or 'nothing'}; "
                f"the columns of this benchmark are {', '.join(keys)}"
            )

    def text(self, key: str) -> str:
        value = self.row[key]
        if not isinstance(value, str) or not (value.strip() or key == "answer"):
            raise self.error(key, "a text that is not empty")
        return value

    def level(self) -> int | None:
        value = self.row["level"]
        if value is not None and (type(value) is not int or not 1 <= value <= 5):
            raise self.error("level", "a number from 1 to 5, or null")
        return value

    def error(self, key: str, allowed: str) -> BenchmarkError:
        return BenchmarkError(
            f"{self.place}: {key} is {_short(self.row[key])}, not {allowed}; correct the row"
        )


def _math(reader: _Reader, questions: Questions, index: int) -> dict[str, Any] | None:
    """Convert a row of MATH; None for one that is known to have no gold answer."""
    reader.require(_MATH_KEYS)
    question_id, answer = reader.text("unique_id"), reader.text("answer")
    if answer.strip() in _NO_ANSWER:
        if question_id in _WITHOUT_ANSWER:
            return None
        raise reader.error("answer", "an answer")
    return {
        "question_id": question_id,
        "split": questions.split,
        "subject": reader.text("subject"),
        "level": reader.level(),
        "question": reader.text("problem"),
        "answer": answer,
        "solution": reader.row.get("solution"),
        "source_row": index,
    }


def _gsm8k(reader: _Reader, questions: Questions, index: int) -> dict[str, Any]:
    """Convert a row of GSM8K, whose gold answer is the number after ``####``."""
    reader.require(_GSM8K_KEYS)
    solution, mark, answer = reader.text("answer").rpartition("####")
    answer = answer.strip().replace(",", "")
    if not mark or not answer:
        raise reader.error("answer", "a solution that ends with '#### ' and the final number")
    return {
        "question_id": f"gsm8k/{questions.split}/{index:05d}",
        "split": questions.split,
        "subject": None,
        "level": None,
        "question": reader.text("question"),
        "answer": answer,
        "solution": solution.strip(),
        "source_row": index,
    }


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _unreadable(file: Path, error: OSError) -> BenchmarkError:
    if not file.exists():
        return BenchmarkError(
            f"{file} is missing; put it there, or write its `revision` (sha256) if the store "
            f"holds its questions already"
        )
    return BenchmarkError(f"{file} cannot be read ({error.strerror or error}); copy it again")
