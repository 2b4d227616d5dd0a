"""The numbers that printed exhibits show: a run's, or those that the papers print.

Both have the same columns, so an exhibit does not know whose it shows. A run without experiments
has none of its own: then the papers' numbers are shown.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from headsweep.config import Config
from headsweep.config.titles import title, titles
from headsweep.experiments.sprint.methods import RANDOM, SPRINT, is_sampling
from headsweep.experiments.sprint.validation import reading_title
from headsweep.files import paths
from headsweep.files.safe_files import read_metadata, read_table
from headsweep.files.tables import CURVES
from headsweep.results import compression_evidence
from headsweep.results.compression_evidence import BASE, MATH, Compressed
from headsweep.results.exhibits import JUDGED_TABLES
from headsweep.results.facts import read_csv
from headsweep.results.gains import OVERALL
from headsweep.results.published import (
    EXHIBITS,
    FIGURE_LAYER,
    FIGURE_MODEL,
    LAYERS,
    conditions,
    head_pruning,
    model_beside,
)
from headsweep.store.layout import Store

CELLS = ["stands_for", "model", "tested", "layer", "head", "subject", "n", "accuracy"]
"""Columns of the cells of Tables 1-4 and Figure 5: the paper's model, the model that stands in its
place, what it was tested on, and the accuracy on n questions of a subject; no head is No Prune."""

AS_PUBLISHED = "as published"
"""Said of the papers' own numbers."""

AS_PRINTED = f"{SPRINT} as printed"
"""The method with the paper's loss."""

MATH_PANEL, GSM8K_PANEL = "MATH500", "GSM8K"
"""The two panels of Figure 4."""

_DEPTH = 21 / 28  # of the layer of Figure 5
_MOST_LAYERS = 4  # of a model in a table


class Curves(NamedTuple):
    """A panel of Figure 4: what a selector and its rivals solve with N answers."""

    panel: str
    tested: str
    rows: pd.DataFrame
    """Columns ``method``, ``n`` and ``pass_at_n``."""


@dataclass(frozen=True)
class Numbers:
    """What exhibits are made of."""

    source: str
    """Whose they are, in words."""
    missing: str
    """Why a cell has no number, in words."""
    cells: pd.DataFrame
    """Columns `CELLS`."""
    curves: list[Curves]
    compressions: list[Compressed]

    def of_model(self, stands_for: str) -> pd.DataFrame:
        """Return the cells of the model in the place of one of the paper's, of at most so many
        layers as the paper's tables have.
        """
        cells = self.cells[self.cells["stands_for"] == stands_for]
        layers = np.unique(cells["layer"].dropna().astype(int))
        if not len(layers):
            return cells
        if set(LAYERS[stands_for]) <= {*layers}:
            layers = np.array(LAYERS[stands_for])
        elif len(layers) > _MOST_LAYERS:
            layers = layers[np.linspace(0, len(layers) - 1, _MOST_LAYERS).round().astype(int)]
        return cells[cells["layer"].isna() | cells["layer"].isin(layers)]

    def of_figure(self) -> tuple[int, pd.DataFrame]:
        """Return the layer that Figure 5 shows, and its cells.

        It is the paper's layer of the paper's model, or else one as deep of the first model.
        """
        cells = self.cells[self.cells["stands_for"] == FIGURE_MODEL]
        if cells.empty and len(self.cells):
            cells = self.cells[self.cells["stands_for"] == self.cells["stands_for"].iloc[0]]
        layers = np.unique(cells["layer"].dropna().astype(int))
        if not len(layers):
            return FIGURE_LAYER, cells
        wanted = _DEPTH * (layers.max() + 1)
        layer = int(layers[np.abs(layers - wanted).argmin()])
        if FIGURE_LAYER in layers:
            layer = FIGURE_LAYER
        return layer, cells[cells["layer"].isna() | (cells["layer"] == layer)]

    @property
    def main(self) -> Compressed | None:
        """The compression of Tables 3 and 4: the paper's, or else the one of most arms."""
        alike = [each for each in self.compressions if each.condition == (BASE, MATH)]
        by_arms = sorted(self.compressions, key=lambda each: -len(each.tables["table4"]))
        return next(iter([*alike, *by_arms]), None)


def published_numbers(folder: Path) -> Numbers:
    """Return what the papers print, from a folder.

    Raises:
        TableError: a table is missing or damaged.
    """
    cells = head_pruning(folder)  # No Prune is printed in each layer's columns
    cells = cells.assign(stands_for=cells["model"], tested=MATH_PANEL)
    compressions = compression_evidence.printed(conditions(folder))
    compressions.sort(
        key=lambda compressed: MATH not in str(compressed.condition)
    )  # it comes first
    return Numbers(
        source=AS_PUBLISHED,
        missing="not legible in the published table",
        cells=cells[CELLS],
        curves=[],
        compressions=compressions,
    )


def files(store: Store) -> list[str]:
    """Return the files of a run that its printed exhibits are made from."""
    config = store.config
    fill = store.fill
    needed = [fill(paths.TABLE, sweep=sweep, suffix="csv") for sweep in config.sweeps]
    for template in (CURVES, paths.CHOICE, paths.ABLATION):
        needed += [fill(template, selector=selector) for selector in config.selectors]
    if config.compressions:
        of_study = partial(fill, paths.COMPRESSION_TABLE, suffix="csv")
        needed += [of_study(exhibit=table) for table in JUDGED_TABLES]
    return needed


def numbers_of(store: Store, published: Path) -> Numbers:
    """Return the numbers of a run, or the papers' if it has no experiment that they have.

    Raises:
        TableError: a table is missing or damaged.
    """
    if not files(store):
        return published_numbers(published)
    return Numbers(
        source=f"run {store.config.run}",
        missing=f"not measured in run {store.config.run}",
        cells=_cells(store),
        curves=_curves(store),
        compressions=compression_evidence.of_run(store),
    )


def _cells(store: Store) -> pd.DataFrame:
    """Return the cells of a run's sweeps: of each model, those on the questions of its first."""
    config = store.config
    places = _places(config)
    first: dict[str, tuple[str, str, str]] = {}
    parts = []
    for sweep, section in config.sweeps.items():
        same = (section.questions, section.decoding, config.grading_of(sweep))
        if section.model not in places or first.setdefault(section.model, same) != same:
            continue
        file = store.path(paths.TABLE, sweep=sweep, suffix="csv")
        cells = read_csv(file, ["by", "group", "layer", "head", "n", "accuracy"])
        cells = cells[cells["by"] != "level"].rename(columns={"group": "subject"})
        if (cells["by"] == "subject").any():
            cells = cells[cells["subject"] != OVERALL]
        part = cells.assign(
            stands_for=places[section.model],
            model=title(config, "models", section.model),
            tested=title(config, "questions", section.questions),
        )
        parts.append(part[CELLS])
    cells = pd.concat(parts or [pd.DataFrame(columns=CELLS)], ignore_index=True)
    cells = cells.astype({"layer": "Int64", "head": "Int64"})
    return cells.drop_duplicates(["stands_for", "layer", "head", "subject"])


def _places(config: Config) -> dict[str, str]:
    """Return the paper's model in whose place each swept model stands, by its name in the config.

    A model that is none of the paper's, nor to stand beside one, takes the next free place.
    """
    models = dict.fromkeys(section.model for section in config.sweeps.values())
    taken: dict[str, str] = {}
    for name in models:
        paper = model_beside(config.models[name])
        if paper is not None and paper not in taken.values():
            taken[name] = paper
    free = [paper for paper in EXHIBITS if paper not in taken.values()]
    others = [name for name in models if name not in taken]
    return taken | dict(zip(others, free, strict=False))


def _curves(store: Store) -> list[Curves]:
    """Return Pass@N of each selector that learnt on the benchmark that it is tested on."""
    config = store.config
    panels = []
    shown_as = titles(config, "selectors")
    for name, selector in config.selectors.items():
        learnt, asked = config.questions[selector.train], config.questions[selector.test]
        if learnt.home != asked.home:
            continue
        file = store.path(CURVES, selector=name)
        rows = read_table(file, CURVES)
        kept = rows["method"].isin([SPRINT, RANDOM]) | rows["method"].map(is_sampling)
        rows = rows.loc[kept & (rows["n"] <= selector.max_n), ["method", "n", "pass_at_n"]]
        of_loss = reading_title(read_metadata(file)["setting"])
        rows["method"] = rows["method"].replace(SPRINT, f"{SPRINT}: {of_loss}")
        choice = read_csv(store.path(paths.CHOICE, selector=name))
        readings = read_csv(store.path(paths.ABLATION, selector=name))
        panel = GSM8K_PANEL if "gsm8k" in asked.benchmark else MATH_PANEL
        rows = pd.concat([rows, _literal(readings, choice)])
        panels.append(Curves(panel, shown_as[name], rows.sort_values("n", kind="stable")))
    return panels


def _literal(readings: pd.DataFrame, choice: pd.DataFrame) -> pd.DataFrame:
    """Return Pass@N of the loss as the paper prints it: its geometry, and λ above zero.

    λ is the one that is best on held-out training questions, as all settings of a selector.
    """
    printed = choice[(choice["geometry"] == "literal") & (choice["diversity"] > 0)]
    if printed.empty:
        return pd.DataFrame(columns=["method", "n", "pass_at_n"])
    best = float(printed.groupby("diversity")["mean_pass"].mean().idxmax())  # type: ignore[arg-type]
    rows = readings[(readings["geometry"] == "literal") & np.isclose(readings["diversity"], best)]
    rows = rows[pd.to_numeric(rows["n"], errors="coerce").notna()]
    rows = rows[rows["embedder"] == rows["embedder"].iloc[0]]
    return rows.assign(method=f"{AS_PRINTED}: λ = {best:g}", n=rows["n"].astype(int))[
        ["method", "n", "pass_at_n"]
    ]
