"""The look of every figure: one style file, one palette, two themes, two widths.

The palette is Okabe and Ito's (https://jfly.uni-koeln.de/color/), which stays distinct for
colour-blind readers; lines also differ in dashes and weight, so that print in grey works.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import matplotlib.style
from matplotlib.colors import LinearSegmentedColormap, to_rgb

from headroom.sprint import methods

ThemeName = Literal["light", "dark"]

ONE_COLUMN = 3.4
"""Width in inches of a figure in one column of a two-column page."""

TWO_COLUMNS = 7.0
"""Width in inches of a figure across the page."""

_STYLE = Path(__file__).with_name("headroom.mplstyle")


@dataclass(frozen=True)
class Theme:
    """Colours of one theme, as hex strings."""

    ink: str
    muted: str
    grid: str
    surface: str
    neutral: str  # middle of the diverging map: no difference
    deep: str  # end of the sequential map: most
    blue: str
    vermillion: str
    green: str
    purple: str
    orange: tuple[str, str, str]  # three tints of one hue, weak to strong


THEMES: dict[ThemeName, Theme] = {
    "light": Theme(
        ink="#1b1f24",
        muted="#5f6771",
        grid="#e3e6ea",
        surface="#ffffff",
        neutral="#f7f7f5",
        deep="#00284a",
        blue="#0072b2",
        vermillion="#d55e00",
        green="#00845f",
        purple="#b0558a",
        orange=("#bd8a1a", "#8f6200", "#5e4100"),
    ),
    "dark": Theme(
        ink="#e8eaed",
        muted="#a3abb5",
        grid="#343941",
        surface="#1b1e23",
        neutral="#26292f",
        deep="#e6f4ff",
        blue="#56b4e9",
        vermillion="#ff8a3d",
        green="#2fc59a",
        purple="#e08fbc",
        orange=("#a8842f", "#d6a338", "#ffcf66"),
    ),
}


@dataclass(frozen=True)
class Line:
    """How one method of a Pass@N figure is drawn."""

    color: str
    dashes: str | tuple[float, tuple[float, ...]] = "-"
    width: float = 1.2
    marker: str = "o"
    order: int = 2


@contextmanager
def theme(name: ThemeName) -> Iterator[Theme]:
    """Draw what is made inside with the project's style and the colours of a theme."""
    colors = THEMES[name]
    settings = {
        "text.color": colors.ink,
        "axes.labelcolor": colors.ink,
        "axes.edgecolor": colors.muted,
        "axes.facecolor": "none",
        "xtick.color": colors.ink,
        "ytick.color": colors.ink,
        "grid.color": colors.grid,
        "figure.facecolor": colors.surface,
        "savefig.facecolor": colors.surface,
    }
    with matplotlib.style.context([_STYLE, settings]):
        yield colors


def diverging(colors: Theme) -> LinearSegmentedColormap:
    """Return the map for differences: vermillion is worse, blue is better."""
    stops = [colors.vermillion, colors.neutral, colors.blue]
    return LinearSegmentedColormap.from_list("headroom", stops)


def sequential(colors: Theme) -> LinearSegmentedColormap:
    """Return the map for amounts: from hardly any colour to the deepest."""
    stops = [colors.neutral, colors.blue, colors.deep]
    return LinearSegmentedColormap.from_list("headroom amounts", stops)


def legible(background: tuple[float, float, float]) -> str:
    """Return black or white, whichever contrasts more with a background (WCAG 2 ratio)."""
    luminance = _luminance(background)
    on_white, on_black = 1.05 / (luminance + 0.05), (luminance + 0.05) / 0.05
    return "#ffffff" if on_white > on_black else "#000000"


def contrast(first: str, second: str) -> float:
    """Return the WCAG 2 contrast ratio of two colours, 1 to 21."""
    dark, light = sorted((_luminance(to_rgb(first)), _luminance(to_rgb(second))))
    return (light + 0.05) / (dark + 0.05)


def method_line(method: str, colors: Theme) -> Line:
    """Return the line of a method.

    SPRINT stands out; the sampling temperatures share a hue, ordered by temperature; single
    models and the oracle are thin references. Unknown names get a muted line.
    """
    if method.startswith("sampling"):
        temperature = _temperature(method)
        strength = 0 if temperature <= 0.3 else 1 if temperature <= 0.75 else 2
        marks = (("v", (0, (1, 1))), ("s", (0, (4, 1.2))), ("^", "-"))
        marker, dashes = marks[strength]
        return Line(colors.orange[strength], dashes, marker=marker, order=3)
    known = {
        methods.SPRINT: Line(colors.blue, width=2.4, order=5),
        methods.RANDOM: Line(colors.green, (0, (5, 1.5)), marker="D", order=3),
        methods.POOL: Line(colors.green, (0, (1, 1)), 1.0, "v", 2),
        methods.COVER: Line(colors.purple, marker="P", order=4),
        methods.SINGLE: Line(colors.muted, (0, (3, 1.5)), 0.9, "", 1),
        methods.BASE: Line(colors.ink, (0, (1, 1.5)), 0.9, "", 1),
        methods.ORACLE: Line(colors.muted, "-", 0.9, "", 1),
    }
    return known.get(method, Line(colors.muted, (0, (2, 1, 1, 1)), 1.0, "x"))


def _temperature(method: str) -> float:
    try:
        return float(method.rpartition("T=")[2].split()[0])
    except (ValueError, IndexError):
        return 1.0


def _luminance(color: tuple[float, ...]) -> float:
    """Return the relative luminance of an sRGB colour (WCAG 2.2)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
