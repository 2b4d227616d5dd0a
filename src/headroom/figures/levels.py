"""Gains by MATH level: do hard questions gain more, once the ceiling of easy ones is seen?"""

import math
from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Image

from headroom.analysis.text import short, signed
from headroom.figures.drawing import Figure
from headroom.figures.style import ONE_COLUMN, TWO_COLUMNS, Theme
from headroom.figures.violins import spread_out
from headroom.planning.exhibits import words

_SERIES = (
    ("best_gain", "best head of a layer", "blue", "o", -0.12),
    ("median_gain", "median head of a layer", "muted", "s", 0.12),
)


def levels(gained: Mapping[str, pd.DataFrame], colors: Theme) -> Figure:
    """Draw the best and the median head's gain at each MATH level, a panel a sweep.

    Sweeps whose questions have no levels are left out.

    Args:
        gained: gains of each sweep, as `headroom.analysis.gains.gains` returns them.
        colors: the theme to draw in.
    """
    chosen = {sweep: table[table["by"] == "level"] for sweep, table in gained.items()}
    chosen = {sweep: table for sweep, table in chosen.items() if len(table)}
    columns = min(2, max(1, len(chosen)))
    rows = max(1, math.ceil(len(chosen) / columns))
    width = TWO_COLUMNS if columns > 1 else ONE_COLUMN
    image = Image(figsize=(width, 2.3 * rows + 0.4))
    limits = _limits(chosen.values())
    panels = image.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for number, (axes, (sweep, table)) in enumerate(zip(panels, chosen.items(), strict=False)):
        _panel(axes, table, limits, colors)
        axes.set_title(short(sweep, 40))
        if number % columns == 0:
            axes.set_ylabel("accuracy − base (points)")
    for axes in panels[len(chosen) :]:
        axes.set_axis_off()
    if chosen:
        entries = [axes.get_legend_handles_labels() for axes in panels[: len(chosen)]]
        named = {
            label: handle
            for handles, labels in entries
            for handle, label in zip(handles, labels, strict=True)
        }
        image.legend(named.values(), named.keys(), loc="outside lower center", ncols=columns)
    else:
        image.text(0.5, 0.5, "No question of this run has a level.", ha="center")
    tables = [table.assign(sweep=sweep) for sweep, table in chosen.items()]
    data = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
    return Figure(image, *_words(chosen), _alt(chosen), data)


def _limits(tables: Iterable[pd.DataFrame]) -> tuple[float, float]:
    """Return the range of all panels, in percentage points."""
    values = [table[["best_gain", "median_gain"]] for table in tables]
    low = min((100 * value.min().min() for value in values), default=0)
    high = max((100 * value.max().max() for value in values), default=0)
    margin = 0.08 * (high - low) + 0.5
    return low - margin, high + margin


def _panel(axes: Axes, table: pd.DataFrame, limits: tuple[float, float], colors: Theme) -> None:
    groups = list(dict.fromkeys(table["group"]))
    axes.axhline(0, color=colors.ink, linewidth=0.8, zorder=1)
    for column, label, color, marker, shift in _SERIES:
        hue = getattr(colors, color)
        values = [100 * table.loc[table["group"] == g, column].to_numpy(float) for g in groups]
        for x, points in enumerate(values):
            jitter = spread_out(points, 0.08)
            axes.scatter(x + shift + jitter, points, s=7, color=hue, alpha=0.55, linewidths=0)
        middle = [np.median(points) for points in values]
        at = [x + shift for x in range(len(groups))]
        axes.plot(at, middle, marker=marker, color=hue, label=label, zorder=3)
    first = table.drop_duplicates("group").set_index("group")
    for x, group in enumerate(groups):
        ceiling = 100 * (1 - first.loc[group, "base"])
        if ceiling <= limits[1]:
            (line,) = axes.plot([x - 0.4, x + 0.4], [ceiling] * 2, ":", color=colors.vermillion)
            line.set_label("ceiling: 100% − base")
    axes.set_ylim(limits)
    ticks = [
        f"{group}\nn = {first.loc[group, 'n']}\nbase {100 * first.loc[group, 'base']:.0f}%"
        for group in groups
    ]
    axes.set_xticks(range(len(groups)), ticks)
    axes.set_xlim(-0.45, len(groups) - 0.55)
    axes.tick_params(axis="x", length=0)


def _words(chosen: Mapping[str, pd.DataFrame]) -> tuple[str, str]:
    parts = []
    for sweep, table in chosen.items():
        sizes = table.drop_duplicates("group")["n"]
        parts.append(f"{short(sweep)}: {sizes.sum()} questions, {table['layer'].nunique()} layers")
    return words("levels", numbers="; ".join(parts))


def _alt(chosen: Mapping[str, pd.DataFrame]) -> str:
    parts = []
    for sweep, table in chosen.items():
        medians = table.groupby("group", sort=False)[["best_gain", "median_gain"]].median() * 100
        parts += [
            f"{short(sweep)}, {group}: best head {signed(row.best_gain)}, "
            f"median head {signed(row.median_gain)} points"
            for group, row in medians.iterrows()
        ]
    return f"Line plot of gains by level, medians over layers. {'. '.join(parts)}."
