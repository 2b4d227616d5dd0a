"""Figure 2 of the SPRINT paper: what the best head's removal gains, beside the best placebo's and
the median head's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Image
from matplotlib.patheffects import withStroke

from headroom.analysis.gains import pairs
from headroom.analysis.text import short, signed, wrapped
from headroom.figures.drawing import Figure
from headroom.figures.style import ONE_COLUMN, TWO_COLUMNS, Theme
from headroom.planning.exhibits import words

_SERIES = (
    ("best_gain", "blue", "best head of a layer: a maximum, raised by selection"),
    ("noise_gain", "purple", "best noise placebo: as many, as strong, no head pruned"),
    ("numeric_gain", "green", "best of as many base models decoded again in other batches"),
    ("median_gain", "muted", "median head of a layer: free of selection"),
)
"""Columns shown, with colour and label; those without numbers are left out."""

_FEWEST = 5  # fewer pairs make no distribution: they are shown as dots only


def violins(gained: Mapping[str, pd.DataFrame], colors: Theme) -> Figure:
    """Draw the violins of each sweep side by side, over all its (subject, layer) pairs.

    Args:
        gained: gains of each sweep, as `headroom.analysis.gains.read_gained` returns them.
        colors: the theme to draw in.
    """
    chosen = {sweep: pairs(table) for sweep, table in gained.items()}
    image = Image(figsize=(TWO_COLUMNS if len(chosen) > 2 else 1.4 * ONE_COLUMN, 3.3))
    axes = image.add_subplot()
    axes.axhline(0, color=colors.ink, linewidth=0.8, zorder=1)
    series = [one for one in _SERIES if any(_has(table, one[0]) for table in chosen.values())]
    for position, table in enumerate(chosen.values()):
        here = [one for one in series if _has(table, one[0])]
        step = 0.8 / len(here)
        for place, (column, color, _) in enumerate(here):
            values = 100 * table[column].to_numpy(dtype=float)
            x = position + step * (place - (len(here) - 1) / 2)
            _violin(axes, values, x, 0.62 * step, getattr(colors, color), colors)
    _label_series(image, axes, [(label, getattr(colors, color)) for _, color, label in series])
    margin = 0.5 if len(chosen) > 1 else 0.9  # a single pair of violins stays slim
    axes.set_xlim(-margin, len(chosen) - 1 + margin + 0.1)
    axes.set_xticks(
        range(len(chosen)),
        [f"{wrapped(sweep, 22)}\n{len(table)} pairs" for sweep, table in chosen.items()],
    )
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("accuracy − base (percentage points)")
    data = pd.concat(
        [table.assign(sweep=sweep) for sweep, table in chosen.items()], ignore_index=True
    )
    return Figure(image, *_words(chosen), _alt(chosen), data)


def spread_out(values: np.ndarray, width: float) -> np.ndarray:
    """Return sideways shifts that keep dots of near-equal height apart, at most ±width."""
    shifts = np.zeros(len(values))
    if len(values) < 2 or np.ptp(values) == 0:
        return np.linspace(-width, width, len(values)) if len(values) > 1 else shifts
    bins = np.floor((values - values.min()) / np.ptp(values) * 24)
    for members in (np.flatnonzero(bins == level) for level in np.unique(bins)):
        order = members[np.argsort(values[members], kind="stable")]
        step = min(0.035, 2 * width / max(len(order) - 1, 1))
        shifts[order] = (np.arange(len(order)) - (len(order) - 1) / 2) * step
    return shifts


def _has(table: pd.DataFrame, column: str) -> bool:
    return column in table and bool(table[column].notna().any())


def _violin(
    axes: Axes, values: np.ndarray, x: float, width: float, color: str, colors: Theme
) -> None:
    if len(values) >= _FEWEST and np.ptp(values) > 0:
        bodies: Any = axes.violinplot(values, [x], widths=width, showextrema=False)["bodies"]
        bodies[0].set(facecolor=color, edgecolor=color, alpha=0.22, linewidth=0.6)
    shifts = spread_out(values, 0.28 * width)
    axes.scatter(x + shifts, values, s=6, color=color, alpha=0.8, linewidths=0)
    mark_median(axes, x, float(np.median(values)), colors, 0.5 * width)


def mark_median(axes: Axes, x: float, value: float, colors: Theme, half: float = 0.15) -> None:
    """Draw a violin's median as a bar with its value, in percentage points.

    Args:
        axes: where the violin is.
        x: its place.
        value: the median.
        colors: the theme to draw in.
        half: half of the bar's length.
    """
    axes.hlines(value, x - half, x + half, color=colors.ink, linewidth=1.6, zorder=4)
    axes.annotate(
        signed(value),
        (x + half, value),
        xytext=(1.5, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
        fontweight="bold",
        path_effects=[withStroke(linewidth=2.5, foreground=colors.surface)],
        zorder=5,
    )


def _label_series(image: Image, axes: Axes, labels: Sequence[tuple[str, str]]) -> None:
    handles = [
        axes.scatter([], [], s=30, color=color, alpha=0.8, linewidths=0, label=label)
        for label, color in labels
    ]
    image.legend(handles=handles, loc="outside upper left", ncols=1)


def _words(chosen: Mapping[str, pd.DataFrame]) -> tuple[str, str]:
    parts = []
    for sweep, table in chosen.items():
        medians = [
            f"{signed(100 * table[column].median())} ({name})" for column, name in _shown(table)
        ]
        part = f"{short(sweep)}: {len(table)} pairs, {_heads(table)} heads a layer, median gain "
        parts.append(f"{part}{', '.join(medians)} points")
    explained = "".join(
        text
        for column, text in _EXPLAINED.items()
        if any(_has(table, column) for table in chosen.values())
    )
    return words("violins", placebo=explained, numbers="; ".join(parts))


_EXPLAINED = {
    "noise_gain": "the best placebo is the maximum over as many variants in which no head is "
    "pruned, but noise of a head's norm is added at the same place; ",
    "numeric_gain": "the best repetition is the maximum over as many base models decoded again in "
    "other batches, the same for every layer; ",
}


def _alt(chosen: Mapping[str, pd.DataFrame]) -> str:
    parts = [
        f"{short(sweep)}: "
        + ", ".join(f"{name} {_range(table[column])}" for column, name in _shown(table))
        for sweep, table in chosen.items()
    ]
    return f"Violin plot of gains in percentage points around a zero line. {'. '.join(parts)}."


def _shown(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Return the columns that have numbers, and what they are called."""
    names = {
        "best_gain": "best head",
        "noise_gain": "best placebo",
        "numeric_gain": "best repetition",
        "median_gain": "median head",
    }
    return [(column, name) for column, name in names.items() if _has(table, column)]


def _heads(table: pd.DataFrame) -> str:
    counts = sorted(set(table["heads"]))
    return " or ".join(str(count) for count in counts)


def _range(gain: pd.Series) -> str:
    low, middle, high = (signed(100 * float(gain.quantile(q))) for q in (0, 0.5, 1))
    return f"from {low} to {high}, median {middle}"
