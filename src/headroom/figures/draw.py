"""A figure with its texts and data, how it is saved, and the jobs that draw a run's figures.

Every figure is saved as PDF and PNG for print and as SVG for the page, with its data as CSV and
its title, caption and alternative text as JSON. No file has a date: equal data give equal bytes.
Names are config names; paths follow from the config. A record is written beside each figure.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple, cast

import matplotlib.style
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure as Image

from headroom.analysis.controls import GAINS
from headroom.analysis.files import read_csv, record
from headroom.analysis.gains import read_z
from headroom.analysis.text import short
from headroom.analysis.trials import read_trial
from headroom.config import Config
from headroom.errors import ConfigError
from headroom.figures.style import SHEET, TWO_COLUMNS
from headroom.planning.exhibits import EMPTY, Exhibit, Shown, Subject, exhibits
from headroom.record import Stopwatch
from headroom.sprint.evaluation import PAIRED
from headroom.tables import (
    ACCURACY,
    CURVES,
    POINTS,
    atomic,
    read_metadata,
    read_table,
    write_csv,
    write_json,
)

SUFFIXES = ("pdf", "png", "svg", "csv", "json")
"""Suffixes of the files of a figure."""

_LAYOUT = ("GDEF", "GPOS", "GSUB", "MATH", "kern")
"""Font tables for placing glyphs; a PDF does not need them, since its glyphs are placed."""

_NO_DATE = {"pdf": {"CreationDate": None}, "png": {}, "svg": {"Date": None}}


class Figure(NamedTuple):
    """A drawn figure."""

    image: Image
    alt: str
    """Alternative text: what the figure shows, in words."""
    data: pd.DataFrame
    """Every number drawn."""
    facts: Mapping[str, object]
    """Values for the placeholders of the exhibit's title and caption."""


def empty(sentence: str) -> Figure:
    """Return a figure that says why it is empty."""
    image = Image(figsize=(TWO_COLUMNS, 0.8))
    image.text(0.5, 0.5, sentence, ha="center", va="center")
    return Figure(image, f"{EMPTY} {sentence}", pd.DataFrame(), {})


def color_bar(axes: Axes, drawn: ScalarMappable, **options: Any) -> Colorbar:
    """Draw a colour bar beside axes."""
    bar = axes.figure.colorbar(drawn, ax=axes, **options)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7)
    return bar


@contextmanager
def _fonts_without_layout() -> Iterator[None]:
    """Embed fonts without `_LAYOUT`, whose subsetting takes half of a figure's time."""
    from fontTools import subset  # slow to import; matplotlib imports it only to save a PDF

    load = subset.load_font

    def load_glyphs(*arguments: Any, **options: Any) -> Any:
        font = load(*arguments, **options)
        for tag in set(_LAYOUT) & set(font.keys()):
            del font[tag]
        return font

    subset.load_font = load_glyphs
    try:
        yield
    finally:
        subset.load_font = load


Needs = tuple[Any, ...]
"""Positional arguments of the function that draws a figure."""


def _gains(config: Config, _: str, *files: Path) -> Needs:
    tables = (read_csv(file, GAINS) for file in files)
    return (dict(zip(config.sweeps, tables, strict=True)),)


def _curves(config: Config, _: str, curves: Path, paired: Path) -> Needs:
    questions = int(read_metadata(curves)["test_questions"])
    return read_table(curves, CURVES), read_csv(paired, PAIRED), questions


def _points(config: Config, _: str, file: Path, accuracy: Path) -> Needs:
    points = read_table(file, POINTS)
    heads = points.loc[points["kind"] == "head", "name"].tolist()
    z = read_table(accuracy, ACCURACY, exact=False).set_index("question_id")
    return points, z[heads].mean(axis=1)


READERS: Mapping[str, Callable[..., Needs]] = {
    "gains": _gains,
    "accuracy": lambda config, sweep, _: read_z(config, sweep),
    "curves": _curves,
    "points": _points,
    "trial": lambda config, compression, *_: (read_trial(config, compression),),
    "frontier": lambda config, _, *files: tuple(map(pd.read_csv, files)),
}
"""Readers of a figure's data by `Exhibit.needs`: functions of the config, the name of the
subject, and the files that `headroom.planning.exhibits.Shown.files` lists."""


def draw(config: Config, subject: str, of: str = "") -> None:
    """Draw the figures of a sweep and each of its layers, or of another subject; write records.

    Args:
        config: the run's config.
        subject: its kind, of `headroom.planning.exhibits.Subject`.
        of: its name; empty for the run.

    Raises:
        ConfigError: the config has no such subject.
    """
    if of and of not in (known := getattr(config, f"{subject}s")):
        raise ConfigError(f"{subject} {of!r} is not in the config: {', '.join(known)}")
    _draw(cast(Subject, subject), config, of)
    for layer in Shown(config).layers(of) if subject == "sweep" else ():
        _draw("layer", config, of, layer=layer)


def _draw(per: Subject, config: Config, of: str = "", **layer: int) -> None:
    for exhibit in exhibits(per):
        stopwatch = Stopwatch()
        sources = list(map(Path, Shown(config).files(exhibit.needs, of)))
        needs = READERS[exhibit.needs](config, of, *sources)
        record(draw_exhibit(exhibit, config.run, of, needs, sources, **layer), stopwatch, sources)


def draw_exhibit(
    exhibit: Exhibit, run: str, of: str, needs: Needs, sources: Sequence[Path], **layer: int
) -> list[Path]:
    """Draw a figure and save it; return its files, one for each of `SUFFIXES`.

    Args:
        exhibit: the figure to draw.
        run: name of the run.
        of: name of its subject; empty for a figure of the run.
        needs: positional arguments of the function that draws it.
        sources: the files that these were read from, named in the JSON file.
        layer: the layer, for a figure of one layer.
    """
    template = exhibit.template(run, of, **layer)
    made = [Path(template.format(suffix=suffix)) for suffix in SUFFIXES]
    with matplotlib.style.context(SHEET):
        figure: Figure = resolve_name(f"headroom.{exhibit.draw}")(*needs, **layer)
        for path, (kind, dates) in zip(made, _NO_DATE.items(), strict=False):
            options: dict[str, Any] = {"format": kind, "metadata": dates}
            with atomic(path) as temporary, _fonts_without_layout():
                # An SVG shows the page's background; print has its own.
                figure.image.savefig(temporary, transparent=kind == "svg", **options)
            figure.image.set_layout_engine("none")  # the first format's layout holds for all
    write_csv(made[-2], figure.data)
    title, caption = exhibit.words(short(of), figure.facts)
    words = {"title": title, "caption": caption, "alt": figure.alt}
    write_json(made[-1], {**words, "sources": list(map(str, sources))})
    return made
