"""The evidence on the second paper's claims: its own tables and a run's, in the same columns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from headsweep.config import Config
from headsweep.config.experiments import METHOD
from headsweep.config.titles import titles
from headsweep.files import paths
from headsweep.results.exhibits import JUDGED_TABLES
from headsweep.results.facts import Source
from headsweep.results.published import DATA, published_solver
from headsweep.store.layout import Store

BASE, MATH = "ATHENA-base", "Math23k"
"""Solver and data of the paper's Tables 3 and 4, as it names them."""

_MEASURED = {
    "published_baseline": "baseline",
    "published_change": "change",
    "published_accuracy": "accuracy",
    "published_parameters": "parameters_removed",
    "published_flops": "flops_removed",
    "published_speedup": "faster_large",
    "published_memory": "weight_removed",
}
"""A run's names of what the paper prints."""


@dataclass(frozen=True)
class Compressed:
    """One compression, measured or printed."""

    title: str
    condition: tuple[str, str] | None
    """The paper's names of solver and data, if it is the paper's; of a compression that differs in
    either there is none."""
    tables: Mapping[str, pd.DataFrame]

    @property
    def is_main(self) -> bool:
        """Whether it is what the paper's Tables 3 and 4 are of."""
        return self.condition == (BASE, MATH)

    def rows(self, claim: Any) -> pd.DataFrame:
        """Return the rows that a claim is about."""
        table = self.tables[claim.table]
        return table if pd.isna(claim.filter) else table.query(claim.filter)


def of_run(store: Store) -> list[Compressed]:
    """Return the compressions of a run.

    Raises:
        TableError: a table is missing or damaged.
    """
    config = store.config
    if not config.compressions:
        return []
    read = {
        name: Source.read(store, paths.COMPRESSION_TABLE, exhibit=name).rows
        for name in JUDGED_TABLES
    }
    return [
        Compressed(
            title=title,
            condition=condition(config, name),
            tables={table: rows[rows["compression"] == name] for table, rows in read.items()},
        )
        for name, title in titles(config, "compressions").items()
    ]


def condition(config: Config, name: str) -> tuple[str, str] | None:
    """Return the paper's names of a compression's solver and data, if both are the paper's."""
    study = config.compressions[name]
    if study.solver is None:
        return None
    model = published_solver(config.solver_of(study).encoder.source)
    data = DATA.get(config.problems[study.data or ""].dataset)
    return (model, data) if model and data else None


def printed(conditions: pd.DataFrame) -> list[Compressed]:
    """Return the paper's compressions, from its `headsweep.results.published.conditions`."""
    at_most = {f"{theirs}_at_most": f"{ours}_at_most" for theirs, ours in _MEASURED.items()}
    rows_of_paper = conditions.rename(columns=_MEASURED | at_most)
    ratios = rows_of_paper[rows_of_paper["of"] == "ratio"]
    alphas = rows_of_paper[rows_of_paper["of"] == "alpha"]
    alphas = alphas.assign(alpha=alphas["key"].astype(float), distilled=True)
    alphas = _with_gap(alphas, alphas["alpha"] == 0.5)
    arms = rows_of_paper[rows_of_paper["of"] == "arm"].assign(arm=lambda rows: rows["key"])
    arms["ratio"] = np.where(arms["parameters_removed"] > 0, arms["ratio"], 0.0)
    main = {
        "table3a": alphas,
        "table3b": rows_of_paper[rows_of_paper["of"] == "stratum"].assign(
            stratum=lambda rows: rows["key"]
        ),
        "table4": _with_gap(arms, arms["arm"] == METHOD),
    }
    compressions = []
    for (model, data), rows in ratios.groupby(["published_model", "data"]):
        # Tables 3 and 4 are of one solver and its data.
        is_main = (model, data) == (BASE, MATH)
        others = {name: rows if is_main else rows.head(0) for name, rows in main.items()}
        tables = {"table1": rows, **others}
        compressions.append(Compressed(f"{model}, {data}", (str(model), str(data)), tables))
    return compressions


def _with_gap(rows: pd.DataFrame, reference: pd.Series) -> pd.DataFrame:
    """Add the accuracy minus that of one row."""
    gap = (rows["accuracy"] - rows.loc[reference, "accuracy"].iloc[0]).round(9)
    return rows.assign(gap=gap.mask(reference))
