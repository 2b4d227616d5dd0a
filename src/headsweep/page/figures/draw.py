"""A figure with its texts and data, how it is saved, and the job that draws a run's figures.

Every figure is saved as PDF and PNG for print and as SVG for the page, with its data as CSV and
its title, caption and alternative text as JSON. No file has a date: equal data give equal bytes.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple, get_args

import matplotlib.style
import pandas as pd
from matplotlib.figure import Figure as Image

from headsweep.config.titles import title, titles
from headsweep.errors import ConfigError
from headsweep.experiments.maps.outcomes import HEADS as MAPPED
from headsweep.experiments.sprint.evaluation import PAIRED_COLUMNS
from headsweep.experiments.sprint.validation import reading_title
from headsweep.files.record import Stopwatch
from headsweep.files.safe_files import atomic, read_metadata, read_table, write_csv, write_json
from headsweep.files.tables import ACCURACY, CURVES, POSITIONS
from headsweep.page.figures.style import SHEET, TWO_COLUMNS
from headsweep.results.compression_arms import read_results
from headsweep.results.exhibits import EMPTY, EXHIBITS, Exhibit, RunFiles, Subject
from headsweep.results.facts import read_csv, record
from headsweep.results.gains import GAINS, read_z
from headsweep.store.layout import Store
from headsweep.text import short

_LOG = logging.getLogger(__name__)

SUFFIXES = ("pdf", "png", "svg", "csv", "json")
"""Suffixes of the files of a figure."""

_LAYOUT = ["GDEF", "GPOS", "GSUB", "MATH", "kern"]
"""Font tables for placing glyphs. A PDF does not need them, since its glyphs are placed, and their
subsetting takes half of a figure's time."""

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


Needs = tuple[Any, ...]  # positional arguments of the function that draws a figure


def _gains(store: Store, _: str, files: Sequence[Path]) -> Needs:
    parts = []
    for (name, called), file in zip(titles(store.config, "sweeps").items(), files, strict=True):
        parts.append(read_csv(file, GAINS).assign(sweep=name, title=called))
    return (pd.concat(parts),)


def _curves(store: Store, _: str, files: Sequence[Path]) -> Needs:
    curves, paired = files
    facts = read_metadata(curves)
    table = read_table(curves, CURVES)
    of_loss = reading_title(facts["setting"])
    return table, read_csv(paired, PAIRED_COLUMNS), int(facts["test_questions"]), of_loss


def _points(store: Store, _: str, files: Sequence[Path]) -> Needs:
    file, accuracy = files
    points = read_table(file, POSITIONS)
    heads = points.loc[points["kind"] == "head", "name"].tolist()
    z = read_table(accuracy, ACCURACY).set_index("question_id")
    return points, z[heads].mean(axis=1)


READERS: Mapping[str, Callable[..., Needs]] = {
    "gains": _gains,
    "accuracy": lambda store, sweep, _: read_z(store, sweep),
    "curves": _curves,
    "map": lambda store, _, files: (read_csv(files[0], MAPPED),),
    "points": _points,
    "results": lambda store, compression, _: (read_results(store, compression),),
    "frontier": lambda store, _, files: tuple(map(read_csv, files)),
}
"""Readers of a figure's data by `Exhibit.needs`: functions of the store, the name of the
subject, and the files that `headsweep.results.exhibits.RunFiles.figure_data` lists."""


def draw(store: Store, subject: str, name: str = "") -> None:
    """Draw the figures of a sweep and each of its layers, or of another kind of subject
    (`headsweep.results.exhibits.Subject`), given its name, empty for the run; write records.

    Raises:
        ConfigError: the config has no such subject.
    """
    config = store.config
    kinds = get_args(Subject)
    if subject not in kinds:
        raise ConfigError(f"figures have no subject {subject!r}; choose {', '.join(kinds)}")
    called = ""
    if name:
        subjects = getattr(config, f"{subject}s")
        if name not in subjects:
            raise ConfigError(f"{subject} {name!r} is not in the config: {', '.join(subjects)}")
        called = title(config, f"{subject}s", name)
    run = RunFiles(store)
    layers = [{"layer": layer} for layer in run.layers(name)] if subject == "sweep" else []
    for exhibit in EXHIBITS:
        places: Mapping[str, Any] = {subject: [{}], "layer": layers}
        for layer in places.get(exhibit.per, []):
            stopwatch = Stopwatch()
            sources = list(map(Path, run.figure_data(exhibit.needs, name)))
            needs = READERS[exhibit.needs](store, name, sources)
            made = draw_exhibit(exhibit, config.run, name, needs, sources, called, **layer)
            record(made, stopwatch, sources)


def draw_exhibit(
    exhibit: Exhibit,
    run: str,
    subject: str,
    needs: Needs,
    sources: Sequence[Path],
    called: str = "",
    **layer: int,
) -> list[Path]:
    """Draw a figure of a run and its `subject`, empty for the run itself; return its files, one
    for each of `SUFFIXES`.

    The JSON file names the `sources` that `needs` were read from. `called` is the subject's title,
    by default its name; `layer` is that of a figure of one layer.
    """
    template = exhibit.template(run, subject, **layer)
    made = [Path(template.format(suffix=suffix)) for suffix in SUFFIXES]
    with drawing():
        figure: Figure = resolve_name(f"headsweep.page.figures.{exhibit.draw}")(*needs, **layer)
        heading, caption = exhibit.words(called or short(subject), figure.facts)
        save(figure, made, heading, caption, sources)
    return made


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in the style of every figure."""
    from fontTools.subset import Options  # slow to import; matplotlib uses it to save a PDF

    Options._drop_tables_default = sorted({*Options._drop_tables_default, *_LAYOUT})
    with matplotlib.style.context(SHEET), _warnings_logged():
        yield


def save(
    figure: Figure, made: Sequence[Path], heading: str, caption: str, sources: Sequence[Path]
) -> None:
    """Save a figure as the files `made`, one for each of `SUFFIXES`, while `drawing`."""
    for path, (kind, dates) in zip(made, _NO_DATE.items(), strict=False):
        options: dict[str, Any] = {"format": kind, "metadata": dates}
        with atomic(path) as temporary:
            # An SVG shows the page's background; print has its own.
            figure.image.savefig(temporary, transparent=kind == "svg", **options)
        figure.image.set_layout_engine("none")  # the first format's layout holds for all
    write_csv(made[-2], figure.data)
    words = {"title": heading, "caption": caption, "alt": figure.alt}
    write_json(made[-1], {**words, "sources": list(map(str, sources))})


@contextmanager
def _warnings_logged() -> Iterator[None]:
    """Log each warning once, as of a letter that no font has; the terminal is for progress."""
    with warnings.catch_warnings(record=True) as caught:
        try:
            yield
        finally:
            for message in dict.fromkeys(str(warning.message) for warning in caught):
                _LOG.info("%s", message)
