"""A figure with its words and numbers, and how it is saved.

Every figure is saved as PDF and PNG for print, as SVG in a light and a dark theme for the report,
with its numbers as CSV and its title, caption and alternative text as JSON. No file carries a
date: equal data give equal bytes.
"""

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Image

from headroom.analysis.sheet import write_csv
from headroom.figures.style import TWO_COLUMNS, Theme, theme
from headroom.planning.exhibits import Section, Subject, exhibits
from headroom.tables import atomic, write_json

SUFFIXES = ("pdf", "png", "svg", "dark.svg", "csv", "json")
"""What each figure is saved as."""

EMPTY = "An empty figure."
"""How the alternative text of a figure starts that has nothing to show."""

_LAYOUT = ("GDEF", "GPOS", "GSUB", "MATH", "kern")
"""Tables of a font that say how glyphs are placed: in a PDF they are."""

_NO_DATES: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None},
    "png": {},
    "svg": {"Date": None},
}


@dataclass(frozen=True)
class Figure:
    """A drawn figure.

    The caption states n, the interval and the test, if there is one; `alt` says in words what is
    seen; `data` holds every number drawn.
    """

    image: Image
    title: str
    caption: str
    alt: str
    data: pd.DataFrame


@dataclass(frozen=True)
class Picture:
    """A figure as the page shows it: data URIs for light and dark, and its words."""

    title: str
    caption: str
    alt: str
    sources: list[str]
    inches: float
    light: str
    dark: str


def empty(title: str, sentence: str, columns: Sequence[str]) -> Figure:
    """Return a figure that says why it is empty; its numbers have the columns of a full one."""
    image = Image(figsize=(TWO_COLUMNS, 0.8))
    image.text(0.5, 0.5, sentence, ha="center", va="center")
    data = pd.DataFrame(columns=list(columns))
    return Figure(image, title, sentence, f"{EMPTY} {sentence}", data)


def save(template: str, draw: Callable[[Theme], Figure], sources: Sequence[Path]) -> list[Path]:
    """Draw a figure in both themes and save it.

    Args:
        template: path with ``{suffix}`` left open.
        draw: makes the figure in the colours of a theme.
        sources: the files that its numbers come from, named in the JSON file.

    Returns:
        The files made, one for each of `SUFFIXES`.
    """
    with theme("light") as colors:
        figure = draw(colors)
        for kind in ("pdf", "png", "svg"):
            _write(figure.image, Path(template.format(suffix=kind)), kind)
            figure.image.set_layout_engine("none")  # places found once hold for every format
    with theme("dark") as colors:
        _write(draw(colors).image, Path(template.format(suffix="dark.svg")), "svg")
    write_csv(Path(template.format(suffix="csv")), figure.data)
    words = {
        "title": figure.title,
        "caption": figure.caption,
        "alt": figure.alt,
        "sources": [str(source) for source in sources],
        "inches": float(figure.image.get_figwidth()),
    }
    write_json(Path(template.format(suffix="json")), words)
    return [Path(template.format(suffix=suffix)) for suffix in SUFFIXES]


def pictures(per: Subject, section: Section, **names: str) -> list[Picture]:
    """Return the figures of a subject that were drawn for a section, but for empty ones.

    Args:
        per: what there is one of.
        section: of the page.
        names: of run and subject, as their paths have them.
    """
    found = []
    for exhibit in exhibits(per, section):
        words = Path(exhibit.path.format(suffix="json", **names))
        if words.exists():
            facts = json.loads(words.read_text(encoding="utf-8"))
            light, dark = (
                base64.b64encode(Path(exhibit.path.format(suffix=suffix, **names)).read_bytes())
                for suffix in ("svg", "dark.svg")
            )
            start = "data:image/svg+xml;base64,"
            found.append(Picture(**facts, light=start + light.decode(), dark=start + dark.decode()))
    return [picture for picture in found if not picture.alt.startswith(EMPTY)]


def _write(image: Image, path: Path, kind: str) -> None:
    # On screen the page's own background shows; print gets its own.
    transparent = kind == "svg"
    with atomic(path) as temporary, _fonts_without_layout():
        image.savefig(temporary, format=kind, metadata=_NO_DATES[kind], transparent=transparent)


@contextmanager
def _fonts_without_layout() -> Iterator[None]:
    """Embed fonts without what only places glyphs: to subset it takes half of a figure's time."""
    from fontTools import subset  # as slow to import as matplotlib, which does when it saves a PDF

    load = subset.load_font

    def load_glyphs(*arguments: Any, **options: Any) -> Any:
        font = load(*arguments, **options)
        for tag in _LAYOUT:
            if tag in font:
                del font[tag]
        return font

    subset.load_font = load_glyphs
    try:
        yield
    finally:
        subset.load_font = load
