"""The jobs that draw: each draws what is declared of its subject, a record beside each figure.

Names are config names; paths follow from the config.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pandas as pd

from headroom import paths
from headroom.analysis.arithmetic import arithmetic, arithmetic_sheet
from headroom.analysis.audit import audit, audit_sheet
from headroom.analysis.compression.published import Published
from headroom.analysis.compression.trial import read_trial
from headroom.analysis.gains import against_base, gains, read_cells, read_gained, read_z
from headroom.analysis.published import FIGURE_5, HEAD_PRUNING, head_pruning
from headroom.analysis.sheet import filled, read_csv, record, write_sheets
from headroom.analysis.verdict import read_controls
from headroom.config import Config
from headroom.figures.agreement import agreement
from headroom.figures.cost import cost
from headroom.figures.drawing import save
from headroom.figures.space import plane
from headroom.planning.batches import find_batch
from headroom.planning.exhibits import Exhibit, exhibits, find_exhibit
from headroom.planning.shown import Shown
from headroom.record import Stopwatch
from headroom.sprint.evaluation import PAIRED
from headroom.tables import ACCURACY, ANSWERS, CURVES, POINTS, read_arrow, read_metadata, read_table


class Tables(dict[str, Any]):
    """What the figures of a subject are drawn from, by the names of `Exhibit.needs`.

    Each is read once, when it is first asked for, by what `READERS` has under its name.
    """

    def __init__(self, config: Config, subject: str = "", **given: Any) -> None:
        """Read nothing yet.

        Args:
            config: of the run.
            subject: name of the sweep, selector or compression; none for the run.
            given: what needs no reading.
        """
        super().__init__(given)
        self.config = config
        self.subject = subject

    def __missing__(self, need: str) -> Any:
        self[need] = READERS[need](self)
        return self[need]

    def files(self, need: str) -> list[Path]:
        """Return the files behind one of the needs."""
        return list(map(Path, Shown(self.config).files(need, self.subject)))

    def file(self, need: str) -> Path:
        """Return the only file behind one of the needs."""
        (file,) = self.files(need)
        return file


def _cost(of: Tables) -> pd.DataFrame:
    section = of.config.sweeps[of.subject]
    batch = find_batch(of.config, section.model, section.decoding, section.questions)
    files = dict(zip(batch.variants, of.files("cost"), strict=True))
    base, *pruned = ((each.layer, read_arrow(files[each], ANSWERS)) for each in of["variants"])
    return cost(base[1], pruned)


def _plane(of: Tables) -> tuple[pd.DataFrame, tuple[float, float]]:
    file, matrix = of.files("placed")
    points = read_table(file, POINTS)
    heads = points.loc[points["kind"] == "head", "name"].tolist()
    z = read_table(matrix, ACCURACY, exact=False).set_index("question_id")
    return plane(points, z[heads].mean(axis=1))


READERS: Mapping[str, Callable[[Tables], Any]] = {
    "placebo_gains": lambda of: {name: read_gained(of.config, name) for name in of.config.sweeps},
    "gains": lambda of: {name: gains(read_cells(of.config, name)) for name in of.config.sweeps},
    "sweep": lambda of: of.subject,
    "z and variants": lambda of: read_z(of.config, of.subject),
    "variants": lambda of: of["z and variants"][1],
    "questions": lambda of: len(of["z and variants"][0]),
    "cells": lambda of: against_base(*of["z and variants"]),
    "agreement": lambda of: agreement(*of["z and variants"]),
    "heads": lambda of: read_controls(of.config, of.subject, "heads"),
    "spread": lambda of: read_controls(of.config, of.subject, "spread"),
    "cost": _cost,
    "selector": lambda of: of.subject,
    "curves": lambda of: read_table(of.file("curves"), CURVES),
    "test_questions": lambda of: int(read_metadata(of.file("curves"))["test_questions"]),
    "paired": lambda of: read_csv(of.file("paired"), PAIRED),
    "plane": _plane,
    "placed": lambda of: of["plane"][0],
    "kept": lambda of: of["plane"][1],
    "trial": lambda of: read_trial(of.config, of.subject),
    "published": lambda of: Published.read(of["folder"]),
    "audit": lambda of: audit(head_pruning(of["folder"]), of.config.seed),
}
"""How each need is met; ``layer`` and ``folder``, of the published tables, are given."""


def draw_violins(config: Config) -> None:
    """Draw the gains of all sweeps over (subject, layer) pairs."""
    _draw([find_exhibit("violins")], Tables(config))


def draw_levels(config: Config) -> None:
    """Draw the gains of all sweeps by MATH level."""
    _draw([find_exhibit("levels")], Tables(config))


def draw_sweep(config: Config, sweep: str) -> None:
    """Draw the figures of a sweep, and of each of its layers."""
    tables = Tables(config, sweep)
    _draw(exhibits("sweep"), tables, sweep=sweep)
    for layer in Shown(config).layers(sweep):
        tables["layer"] = layer
        _draw(exhibits("layer"), tables, sweep=sweep, layer=f"{layer:02d}")


def draw_selector(config: Config, selector: str) -> None:
    """Draw the figures of a selector."""
    _draw(exhibits("selector"), Tables(config, selector), selector=selector)


def draw_compression(config: Config, compression: str, published: Path) -> None:
    """Draw the figures of a compression, what the published tables have of it beside."""
    tables = Tables(config, compression, folder=published)
    _draw(exhibits("compression"), tables, compression=compression)


def draw_audit(config: Config, published: Path) -> None:
    """Hold the published tables, in the given folder, against chance and arithmetic."""
    stopwatch = Stopwatch()
    tables = Tables(config, folder=published)
    sources = [Path(published.name) / name for name in (HEAD_PRUNING, FIGURE_5)]
    made = _save(find_exhibit("audit"), tables, sources)
    found, cuts = tables["audit"].summary, arithmetic(published)
    for paper, sheet, numbers, digits in (
        ("sprint", audit_sheet(found), found, 6),
        ("compression", arithmetic_sheet(cuts), cuts, 4),
    ):
        template = filled(paths.AUDIT_TABLE, run=config.run, paper=paper)
        made += write_sheets(template, [sheet], numbers, digits)
    record(made, stopwatch, sources)


def _draw(figures: list[Exhibit], tables: Tables, **names: str) -> None:
    """Save some figures, each with its record."""
    for exhibit in figures:
        stopwatch = Stopwatch()
        sources = list(dict.fromkeys(file for need in exhibit.needs for file in tables.files(need)))
        if "cost" in exhibit.needs:  # a file a variant: their folder says as much
            sources = [sources[0].parent]
        record(_save(exhibit, tables, sources, **names), stopwatch, sources)


def _save(exhibit: Exhibit, tables: Tables, sources: list[Path], **names: str) -> list[Path]:
    function = resolve_name(f"headroom.{exhibit.draw}")
    draw = partial(function, *(tables[need] for need in exhibit.needs))
    return save(filled(exhibit.path, run=tables.config.run, **names), draw, sources)
