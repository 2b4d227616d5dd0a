"""Collects a run's compression results from the store, without torch."""

from pathlib import Path
from typing import Any

import pandas as pd

from headroom import paths
from headroom.config import Config
from headroom.planning.batches import arms
from headroom.planning.store import Store
from headroom.record import Stopwatch, read_json, write_record
from headroom.tables import OUTCOMES, STUDY_OUTCOMES, read_table, write_json, write_table


def gather(config: Config, compression: str) -> None:
    """Collect the outcomes and histories of all arms and seeds, in the order of the config."""
    stopwatch = Stopwatch()
    study = config.compressions[compression]
    outcomes: list[pd.DataFrame] = []
    histories: dict[str, dict[str, Any]] = {}
    for arm in arms(config, compression):
        for seed in study.seeds:
            templates = [paths.OUTCOMES, *[paths.INT8_OUTCOMES][: arm.name in study.int8]]
            for template in templates:
                rows = read_table(Path(arm.file(template, seed)), OUTCOMES)
                outcomes.append(rows.assign(arm=arm.name, seed=seed))
            history = read_json(Path(arm.file(paths.HISTORY, seed)))
            histories.setdefault(arm.name, {})[str(seed)] = history
    store = Store(config)
    facts = {"compression": compression, "settings": study.model_dump(mode="json")}
    output = store.path(paths.STUDY_OUTCOMES, compression=compression)
    write_table(output, pd.concat(outcomes), STUDY_OUTCOMES)
    write_record(output, stopwatch, facts)
    output = store.path(paths.HISTORIES, compression=compression)
    write_json(output, histories)
    write_record(output, stopwatch, facts)
