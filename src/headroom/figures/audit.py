"""The published gains of the best head, drawn beside those that chance alone gives."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Image

from headroom.analysis.audit import METHOD, Audit
from headroom.analysis.sheet import rows_of
from headroom.analysis.text import points, wrapped
from headroom.figures.drawing import Figure
from headroom.figures.style import TWO_COLUMNS, Theme
from headroom.figures.violins import mark_median, spread_out
from headroom.planning.exhibits import words

_APART = 0.24  # of a violin from its tick


def audit_figure(found: Audit, colors: Theme) -> Figure:
    """Draw the published gains of each model beside those that chance alone gives.

    Args:
        found: as `audit` returns it.
        colors: the theme to draw in.
    """
    image = Image(figsize=(TWO_COLUMNS, 3.6))
    axes = image.add_subplot()
    axes.axhline(0, color=colors.ink, linewidth=0.8, zorder=1)
    for position, row in enumerate(rows_of(found.summary)):
        read = found.pairs[found.pairs["exhibit"] == row.exhibit]
        values = 100 * read["gain"].to_numpy(float)
        _violin(axes, values, position - _APART, colors.blue)
        chance = 100 * found.chance[row.exhibit].ravel()
        inner = chance[
            (chance >= np.quantile(chance, 0.01)) & (chance <= np.quantile(chance, 0.99))
        ]
        _violin(axes, inner, position + _APART, colors.muted)
        shifts = spread_out(values, 0.12)
        for beyond, look in ((False, "none"), (True, colors.blue)):
            chosen = read["beyond"].to_numpy() == beyond
            axes.scatter(
                position - _APART + shifts[chosen],
                values[chosen],
                s=11,
                facecolors=look,
                edgecolors=colors.blue,
                linewidths=0.7,
                zorder=3,
            )
        low, high = 100 * row.chance_low, 100 * row.chance_high
        axes.vlines(position + _APART, low, high, color=colors.ink, linewidth=1, zorder=3)
        for x, value in ((position - _APART, row.gain), (position + _APART, row.by_chance)):
            mark_median(axes, x, 100 * value, colors)
    axes.set_xticks(
        range(len(found.summary)),
        [
            f"{row.exhibit}\n{wrapped(row.model, 16)}\n{row.beyond} of {row.pairs} pairs\nbeyond"
            for row in rows_of(found.summary)
        ],
    )
    axes.set_xlim(-0.55, len(found.summary) - 0.3)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("best head − No Prune (percentage points)")
    _legend(image, axes, colors)
    read = "; ".join(
        f"{row.exhibit} {row.pairs} pairs ({row.complete} complete)"
        for row in rows_of(found.summary)
    )
    told = words("audit", method=METHOD, pairs=read)
    return Figure(image, *told, _alt(found), found.pairs.drop(columns="accuracy"))


def _violin(axes: Axes, values: np.ndarray, x: float, color: str) -> None:
    bodies: Any = axes.violinplot(values, [x], widths=0.3, showextrema=False, bw_method=0.35)[
        "bodies"
    ]
    bodies[0].set(facecolor=color, edgecolor=color, alpha=0.25, linewidth=0.6)


def _legend(image: Image, axes: Axes, colors: Theme) -> None:
    looks = (
        ("none", colors.blue, "published gain of a (subject, layer) pair"),
        (colors.blue, colors.blue, "beyond the 95% quantile of chance"),
        (colors.muted, colors.muted, "chance alone"),
    )
    handles = [
        axes.scatter([], [], s=24, facecolors=face, edgecolors=edge, linewidths=0.8, label=label)
        for face, edge, label in looks
    ]
    image.legend(handles=handles, loc="outside upper left", ncols=3, columnspacing=1.2)


def _alt(found: Audit) -> str:
    parts = ". ".join(
        f"{row.exhibit}, {row.model}: published median {points(row.gain)}, by chance "
        f"{points(row.by_chance)}, {row.beyond} of {row.pairs} pairs beyond the 95% quantile"
        for row in rows_of(found.summary)
    )
    return f"Violin plots of gains in percentage points, published beside chance alone. {parts}."
