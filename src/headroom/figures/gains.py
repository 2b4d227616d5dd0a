"""Gains from removing a head, by (subject, layer) pair (Figure 2 of SPRINT) and by MATH level."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Image
from matplotlib.patheffects import withStroke

from headroom.analysis.text import points, short, signed, wrapped
from headroom.figures.drawing import Figure, empty
from headroom.figures.style import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ONE_COLUMN,
    PURPLE,
    SURFACE,
    TWO_COLUMNS,
    VERMILLION,
)

_SERIES = {
    "gain": (BLUE, "best head of a layer: a maximum, raised by selection"),
    "placebo": (PURPLE, "best of as many noise placebos: no head pruned"),
    "numeric": (GREEN, "best of as many base models decoded again in other batches"),
    "median": (MUTED, "median head of a layer: free of selection"),
}
"""Columns with colour and label; a column without numbers is not drawn."""

_FEWEST = 5  # with fewer pairs only dots are drawn, no violin


def violins(gained: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the gains of each sweep side by side, over all its (subject, layer) pairs.

    Args:
        gained: gains of each sweep, columns `headroom.analysis.controls.GAINS`.
    """
    chosen = {
        sweep: table[table["by"] == ("subject" if "subject" in set(table["by"]) else "overall")]
        for sweep, table in gained.items()
    }
    image = Image(figsize=(TWO_COLUMNS if len(chosen) > 2 else 1.4 * ONE_COLUMN, 3.3))
    axes = image.add_subplot()
    axes.axhline(0, color=INK, linewidth=0.8, zorder=1)
    described: list[str] = []
    shown: dict[str, str] = {}
    for position, (sweep, table) in enumerate(chosen.items()):
        here = [column for column in _SERIES if table[column].notna().any()]
        step = 0.8 / len(here)
        for place, column in enumerate(here):
            color, label = _SERIES[column]
            shown[label] = color
            x = position + step * (place - (len(here) - 1) / 2)
            _violin(axes, 100 * table[column].to_numpy(float), x, 0.62 * step, color)
        ranges = [f"{column} {_range(table[column])}" for column in here]
        described.append(f"{short(sweep)}: {', '.join(ranges)}")
    for label, color in shown.items():
        axes.scatter([], [], s=30, color=color, alpha=0.8, linewidths=0, label=label)
    image.legend(loc="outside upper left", ncols=1)
    margin = 0.5 if len(chosen) > 1 else 0.9  # a single group of violins stays slim
    axes.set_xlim(-margin, len(chosen) - 1 + margin + 0.1)
    names = [f"{wrapped(sweep, 22)}\n{len(table)} pairs" for sweep, table in chosen.items()]
    axes.set_xticks(range(len(chosen)), names)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("accuracy − base (percentage points)")
    data = pd.concat([t.assign(sweep=name) for name, t in chosen.items()], ignore_index=True)
    alt = f"Violin plot of gains in percentage points around a zero line. {'. '.join(described)}."
    return Figure(image, alt, data, {"n": len(data)})


def levels(gained: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the best and the median head's gain at each MATH level, one panel per sweep.

    Sweeps whose questions have no levels are left out.

    Args:
        gained: as for `violins`.
    """
    every = {sweep: table[table["by"] == "level"] for sweep, table in gained.items()}
    chosen = {sweep: table for sweep, table in every.items() if len(table)}
    if not chosen:
        return empty("No question of this run has a level.")
    columns = min(2, len(chosen))
    rows = -(-len(chosen) // columns)
    image = Image(figsize=(TWO_COLUMNS if columns > 1 else ONE_COLUMN, 2.3 * rows + 0.4))
    panels = image.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    data = pd.concat([t.assign(sweep=name) for name, t in chosen.items()], ignore_index=True)
    labels: dict[str, Any] = {}
    for axes, (sweep, table) in zip(panels, chosen.items(), strict=False):
        _panel(axes, table)
        axes.set_title(short(sweep, 40))
        labels |= {str(line.get_label()): line for line in axes.get_legend_handles_labels()[0]}
    for axes in panels[::columns]:
        axes.set_ylabel("accuracy − base (points)")
    for axes in panels[len(chosen) :]:
        axes.set_axis_off()
    image.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=columns)
    described = "; ".join(
        f"{short(sweep)} from {points(middle.iloc[0])} at {middle.index[0]} to "
        f"{points(middle.iloc[-1])} at {middle.index[-1]}"
        for sweep, table in chosen.items()
        for middle in [table.groupby("group")["held_out"].median()]
    )
    n = data.drop_duplicates(["sweep", "group"])["n"].sum()
    alt = f"Line plot of gains by level. Best head held out, median of layers: {described}."
    return Figure(image, alt, data, {"n": n})


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
    for place, ceiling in enumerate(100 * (1 - first["base"])):
        if ceiling <= top:
            label = "ceiling: 100% − base"
            axes.plot([place - 0.4, place + 0.4], [ceiling] * 2, ":", color=VERMILLION, label=label)
    sizes = zip(first["group"], first["n"], first["base"], strict=True)
    ticks = [f"{group}\nn = {n}\nbase {100 * base:.0f}%" for group, n, base in sizes]
    axes.set_xticks(range(len(at)), ticks)
    axes.set_xlim(-0.45, len(at) - 0.55)
    axes.tick_params(axis="x", length=0)


def _violin(axes: Axes, values: np.ndarray, x: float, width: float, color: str) -> None:
    """Draw values as dots, moved apart where they are near-equal, a violin and their median."""
    span = np.ptp(values)
    if len(values) >= _FEWEST and span > 0:
        bodies: Any = axes.violinplot(values, [x], widths=width, showextrema=False)["bodies"]
        bodies[0].set(facecolor=color, edgecolor=color, alpha=0.22, linewidth=0.6)
    level = pd.Series(np.floor((values - values.min()) / (span or 1) * 24))
    shift = level.groupby(level).cumcount() - (level.map(level.value_counts()) - 1) / 2
    most = max(float(shift.abs().max()), 1)
    shift *= min(0.035, 0.28 * width / most)
    axes.scatter(x + shift, values, s=6, color=color, alpha=0.8, linewidths=0)
    middle, half = float(np.median(values)), 0.5 * width
    axes.hlines(middle, x - half, x + half, color=INK, linewidth=1.6, zorder=4)
    axes.annotate(
        signed(middle),
        (x + half, middle),
        xytext=(1.5, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
        fontweight="bold",
        path_effects=[withStroke(linewidth=2.5, foreground=SURFACE)],
        zorder=5,
    )


def _range(gain: pd.Series) -> str:
    low, middle, high = (points(float(gain.quantile(q))) for q in (0, 0.5, 1))
    return f"from {low} to {high}, median {middle}"
