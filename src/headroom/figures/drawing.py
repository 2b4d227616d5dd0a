"""A figure with its texts and data, and how it is saved.

Every figure is saved as PDF and PNG for print and as SVG for the page, with its data as CSV and
its title, caption and alternative text as JSON. No file has a date: equal data give equal bytes.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure as Image

from headroom.analysis.files import write_csv
from headroom.analysis.text import short
from headroom.figures.style import TWO_COLUMNS
from headroom.planning.exhibits import EMPTY, Exhibit
from headroom.tables import atomic, write_json

SUFFIXES = ("pdf", "png", "svg", "csv", "json")
"""Suffixes of the files of a figure."""

_LAYOUT = ("GDEF", "GPOS", "GSUB", "MATH", "kern")
"""Font tables for placing glyphs; a PDF does not need them, since its glyphs are placed."""

_NO_DATE: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None},
    "png": {},
    "svg": {"Date": None},
}


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


def color_bar(image: Image, axes: Axes, drawn: ScalarMappable, **options: Any) -> Colorbar:
    """Draw a colour bar beside axes."""
    bar = image.colorbar(drawn, ax=axes, **options)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7)
    return bar


def save(
    exhibit: Exhibit, template: str, of: str, figure: Figure, sources: Sequence[Path]
) -> list[Path]:
    """Save a figure.

    Args:
        exhibit: its declaration.
        template: path with the placeholder ``{suffix}``.
        of: name of its sweep, selector or compression.
        figure: the drawn figure.
        sources: the files that its numbers come from, named in the JSON file.

    Returns:
        The files made, one for each of `SUFFIXES`.
    """
    made = [Path(template.format(suffix=suffix)) for suffix in SUFFIXES]
    for path, kind in zip(made, _NO_DATE, strict=False):
        # An SVG shows the page's background; print has its own.
        options: dict[str, Any] = {"metadata": _NO_DATE[kind], "transparent": kind == "svg"}
        with atomic(path) as temporary, _fonts_without_layout():
            figure.image.savefig(temporary, format=kind, **options)
        figure.image.set_layout_engine("none")  # the first format's layout holds for all
    write_csv(made[-2], figure.data)
    title, caption = exhibit.words(short(of), figure.facts)
    words = {"title": title, "caption": caption, "alt": figure.alt}
    facts = {"sources": list(map(str, sources)), "inches": float(figure.image.get_figwidth())}
    write_json(made[-1], words | facts)
    return made


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
