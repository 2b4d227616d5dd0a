"""The agreement map: on how many questions two pruned models have the same outcome (s_jk)."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Image

from headroom.analysis.text import percent, short
from headroom.figures.drawing import Figure
from headroom.figures.style import ONE_COLUMN, TWO_COLUMNS, Theme, sequential
from headroom.planning.exhibits import words
from headroom.variants import Variant

_NARROW = 64  # variants that one column has room for
_REACH = 4  # the colour bar ends at so many times the median pair's disagreement


def agreement(z: pd.DataFrame, variants: Sequence[Variant]) -> pd.DataFrame:
    """Return s_jk = mean_i 1[z_ij = z_ik], the SPRINT paper's section 4, for all pairs j < k.

    Args:
        z: accuracy matrix, one row a question (see `headroom.tables.ACCURACY`).
        variants: base first, then the pruned variants.

    Returns:
        Columns ``first``, ``second`` (names), ``agreement`` and ``by_chance``: what models of the
        same two accuracies, independent of each other, would agree on.
    """
    names = np.array([str(variant) for variant in variants])
    right = z[names].to_numpy(float)
    both = right.T @ right + (1 - right).T @ (1 - right)
    accuracy = right.mean(axis=0)
    chance = np.outer(accuracy, accuracy) + np.outer(1 - accuracy, 1 - accuracy)
    first, second = np.triu_indices(len(names), k=1)
    columns = {"first": names[first], "second": names[second]}
    columns |= {"agreement": both[first, second] / len(z), "by_chance": chance[first, second]}
    return pd.DataFrame(columns)


def agreement_map(
    pairs: pd.DataFrame, variants: Sequence[Variant], sweep: str, questions: int, colors: Theme
) -> Figure:
    """Draw s_jk of all pairs, ordered by layer and head, base first.

    Args:
        pairs: as `agreement` returns them.
        variants: the same, in the same order.
        sweep: its name.
        questions: how many questions each pair is compared on.
        colors: the theme to draw in.
    """
    grid = np.eye(len(variants))
    first, second = np.triu_indices(len(variants), k=1)
    grid[first, second] = grid[second, first] = pairs["agreement"]
    lowest = 1 - _REACH * (1 - float(pairs["agreement"].median()))
    lowest = max(0.0, min(0.95, math.floor(20 * lowest) / 20))
    scale = Normalize(lowest, 1)

    width = ONE_COLUMN if len(variants) <= _NARROW else TWO_COLUMNS
    image = Image(figsize=(width, 0.88 * width))
    axes = image.add_subplot()
    mesh = axes.imshow(grid, cmap=sequential(colors), norm=scale, interpolation="nearest")
    _label_layers(axes, variants, colors)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("layer of the head pruned")
    axes.set_ylabel("layer of the head pruned")
    bar = image.colorbar(
        mesh, ax=axes, extend="min" if grid.min() < lowest else "neither", pad=0.02, aspect=30
    )
    bar.outline.set_visible(False)
    bar.set_label("share of questions with the same outcome")
    bar.ax.tick_params(labelsize=7)
    told = words(
        "agreement",
        of=short(sweep),
        n=questions,
        heads=len(variants) - 1,
        median=percent(float(pairs["agreement"].median())),
        chance=percent(float(pairs["by_chance"].median())),
        lowest=percent(lowest),
        error=percent(math.sqrt(0.25 / questions)),
    )
    return Figure(image, *told, _alt(pairs, sweep), pairs)


def _label_layers(axes: Axes, variants: Sequence[Variant], colors: Theme) -> None:
    """Put each layer's number at the middle of its heads, and lines between layers."""
    layers = [-1 if variant.layer is None else variant.layer for variant in variants]
    edges = np.flatnonzero(np.diff(layers)) + 0.5
    starts = np.concatenate([[-0.5], edges])
    ends = np.concatenate([edges, [len(layers) - 0.5]])
    names = ["base" if layer < 0 else str(layer) for layer in dict.fromkeys(layers)]
    for set_ticks in (axes.set_xticks, axes.set_yticks):
        set_ticks((starts + ends) / 2, names)
    axes.tick_params(length=0, labelsize=7)
    for label in axes.get_xticklabels()[:1]:
        label.set_rotation(90)
    for edge in edges:
        axes.axhline(edge, color=colors.surface, linewidth=1)
        axes.axvline(edge, color=colors.surface, linewidth=1)


def _alt(pairs: pd.DataFrame, sweep: str) -> str:
    heads = pairs[pairs["first"] != "base"]
    base = pairs[pairs["first"] == "base"].sort_values("agreement")
    middle = heads["agreement"].median()
    return (
        f"Map of agreement between pruned heads of {short(sweep)}. The median pair has the same "
        f"outcome on {percent(float(middle))} of the questions. With the base model, "
        f"{base['second'].iloc[-1]} agrees most, on {percent(base['agreement'].iloc[-1])}, and "
        f"{base['second'].iloc[0]} least, on {percent(base['agreement'].iloc[0])}."
    )
