"""What solvers learn: word problems or labelled texts, read once and divided for all jobs."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

import headroom.athena.reading
import headroom.athena.storage
import headroom.texts.rows
import headroom.texts.storage
from headroom import paths
from headroom.athena.splits import divide
from headroom.config import Config
from headroom.planning.store import Store
from headroom.record import Stopwatch, write_record
from headroom.tables import PROBLEMS, TEXTS, atomic, write_table

_LOG = logging.getLogger(__name__)


class Parts(NamedTuple):
    """The parts of a dataset, not yet as a learner reads them."""

    train: Sequence[Any]
    dev: Sequence[Any]
    """Empty for a model that reasons in words."""
    test: Sequence[Any]


def read_data(config: Config, data: str) -> None:
    """Read a dataset, divide it, and write all rows and what was left out."""
    stopwatch = Stopwatch()
    name = Store(config).name("data", data)
    output = Path(paths.PROBLEMS.format(data=data))
    dropped: Sequence[Any]
    if name in config.texts:
        settings = config.texts[name].model_dump(mode="json")
        texts, dropped = headroom.texts.rows.read(config.texts[name])
        sizes = {part: len(rows) for part, rows in texts._asdict().items()}
        write_table(output, headroom.texts.storage.table(texts), TEXTS)
    else:
        settings = config.problems[name].model_dump(mode="json")
        problems, dropped = headroom.athena.reading.read(config.problems[name])
        parts = divide(problems, config.problems[name].partition)
        sizes = {part: len(rows) for part, rows in parts._asdict().items()}
        write_table(output, headroom.athena.storage.table(parts), PROBLEMS)
    beside = Path(paths.DROPPED.format(data=data))
    with atomic(beside) as temporary:
        pd.DataFrame(dropped, columns=["row", "reason"]).to_csv(temporary, index=False)
    for file in (beside, output):
        facts = {"data": settings, "rows": sizes, "dropped": len(dropped)}
        write_record(file, stopwatch, facts)
    told = ", ".join(f"{count} rows in {part}" for part, count in sizes.items())
    _LOG.info("%s: %s, %d left out", name, told, len(dropped))


def parts(config: Config, data: str) -> Parts:
    """Return the dataset with a key, as `read_data` divided it."""
    file = Path(paths.PROBLEMS.format(data=data))
    if Store(config).name("data", data) in config.texts:
        return Parts(*headroom.texts.storage.read_parts(file))
    return Parts(*headroom.athena.storage.read_parts(file))
