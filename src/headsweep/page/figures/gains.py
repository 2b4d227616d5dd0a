"""Gains from removing a head, by (subject, layer) pair (Figure 2 of SPRINT) and by MATH level."""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Image
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from headsweep.page.figures.draw import Figure, empty
from headsweep.page.figures.style import (
    BLUE,
    GREEN,
    GRID,
    INK,
    MUTED,
    ONE_COLUMN,
    PURPLE,
    SURFACE,
    TWO_COLUMNS,
    VERMILLION,
)
from headsweep.results.facts import rows_of
from headsweep.statistics import SIGNIFICANCE
from headsweep.text import points, short, wrapped

_SERIES = {
    "gain": (BLUE, "best head of a layer, a maximum; right: filled if q < 0.05"),
    "by_chance": (MUTED, "luck alone: best of as many heads, on average"),
    "placebo": (PURPLE, "noise placebos: best of as many, no head pruned"),
    "numeric": (GREEN, "base model decoded again: best of as many"),
}
"""Columns with colour and label; a column without numbers is not drawn."""

_FEWEST = 5  # with fewer pairs only dots are drawn, no violin
_ROOM = 110  # letters beside each other below violins across the page
_BESIDE = 3  # sweeps whose violins leave room for the largest gains beside them
_LARGEST = 12  # gains that are named


def violins(gains: pd.DataFrame) -> Figure:
    """Draw the gains of each sweep side by side, over all its (subject, layer) pairs, and beside
    them the largest gains with their heads.

    `gains` are `headsweep.results.gains.GAINS` of all sweeps, with the columns `sweep`, its name,
    and `title`, what it is called; `headsweep.page.printed.figures` has one violin a model.
    """
    by_subject = gains["sweep"].isin(gains.loc[gains["by"] == "subject", "sweep"])
    data = gains[gains["by"] == np.where(by_subject, "subject", "overall")]
    sweeps = _by_title(data)
    if len(sweeps) <= _BESIDE:
        image = Image(figsize=(TWO_COLUMNS, 4.2))
        axes, right = image.subplots(1, 2, width_ratios=(1.25, 1))
        room = _ROOM // 2
    else:
        image = Image(figsize=(TWO_COLUMNS, 7.6))
        halves: Any = image.subfigures(2, 1)
        axes, right = (half.subplots() for half in halves)
        room = _ROOM
    axes.axhline(0, color=INK, linewidth=0.8, zorder=1)
    described = []
    for position, (title, table) in enumerate(sweeps):
        columns = [column for column in _SERIES if table[column].notna().any()]
        step = 0.86 / len(columns)
        ranges = []
        for place, column in enumerate(columns):
            x = position + step * (place - (len(columns) - 1) / 2)
            color, _ = _SERIES[column]
            _violin(axes, 100 * table[column].to_numpy(float), x, 0.62 * step, color)
            lowest, middle, highest = table[column].quantile([0, 0.5, 1]).map(points)
            ranges.append(f"{column} from {lowest} to {highest}, median {middle}")
        described.append(f"{title}: {', '.join(ranges)}")
    for column, (color, label) in _SERIES.items():
        if data[column].notna().any():
            axes.scatter([], [], s=30, color=color, alpha=0.8, linewidths=0, label=label)
    held_out = Rectangle((0, 0), 1, 1, color=GRID, label="right: on other questions, 95%")
    handles, _ = axes.get_legend_handles_labels()
    image.legend(handles=[*handles, held_out], loc="outside upper left", ncols=2)
    axes.set_xlim(-0.5, len(sweeps) - 0.4)
    width = min(22, room // len(sweeps))
    ticks = []
    for title, table in sweeps:
        median = wrapped(f"median head {points(table['median'].median())}", width)
        ticks.append(f"{wrapped(title, width, 8)}\n{len(table)} pairs\n{median}")
    axes.set_xticks(range(len(sweeps)), ticks)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("accuracy − base (percentage points)")
    _largest(right, data, named=len(sweeps) > 1)
    alt = f"Violin plot of gains in percentage points around a zero line. {'. '.join(described)}."
    return Figure(image, alt, data, {"n": len(data)})


def _largest(axes: Axes, data: pd.DataFrame, *, named: bool) -> None:
    """Draw the largest gains, each with its head, and what luck, placebos and other questions give;
    the sweep is named where there are several.
    """
    rows = data.sort_values("gain", ascending=False, kind="stable").head(_LARGEST)
    labels = []
    for row in rows_of(rows):
        where = f"{row.best} {short(row.group, 24)}, n = {row.n}"
        labels.append(f"{short(row.title, 24)}\n{where}" if named else where)
    places = np.arange(len(rows))
    shares = ["low", "high", "held_out", "by_chance", "placebo", "gain"]
    low, high, held_out, by_chance, placebo, gain = 100 * rows[shares].to_numpy(float).T
    axes.hlines(places, low, high, color=GRID, linewidth=4)
    axes.plot(held_out, places, "|", color=INK, markersize=7)
    for column, values in (("by_chance", by_chance), ("placebo", placebo), ("gain", gain)):
        color, _ = _SERIES[column]
        axes.plot(values, places, "o", color=color, markerfacecolor=SURFACE)
    shown = (rows["q"] < SIGNIFICANCE).to_numpy()
    axes.plot(gain[shown], places[shown], "o", color=BLUE)
    axes.axvline(0, color=INK, linewidth=0.8, zorder=1)
    axes.set_yticks(range(len(labels)), labels, fontsize=6.5)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.set_title("The largest gains")
    axes.set_xlabel("accuracy − base (points)")


def levels(gains: pd.DataFrame) -> Figure:
    """Draw the best and the median head's gain at each MATH level, one panel per sweep.

    Sweeps whose questions have no levels are left out. `gains` are as for `violins`.
    """
    data = gains[gains["by"] == "level"]
    if data.empty:
        return empty("No question of this run has a level.")
    sweeps = _by_title(data)
    columns = min(2, len(sweeps))
    rows = math.ceil(len(sweeps) / columns)
    image = Image(figsize=(TWO_COLUMNS if columns > 1 else ONE_COLUMN, 2.3 * rows + 0.4))
    panels = image.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    labels: dict[str, Any] = {}
    described = []
    for axes, (title, table) in zip(panels, sweeps, strict=False):
        _panel(axes, table)
        axes.set_title(wrapped(title, 44))
        labels |= {str(line.get_label()): line for line in axes.get_legend_handles_labels()[0]}
        described.append(f"{title}{_told_of_levels(table)}")
    for axes in panels[::columns]:
        axes.set_ylabel("accuracy − base (points)")
    for axes in panels[len(sweeps) :]:
        axes.set_axis_off()
    image.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=columns)
    n = data.drop_duplicates(["sweep", "group"])["n"].sum()
    alt = "Line plot of gains by level. Best head held out, median of layers: "
    alt += f"{'; '.join(described)}."
    return Figure(image, alt, data, {"n": n})


def _told_of_levels(table: pd.DataFrame) -> str:
    """Return the held-out gain at the first and at the last level, to stand behind a title."""
    medians = table.groupby("group", sort=False)["held_out"].median().dropna()
    gains = [f"{points(gain)} at {level}" for level, gain in medians.items()]
    if not gains:
        return ": none"
    return f": {gains[0]}" if len(gains) == 1 else f" from {gains[0]} to {gains[-1]}"


def _by_title(gains: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the rows of each sweep, with its title."""
    sweeps = (table for _, table in gains.groupby("sweep", sort=False))
    return [(table["title"].iloc[0], table) for table in sweeps]


def _panel(axes: Axes, table: pd.DataFrame) -> None:
    first = table.drop_duplicates("group")
    at = {group: place for place, group in enumerate(first["group"])}
    axes.axhline(0, color=INK, linewidth=0.8, zorder=1)
    layers = table["layer"].rank(method="dense")
    x = table["group"].map(at) + 0.6 * (layers / (layers.max() + 1) - 0.5)
    gain, low, high = (100 * table[name].to_numpy(float) for name in ("held_out", "low", "high"))
    axes.vlines(x, low, high, color=BLUE, linewidth=0.8, alpha=0.45)
    axes.scatter(x, gain, s=7, color=BLUE, alpha=0.7, linewidths=0)
    for column, marker, color, label in (
        ("held_out", "o", BLUE, "best head of a layer, held out"),
        ("median", "s", MUTED, "median head of a layer"),
    ):
        middle = 100 * table.groupby("group", sort=False)[column].median()
        axes.plot(range(len(at)), middle, marker, ls="-", color=color, label=label)
    top = axes.get_ylim()[1]
    ceiling = 100 * (1 - first["base"].to_numpy())
    for place in np.flatnonzero(ceiling <= top):
        ends = [place - 0.4, place + 0.4]
        label = "ceiling: 100% − base"
        axes.plot(ends, [ceiling[place]] * 2, ":", color=VERMILLION, label=label)
    ticks = [f"{row.group}\nn = {row.n}\nbase {row.base:.0%}" for row in rows_of(first)]
    axes.set_xticks(range(len(at)), ticks)
    axes.set_xlim(-0.45, len(at) - 0.55)
    axes.tick_params(axis="x", length=0)


def _violin(axes: Axes, values: np.ndarray, x: float, width: float, color: str) -> None:
    """Draw values as dots, moved apart where they are near-equal, a violin and their median.

    Missing ones are left out.
    """
    values = values[~np.isnan(values)]
    span = np.ptp(values)
    if not span:
        values = values[:1]  # all lie on one place
    if len(values) >= _FEWEST and span > 0:
        bodies: Any = axes.violinplot(values, [x], widths=width, showextrema=False)["bodies"]
        bodies[0].set(facecolor=color, edgecolor=color, alpha=0.22, linewidth=0.6)
    level = pd.Series(np.floor((values - values.min()) / (span or 1) * 24))
    alike = level.groupby(level)
    shift = alike.cumcount() - (alike.transform("size") - 1) / 2
    shift *= min(0.035, 0.28 * width / max(shift.abs().max(), 1))
    axes.scatter(x + shift, values, s=6, color=color, alpha=0.8, linewidths=0)
    middle = float(np.median(values))
    right = x + 0.5 * width
    axes.hlines(middle, x - 0.5 * width, right, color=INK, linewidth=1.6, zorder=4)
    axes.annotate(
        points(middle / 100),
        (right, middle),
        xytext=(1.5, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
        fontweight="bold",
        zorder=5,
        path_effects=[withStroke(linewidth=2.5, foreground=SURFACE)],
    )
