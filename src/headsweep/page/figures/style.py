"""The style of every figure: palette, colour maps, widths and the line of each method.

The palette is Okabe and Ito's (https://jfly.uni-koeln.de/color/), distinguishable for colour-blind
readers; lines also differ in dashes and weight, so that they stay distinct in greyscale. Fonts,
sizes and the colours of text and axes are set in ``headsweep.mplstyle``.
"""

from bisect import bisect_left
from pathlib import Path
from typing import NamedTuple

from matplotlib.colors import LinearSegmentedColormap, to_rgb

from headsweep.experiments.sprint import methods

SHEET = Path(__file__).with_name("headsweep.mplstyle")
"""Matplotlib style sheet of every figure."""

ONE_COLUMN, TWO_COLUMNS = 3.4, 7.0
"""Widths in inches of a figure in one column of a two-column page, and across the page."""

INK, MUTED, GRID, SURFACE = "#1b1f24", "#5f6771", "#e3e6ea", "#ffffff"
BLUE, VERMILLION, GREEN, PURPLE = "#0072b2", "#d55e00", "#00845f", "#b0558a"
ORANGE = ("#bd8a1a", "#8f6200", "#5e4100")
"""Three shades of one hue, light to dark."""

DIVERGING = LinearSegmentedColormap.from_list("differences", [VERMILLION, "#f7f7f5", BLUE])
SEQUENTIAL = LinearSegmentedColormap.from_list("amounts", ["#f7f7f5", BLUE, "#00284a"])
"""For amounts; of differences, vermillion ones are worse and blue ones better."""


class Line(NamedTuple):
    """How a method is drawn in a Pass@N figure."""

    color: str
    dashes: str | tuple[float, tuple[float, ...]] = "-"
    width: float = 1.2
    marker: str = "o"
    order: int = 2


_LINES = {
    methods.SPRINT: Line(BLUE, width=2.4, order=5),
    methods.RANDOM: Line(GREEN, (0, (5, 1.5)), marker="D", order=3),
    # Of these no curve is drawn: their differences from SPRINT are.
    methods.POOL: Line(GREEN),
    methods.COVER: Line(PURPLE),
    methods.BASE: Line(INK),
}
_OTHER = Line(MUTED)
_SAMPLED = (
    Line(ORANGE[0], (0, (1, 1)), marker="v", order=3),
    Line(ORANGE[1], (0, (4, 1.2)), marker="s", order=3),
    Line(ORANGE[2], marker="^", order=3),
)


def method_line(method: str) -> Line:
    """Return the line of a method.

    SPRINT stands out; samplings share a hue, by temperature; what has no line of its own is muted.
    """
    if not methods.is_sampling(method):
        return _LINES.get(method, _OTHER)
    temperature = float(method.partition("T=")[2].split()[0])
    return _SAMPLED[bisect_left((0.3, 0.75), temperature)]


def legible(background: tuple[float, float, float]) -> str:
    """Return black or white, whichever contrasts more with a background (WCAG 2.2)."""
    equal = 0.179  # luminance with equal contrast to both: (L + 0.05)² = 0.05 · 1.05
    return "#000000" if luminance(background) > equal else "#ffffff"


def luminance(color: str | tuple[float, float, float]) -> float:
    """Return the relative luminance of an sRGB colour (WCAG 2.2), 0 to 1."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
