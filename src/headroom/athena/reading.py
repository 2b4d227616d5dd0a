"""Datasets of word problems: from a local file, from the hub, or generated.

A row that cannot be used is left out with its reason, never silently; a file that is no such
dataset is an error.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from headroom.athena import asdiv, generated, math23k
from headroom.athena.problems import Dropped, Problem, Reading
from headroom.benchmarks.sources import HubDataset, Row, file_rows, hub_rows
from headroom.config.compression import MATH23K, WordProblems
from headroom.errors import BenchmarkError

_HUB_PARTS = {"train": "train", "validation": "valid", "test": "test"}
_MOST_DROPPED = 0.05  # of all rows; a file that loses more is not what it should be

_LOG = logging.getLogger(__name__)


def read(settings: WordProblems) -> Reading:
    """Read or make a dataset.

    Raises:
        BenchmarkError: the source cannot be reached or read, has other columns or an id twice, or
            more than 5% of its rows cannot be used.
    """
    if settings.dataset == "generated":
        assert settings.n is not None  # the settings ask for it
        return Reading(generated.generate(settings.n, settings.seed), [])
    if settings.file is None:
        assert settings.revision is not None  # the settings ask for it
        hub = HubDataset(MATH23K, None, settings.revision)
        rows: Iterable[Row] = (
            (f"{split} {place}", row | {"split": part})
            for split, part in _HUB_PARTS.items()
            for place, row in hub_rows(hub, split)
        )
        return _read(MATH23K, rows, math23k)
    file = Path(settings.file).expanduser()
    rows = file_rows(file, settings.revision)
    return _read(str(file), rows, math23k if settings.dataset == "math23k" else asdiv)


class _Converter(Protocol):
    """A module that knows the columns of a dataset's rows."""

    COLUMNS: tuple[str, ...]
    """The first is the id."""
    PART: str
    """The column with the official split or fold."""

    def convert(self, row: Mapping[str, Any], part: str) -> Problem: ...


def _read(origin: str, rows: Iterable[Row], converter: _Converter) -> Reading:
    problems: list[Problem] = []
    dropped: list[Dropped] = []
    ids: set[str] = set()
    for place, row in rows:
        _check_columns(f"{origin} {place}", row, converter)
        row_id = row[converter.COLUMNS[0]]
        if row_id in ids:
            raise BenchmarkError(f"{origin} {place}: id {row_id!r} stands twice; ids must differ")
        ids.add(row_id)
        try:
            problems.append(converter.convert(row, str(row[converter.PART])))
        except BenchmarkError as error:
            dropped.append(Dropped(row_id, str(error)))
    if not problems or len(dropped) > _MOST_DROPPED * len(ids):
        example = f", such as {dropped[0].row}: {dropped[0].reason}" if dropped else ""
        raise BenchmarkError(f"{origin}: {len(dropped)} of {len(ids)} rows cannot be used{example}")
    if dropped:
        listed = "; ".join(f"{row}: {reason}" for row, reason in dropped)
        _LOG.warning("%s: left out %d of %d rows: %s", origin, len(dropped), len(ids), listed)
    return Reading(problems, dropped)


def _check_columns(place: str, row: Mapping[str, Any], converter: _Converter) -> None:
    for column in (*converter.COLUMNS, converter.PART):
        value = row.get(column)
        if not isinstance(value, str) and not (column == converter.PART and type(value) is int):
            raise BenchmarkError(
                f"{place}: column {column!r} is {value!r:.60}, not text; the columns are "
                f"{', '.join((*converter.COLUMNS, converter.PART))}"
            )
