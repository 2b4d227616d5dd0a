"""The jobs that draw the figures declared for a run, sweep, selector or compression.

Names are config names; paths follow from the config. A record is written beside each figure.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import matplotlib.style

from headroom.analysis.compression.trial import read_trial
from headroom.analysis.controls import GAINS
from headroom.analysis.files import read_csv, record
from headroom.analysis.gains import read_z
from headroom.config import Config
from headroom.figures.drawing import save
from headroom.figures.style import SHEET
from headroom.planning.exhibits import Exhibit, Subject, exhibits
from headroom.planning.shown import Shown
from headroom.record import Stopwatch
from headroom.sprint.evaluation import PAIRED
from headroom.tables import ACCURACY, CURVES, POINTS, read_metadata, read_table

Files = list[Path]


def _gains(config: Config, _: str, files: Files) -> tuple[Any, ...]:
    tables = [read_csv(file, GAINS) for file in files]
    return (dict(zip(config.sweeps, tables, strict=True)),)


def _curves(config: Config, selector: str, files: Files) -> tuple[Any, ...]:
    questions = int(read_metadata(files[0])["test_questions"])
    return read_table(files[0], CURVES), read_csv(files[1], PAIRED), questions


def _points(config: Config, selector: str, files: Files) -> tuple[Any, ...]:
    points = read_table(files[0], POINTS)
    heads = points.loc[points["kind"] == "head", "name"].tolist()
    z = read_table(files[1], ACCURACY, exact=False).set_index("question_id")
    return points, z[heads].mean(axis=1)


READERS: Mapping[str, Callable[[Config, str, Files], tuple[Any, ...]]] = {
    "gains": _gains,
    "accuracy": lambda config, sweep, _: read_z(config, sweep),
    "curves": _curves,
    "points": _points,
    "trial": lambda config, compression, _: (read_trial(config, compression),),
}
"""Readers of a figure's data by `Exhibit.needs`; see `headroom.planning.shown.Shown.files`."""


def draw_run(config: Config) -> None:
    """Draw the figures of all sweeps together."""
    _draw("run", config)


def draw_sweep(config: Config, sweep: str) -> None:
    """Draw the figures of a sweep and of each of its layers."""
    _draw("sweep", config, sweep)
    for layer in Shown(config).layers(sweep):
        _draw("layer", config, sweep, layer=layer)


def draw_selector(config: Config, selector: str) -> None:
    """Draw the figures of a selector."""
    _draw("selector", config, selector)


def draw_compression(config: Config, compression: str) -> None:
    """Draw the figures of a compression."""
    _draw("compression", config, compression)


def _draw(per: Subject, config: Config, of: str = "", **layer: int) -> None:
    """Draw figures of one sweep, selector, compression or run (`of` empty), with their records."""
    for exhibit in exhibits(per):
        stopwatch = Stopwatch()
        sources = list(map(Path, Shown(config).files(exhibit.needs, of)))
        needs = READERS[exhibit.needs](config, of, sources)
        record(draw_exhibit(exhibit, config.run, of, needs, sources, **layer), stopwatch, sources)


def draw_exhibit(
    exhibit: Exhibit, run: str, of: str, needs: Any, sources: Files, **layer: int
) -> Files:
    """Draw a figure and save it; return its files.

    Args:
        exhibit: the figure to draw.
        run: name of the run.
        of: name of its sweep, selector or compression; empty for a figure of the run.
        needs: positional arguments of the function that draws it.
        sources: the files that these were read from.
        layer: the layer, for a figure of one layer.
    """
    with matplotlib.style.context(SHEET):
        figure = resolve_name(f"headroom.{exhibit.draw}")(*needs, **layer)
        return save(exhibit, exhibit.template(run, of, **layer), of, figure, sources)
