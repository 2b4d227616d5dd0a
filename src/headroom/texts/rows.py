"""Datasets of labelled texts: from the hub, from local files, or generated.

A row that cannot be used is left out with its reason, never silently.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from headroom.benchmarks.sources import HubDataset, Row, file_rows, hub_rows
from headroom.config.texts import Texts
from headroom.errors import BenchmarkError
from headroom.texts.generated import generate
from headroom.texts.text import Text

_LOG = logging.getLogger(__name__)
_MOST_DROPPED = 0.05  # of all rows; a source that loses more is not what it should be
_DEV = 0.1


class Parts(NamedTuple):
    """The parts of a dataset."""

    train: list[Text]
    dev: list[Text]
    test: list[Text]


class Dropped(NamedTuple):
    """A row that was left out."""

    row: str
    """Its part, and where it stands there."""
    reason: str


class Reading(NamedTuple):
    """A dataset as read."""

    parts: Parts
    dropped: list[Dropped]


def read(settings: Texts) -> Reading:
    """Read or make a dataset.

    Raises:
        BenchmarkError: a source cannot be reached or read, has other columns or an id twice, or
            more than 5% of its rows cannot be used.
    """
    if settings.dataset == "generated":
        assert settings.n is not None  # the settings ask for it
        return Reading(Parts(*generate(settings.task, settings.n, settings.seed)), [])
    found: dict[str, list[Text]] = {"dev": []}
    dropped: list[Dropped] = []
    for part in Parts._fields:
        rows = _rows(settings, part)
        if rows is not None:
            found[part] = _read(settings, part, rows, dropped)
    if not found["dev"]:
        found["train"], found["dev"] = hold_out(found["train"], settings.seed)
    return Reading(Parts(**found), dropped)


def hold_out(texts: Sequence[Text], seed: int) -> tuple[list[Text], list[Text]]:
    """Return texts without a tenth of them, and that tenth; rows of one text stay together."""
    distinct = sorted({text.text for text in texts})
    Random(f"dev/{seed}").shuffle(distinct)
    held = set(distinct[: max(1, round(_DEV * len(distinct)))])
    kept = [text for text in texts if text.text not in held]
    return kept, [text for text in texts if text.text in held]


def _rows(settings: Texts, part: str) -> Iterator[Row] | None:
    if settings.files is not None:
        named = {str(name): file for name, file in settings.files.items()}
        return file_rows(Path(named[part]).expanduser(), None) if part in named else None
    split = getattr(settings.splits, part)
    hub = HubDataset(str(settings.dataset), settings.subset, str(settings.revision))
    return None if split is None else hub_rows(hub, split)


def _read(settings: Texts, part: str, rows: Iterator[Row], dropped: list[Dropped]) -> list[Text]:
    texts: dict[str, Text] = {}
    reasons: list[Dropped] = []
    for number, (place, row) in enumerate(rows):
        where = f"{part} {place}"
        columns = settings.columns
        wanted = [*columns.text, columns.answer, *([columns.id] if columns.id else [])]
        missing = [name for name in wanted if name not in row]
        if missing:
            raise BenchmarkError(
                f"{where} has no {missing[0]!r} but {', '.join(row)}; name the columns under "
                f"`columns`"
            )
        own = str(row[columns.id]) if columns.id else f"{number:06d}"
        if own in texts:
            raise BenchmarkError(f"{where}: id {own!r} stands twice; ids must differ")
        try:
            texts[own] = _text(settings, f"{part}/{own}", row)
        except ValueError as error:
            reasons.append(Dropped(where, str(error)))
    if not texts or len(reasons) > _MOST_DROPPED * (len(texts) + len(reasons)):
        example = f", such as {reasons[0].row}: {reasons[0].reason}" if reasons else ""
        total = len(texts) + len(reasons)
        raise BenchmarkError(f"{part}: {len(reasons)} of {total} rows cannot be used{example}")
    if reasons:
        _LOG.warning("%s: left out %d rows, such as %s", part, len(reasons), reasons[0])
    dropped += reasons
    return list(texts.values())


def _text(settings: Texts, example_id: str, row: dict[str, Any]) -> Text:
    """Convert a row; a `ValueError` says why it cannot be used."""
    texts, answer = [row[name] for name in settings.columns.text], row[settings.columns.answer]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError("a text is empty")
    first, second = texts[0], texts[1] if len(texts) > 1 else None
    if settings.task == "classification":
        if answer in (None, "", -1, "-1"):  # the hub's sign for a label that is kept secret
            raise ValueError("it has no label")
        return Text(example_id, first, second, (str(answer),))
    try:
        answers, starts = tuple(answer["text"]), tuple(map(int, answer["answer_start"]))
        fits = bool(answers) and len(answers) == len(starts)
    except (TypeError, KeyError, ValueError):
        raise ValueError("its answers are no lists of text and answer_start") from None
    if not fits:
        raise ValueError("it has no answer")
    for found, start in zip(answers, starts, strict=True):
        if not found or first[start : start + len(found)] != found:
            raise ValueError(f"the answer {found!r:.40} does not stand at {start}")
    return Text(example_id, first, second, answers, starts)
