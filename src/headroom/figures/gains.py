"""Gains from removing a head: Figure 2 of the SPRINT paper, gains by MATH level, and the published
gains beside those expected by chance.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Image
from matplotlib.patheffects import withStroke

from headroom.analysis.audit import Audit
from headroom.analysis.gains import pairs
from headroom.analysis.sheet import rows_of
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

_SERIES = (
    ("best_gain", BLUE, "best head", "best head of a layer: a maximum, raised by selection"),
    (
        "noise_gain",
        PURPLE,
        "best placebo",
        "best of as many noise placebos: no head pruned",
    ),
    (
        "numeric_gain",
        GREEN,
        "best repetition",
        "best of as many base models decoded again in other batches",
    ),
    ("median_gain", MUTED, "median head", "median head of a layer: free of selection"),
)
"""Columns with colour, name and label; a column without numbers is not drawn."""

_FEWEST = 5  # with fewer pairs only dots are drawn, no violin


def violins(gained: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the gains of each sweep side by side, over all its (subject, layer) pairs.

    Args:
        gained: gains of each sweep, as `headroom.analysis.gains.read_gained` returns them.
    """
    chosen = {sweep: pairs(table) for sweep, table in gained.items()}
    image = Image(figsize=(TWO_COLUMNS if len(chosen) > 2 else 1.4 * ONE_COLUMN, 3.3))
    axes = image.add_subplot()
    axes.axhline(0, color=INK, linewidth=0.8, zorder=1)
    described: list[str] = []
    shown: dict[str, str] = {}
    for position, (sweep, table) in enumerate(chosen.items()):
        here = [one for one in _SERIES if table[one[0]].notna().any()]
        shown |= {label: color for _, color, _, label in here}
        step = 0.8 / len(here)
        for place, (column, color, _, _) in enumerate(here):
            values = 100 * table[column].to_numpy(dtype=float)
            x = position + step * (place - (len(here) - 1) / 2)
            _violin(axes, values, x, 0.62 * step, color)
        ranges = [f"{name} {_range(table[column])}" for column, _, name, _ in here]
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
    drawn = 100 * data[["best_gain", "median_gain"]].to_numpy(float)
    margin = 0.08 * np.ptp(drawn) + 0.5
    panels[0].set_ylim(drawn.min() - margin, drawn.max() + margin)
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
        for middle in [table.groupby("group")["best_gain"].median()]
    )
    n = data.drop_duplicates(["sweep", "group"])["n"].sum()
    alt = f"Line plot of gains by level. Best head, median over layers: {described}."
    return Figure(image, alt, data, {"n": n})


def _panel(axes: Axes, table: pd.DataFrame) -> None:
    groups = list(dict.fromkeys(table["group"]))
    axes.axhline(0, color=INK, linewidth=0.8, zorder=1)
    for (column, color, name, _), marker, shift in zip(
        (_SERIES[0], _SERIES[-1]), "os", (-0.12, 0.12), strict=True
    ):
        values = [100 * table.loc[table["group"] == g, column].to_numpy(float) for g in groups]
        for x, dots in enumerate(values):
            jitter = x + shift + spread_out(dots, 0.08)
            axes.scatter(jitter, dots, s=7, color=color, alpha=0.55, linewidths=0)
        at, middle = np.arange(len(groups)) + shift, list(map(np.median, values))
        axes.plot(at, middle, marker=marker, color=color, label=f"{name} of a layer", zorder=3)
    first = table.drop_duplicates("group")
    top = axes.get_ylim()[1]
    for x, row in enumerate(rows_of(first)):
        if (ceiling := 100 * (1 - row.base)) <= top:
            label = "ceiling: 100% − base"
            axes.plot([x - 0.4, x + 0.4], [ceiling] * 2, ":", color=VERMILLION, label=label)
    ticks = [f"{row.group}\nn = {row.n}\nbase {100 * row.base:.0f}%" for row in rows_of(first)]
    axes.set_xticks(range(len(groups)), ticks)
    axes.set_xlim(-0.45, len(groups) - 0.55)
    axes.tick_params(axis="x", length=0)


def audit_figure(found: Audit) -> Figure:
    """Draw the published gains beside the median expected by chance alone, with its interval.

    Args:
        found: as `headroom.analysis.audit.audit` returns it.
    """
    image = Image(figsize=(TWO_COLUMNS, 3.2))
    axes = image.add_subplot()
    axes.axhline(0, color=INK, linewidth=0.8, zorder=1)
    summary = list(rows_of(found.summary))
    for position, row in enumerate(summary):
        read = found.pairs[found.pairs["exhibit"] == row.exhibit]
        values, beyond = 100 * read["gain"].to_numpy(float), read["beyond"].to_numpy(bool)
        x = position - 0.15 + spread_out(values, 0.15)
        faces = [BLUE if clear else "none" for clear in beyond]
        axes.scatter(x, values, s=11, facecolors=faces, edgecolors=BLUE, linewidths=0.7, zorder=3)
        mark_median(axes, position - 0.15, 100 * row.gain)
        low, middle, high = (100 * end for end in (row.chance_low, row.by_chance, row.chance_high))
        axes.plot([position + 0.25] * 2, [low, high], color=MUTED, linewidth=1.6)
        axes.plot(position + 0.25, middle, "D", color=MUTED, markersize=5)
    for face, edge, marker, label in (
        ("none", BLUE, "o", "published gain of a (subject, layer) pair"),
        (BLUE, BLUE, "o", "beyond the 95% quantile of chance"),
        (MUTED, MUTED, "D", "median by chance alone, 95%"),
    ):
        look: dict[str, Any] = {
            "facecolors": face,
            "edgecolors": edge,
            "marker": marker,
            "label": label,
        }
        axes.scatter([], [], s=24, linewidths=0.8, **look)
    image.legend(loc="outside upper left", ncols=3, columnspacing=1.2)
    ticks = [
        f"{row.exhibit}\n{wrapped(row.model, 16)}\n{row.beyond} of {row.pairs} pairs\nbeyond"
        for row in summary
    ]
    axes.set_xticks(range(len(summary)), ticks)
    axes.set_xlim(-0.55, len(summary) - 0.3)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("best head − No Prune (percentage points)")
    described = "; ".join(
        f"{row.exhibit} {points(row.gain)}, by chance {points(row.by_chance)}" for row in summary
    )
    alt = f"Dots of gains in points beside what chance alone gives. Medians: {described}."
    return Figure(image, alt, found.pairs.drop(columns="accuracy"), {"n": len(found.pairs)})


def spread_out(values: np.ndarray, width: float) -> np.ndarray:
    """Return horizontal shifts, at most ±width, that separate dots of near-equal height."""
    shifts = np.zeros(len(values))
    if len(values) < 2 or np.ptp(values) == 0:
        return np.linspace(-width, width, len(values)) if len(values) > 1 else shifts
    bins = np.floor((values - values.min()) / np.ptp(values) * 24)
    for members in (np.flatnonzero(bins == level) for level in np.unique(bins)):
        order = members[np.argsort(values[members], kind="stable")]
        step = min(0.035, 2 * width / max(len(order) - 1, 1))
        shifts[order] = (np.arange(len(order)) - (len(order) - 1) / 2) * step
    return shifts


def mark_median(axes: Axes, x: float, value: float, half: float = 0.15) -> None:
    """Draw a median as a bar from ``x - half`` to ``x + half`` with its value, in points."""
    axes.hlines(value, x - half, x + half, color=INK, linewidth=1.6, zorder=4)
    axes.annotate(
        signed(value),
        (x + half, value),
        xytext=(1.5, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
        fontweight="bold",
        path_effects=[withStroke(linewidth=2.5, foreground=SURFACE)],
        zorder=5,
    )


def _violin(axes: Axes, values: np.ndarray, x: float, width: float, color: str) -> None:
    if len(values) >= _FEWEST and np.ptp(values) > 0:
        bodies: Any = axes.violinplot(values, [x], widths=width, showextrema=False)["bodies"]
        bodies[0].set(facecolor=color, edgecolor=color, alpha=0.22, linewidth=0.6)
    shifts = spread_out(values, 0.28 * width)
    axes.scatter(x + shifts, values, s=6, color=color, alpha=0.8, linewidths=0)
    mark_median(axes, x, float(np.median(values)), 0.5 * width)


def _range(gain: pd.Series) -> str:
    low, middle, high = (points(float(gain.quantile(q))) for q in (0, 0.5, 1))
    return f"from {low} to {high}, median {middle}"
