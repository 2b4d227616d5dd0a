"""A forest plot: what the loss of each head does, with its interval and the result of its test."""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Image

from headroom.analysis.controls import LEVEL, helping, hurting
from headroom.analysis.sheet import rows_of
from headroom.analysis.text import points, short, signed
from headroom.figures.drawing import Figure
from headroom.figures.style import TWO_COLUMNS, Theme
from headroom.planning.exhibits import words

_ROW = 0.15  # inches
_PANELS = 4  # a row


def forest(heads: pd.DataFrame, sweep: str, colors: Theme) -> Figure:
    """Draw each head's gain over base with its 95% interval, a panel a layer.

    Args:
        heads: see `headroom.analysis.controls.HEADS`.
        sweep: its name.
        colors: the theme to draw in.
    """
    pruned = heads[heads["head"].notna()]
    layers = sorted(pruned["layer"].unique())
    columns = min(_PANELS, len(layers))
    rows = math.ceil(len(layers) / columns)
    tallest = int(pruned["head"].max()) + 1
    image = Image(figsize=(TWO_COLUMNS, rows * (_ROW * tallest + 0.55) + 0.75))
    panels = image.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    limits = _limits(pruned)
    for number, (axes, layer) in enumerate(zip(panels, layers, strict=False)):
        _panel(axes, pruned[pruned["layer"] == layer], limits, colors)
        axes.set_title(f"layer {layer}")
        if number % columns == 0:
            axes.set_ylabel("head pruned")
        axes.tick_params(labelbottom=True)
    for axes in panels[len(layers) :]:
        axes.set_axis_off()
    panels[0].set_xlim(*limits)
    panels[0].set_ylim(tallest - 0.4, -0.6)
    panels[0].set_yticks(range(tallest))
    image.supxlabel("accuracy − base (percentage points)", fontsize=8)
    handles = [
        panels[0].plot([], [], marker="o", ls="-", color=color, label=label, mfc=face)[0]
        for color, face, label in (
            (colors.blue, colors.blue, f"helps, q < {LEVEL}"),
            (colors.vermillion, colors.vermillion, f"hurts, q < {LEVEL}"),
            (colors.muted, colors.surface, "not shown to differ from base"),
        )
    ]
    image.legend(handles=handles, loc="outside upper left", ncols=3)
    told = words("forest", of=short(sweep), n=pruned["n"].iloc[0], heads=len(pruned))
    return Figure(image, *told, _alt(pruned, sweep), pruned)


def _limits(pruned: pd.DataFrame) -> tuple[float, float]:
    """Return a range that shows all intervals but those of ruinous heads."""
    usual = pruned[(pruned["q"] >= LEVEL) | (pruned["gain"] > 0)]
    shown = usual if len(usual) else pruned
    low, high = 100 * shown["low"].min(), 100 * shown["high"].max()
    reach = max(high, -low)
    return max(-2.2 * reach, 100 * pruned["low"].min()) - 1, high + 1


def _panel(axes: Axes, layer: pd.DataFrame, limits: tuple[float, float], colors: Theme) -> None:
    axes.axvline(0, color=colors.ink, linewidth=0.8, zorder=1)
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0, labelsize=6.5)
    for row in rows_of(layer):
        different = row.q < LEVEL
        color = colors.muted
        if different:
            color = colors.blue if row.gain > 0 else colors.vermillion
        gain, low, high = 100 * row.gain, 100 * row.low, 100 * row.high
        if gain < limits[0]:  # out of view: an arrow says how far
            axes.plot(limits[0], row.head, marker="<", color=color, clip_on=False)
            axes.annotate(
                signed(gain),
                (limits[0], row.head),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=6.5,
                color=color,
            )
            continue
        axes.plot([low, high], [row.head] * 2, color=color, linewidth=1.1, zorder=2)
        face = color if different else colors.surface
        axes.plot(gain, row.head, marker="o", markersize=3.2, color=color, mfc=face, zorder=3)


def _alt(pruned: pd.DataFrame, sweep: str) -> str:
    ordered = pruned.sort_values("gain", kind="stable")
    worst, best = ordered.iloc[0], ordered.iloc[-1]
    return (
        f"Forest plot of {len(pruned)} heads of {short(sweep)} around a zero line. After control "
        f"of false discoveries {len(helping(pruned))} heads help and {len(hurting(pruned))} hurt. "
        f"The best, {best['variant']}, has {points(best['gain'])} points "
        f"({points(best['low'])} to {points(best['high'])}); the worst, {worst['variant']}, "
        f"{points(worst['gain'])}; the median head {points(float(np.median(pruned['gain'])))}."
    )
