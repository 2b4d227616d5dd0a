"""Variance components: how much of the spread between heads is more than noise."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Image
from matplotlib.lines import Line2D

from headroom.analysis.controls import HARMLESS, LEVEL
from headroom.analysis.sheet import rows_of
from headroom.analysis.text import percent, short
from headroom.figures.drawing import Figure
from headroom.figures.style import TWO_COLUMNS, Theme
from headroom.planning.exhibits import words

_ROW = 0.19  # inches


def components(spread: pd.DataFrame, sweep: str, questions: int, colors: Theme) -> Figure:
    """Draw the spread of accuracy between heads beside what noise alone gives.

    Args:
        spread: see `headroom.analysis.controls.SPREAD`.
        sweep: its name.
        questions: how many questions each head answered.
        colors: the theme to draw in.
    """
    image = Image(figsize=(TWO_COLUMNS, _ROW * max(len(spread), 2) + 1.15))
    axes = image.add_subplot()
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    for place, row in enumerate(rows_of(spread)):
        noise, observed = 100 * row.noise, 100 * row.spread
        real = row.p < LEVEL
        color = colors.blue if real else colors.muted
        axes.plot([noise, observed], [place] * 2, color=color, linewidth=1.4, zorder=2)
        axes.plot(noise, place, "|", color=colors.ink, markersize=8, markeredgewidth=1.4, zorder=3)
        face = color if real else colors.surface
        axes.plot(observed, place, "o", color=color, mfc=face, markersize=4.5, zorder=4)
        _beside(axes, place, f"{100 * row.share:.0f}%")
    _beside(axes, -1, "share beyond noise")
    names = [f"{row.of} ({row.heads})" for row in rows_of(spread)]
    axes.set_yticks(range(len(spread)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(spread) - 0.4, -0.6)
    axes.set_xscale("symlog", linthresh=1, linscale=0.5)
    ticks = [0, 0.5, 1, 2, 5, 10, 20, 50]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlim(0, max(5, 115 * float(spread[["spread", "noise"]].max().max())))
    axes.set_xlabel("standard deviation of accuracy between heads (points)")
    _explain(image, colors)
    told = words("components", of=short(sweep), n=questions)
    return Figure(image, *told, _alt(spread, sweep), spread)


def _beside(axes: Axes, place: float, text: str) -> None:
    """Write to the right of a row."""
    where = ("axes fraction", "data")
    axes.annotate(
        text, (1.01, place), xycoords=where, va="center", fontsize=7.5, annotation_clip=False
    )


def _explain(image: Image, colors: Theme) -> None:
    handles = [
        Line2D([], [], color=color, mfc=face, marker=marker, label=label, ls="", markersize=4.5)
        for color, face, marker, label in (
            (colors.ink, colors.ink, "|", "noise alone"),
            (colors.blue, colors.blue, "o", f"observed, p < {LEVEL}"),
            (colors.muted, colors.surface, "o", "observed"),
        )
    ]
    image.legend(handles=handles, loc="outside upper left", ncols=3)


def _alt(spread: pd.DataFrame, sweep: str) -> str:
    chosen = spread[spread["of"] == HARMLESS] if HARMLESS in set(spread["of"]) else spread
    parts = [
        f"{row.of}: {100 * row.spread:.1f} points, {100 * row.noise:.1f} by noise alone, "
        f"{percent(row.share)} of the variance beyond it"
        for row in rows_of(chosen)
    ]
    real = int((spread["p"] < LEVEL).sum())
    return (
        f"Dot plot of the spread of accuracy between heads of {short(sweep)}, in {len(spread)} "
        f"rows, {real} with more than noise by test. {'; '.join(parts)}."
    )
