"""Figure 5 of the SPRINT paper: accuracy of every head of a layer on every subject."""

import math

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Image

from headroom.analysis.controls import LEVEL
from headroom.analysis.text import short, wrapped
from headroom.figures.drawing import Figure
from headroom.figures.style import ONE_COLUMN, TWO_COLUMNS, Theme, diverging, legible
from headroom.planning.exhibits import words

_ROW = 0.185  # inches
_LEAST = 5  # percentage points at the ends of the colour bar
_TESTED = ("overall", "subject")
_NARROW = 3  # groups that one column has room for


def heatmap(table: pd.DataFrame, sweep: str, layer: int, colors: Theme) -> Figure:
    """Draw head × subject of one layer, the base model in the first row.

    Args:
        table: cells of a sweep, as `headroom.analysis.gains.against_base` returns them.
        sweep: its name.
        layer: the layer to draw.
        colors: the theme to draw in.
    """
    wanted = table["by"].isin(_TESTED)
    rows = table[wanted & (table["layer"].isna() | (table["layer"] == layer))]
    heads = rows.loc[rows["by"] == "overall", ["variant", "head"]].drop_duplicates()
    groups = rows.drop_duplicates("group").sort_values("by", ascending=False, kind="stable")
    sizes: dict[str, int] = dict(zip(groups["group"], groups["n"], strict=True))
    grid = rows.pivot(index="variant", columns="group", values="accuracy")
    accuracy = 100 * grid.loc[heads["variant"], list(sizes)].to_numpy(float)
    difference = accuracy - accuracy[0]
    q = rows.pivot(index="variant", columns="group", values="q")
    marked = q.loc[heads["variant"], list(sizes)].to_numpy(float) < LEVEL
    limit = max(_LEAST, 5 * math.ceil(np.abs(difference).max() / 5))

    height = _ROW * len(heads) + 1.15
    image = Image(figsize=(TWO_COLUMNS if len(sizes) > _NARROW else ONE_COLUMN, height))
    axes = image.add_subplot()
    scale = Normalize(-limit, limit)
    colormap = diverging(colors)
    mesh = axes.imshow(difference, cmap=colormap, norm=scale, aspect="auto")
    for (row, column), value in np.ndenumerate(accuracy):
        background = colormap(scale(difference[row, column]))
        weight = "bold" if row and accuracy[1:, column].max() == value else "normal"
        ink = legible(background[:3])
        if marked[row, column]:
            sign = "^" if difference[row, column] > 0 else "v"
            axes.scatter(column + 0.37, row, s=11, marker=sign, color=ink, linewidths=0)
        axes.text(
            column,
            row,
            f"{value:.1f}",
            ha="center",
            va="center",
            fontsize=6.5,
            fontweight=weight,
            color=ink,
        )
    axes.set_xticks(
        range(len(sizes)), [f"{wrapped(group, 13)}\nn = {n}" for group, n in sizes.items()]
    )
    axes.set_yticks(
        range(len(heads)), ["No Prune", *(f"head {head}" for head in heads["head"].iloc[1:])]
    )
    axes.tick_params(
        length=0, labelsize=7, top=True, labeltop=True, bottom=False, labelbottom=False
    )
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.axhline(0.5, color=colors.ink, linewidth=1)
    axes.axvline(len(sizes) - 1.5, color=colors.ink, linewidth=1)
    bar = image.colorbar(mesh, ax=axes, pad=0.015, fraction=0.04, aspect=max(12, len(heads)))
    bar.outline.set_visible(False)
    bar.set_label("accuracy − No Prune (points)")
    bar.ax.tick_params(labelsize=7)
    heads_tested, pairs = (table.loc[table["by"] == by, "q"].count() for by in _TESTED)
    told = words(
        "heatmap",
        of=short(sweep),
        layer=layer,
        heads=heads_tested,
        pairs=pairs,
        sizes=", ".join(f"{short(group)} {n}" for group, n in sizes.items()),
    )
    return Figure(image, *told, _alt(sweep, layer, rows), rows.drop(columns="by"))


def _alt(sweep: str, layer: int, rows: pd.DataFrame) -> str:
    overall = rows[rows["by"] == "overall"].iloc[1:].sort_values("accuracy")
    worst, best = overall.iloc[0], overall.iloc[-1]
    subjects = rows[(rows["by"] == "subject") & (rows["q"] < LEVEL)]
    return (
        f"Heatmap of accuracy for {len(overall)} heads of layer {layer} of {short(sweep)}. Over "
        f"all questions the base model has {100 * best['base']:.1f}%; pruning head {best['head']} "
        f"gives {100 * best['accuracy']:.1f}%, the highest, and pruning head {worst['head']} "
        f"{100 * worst['accuracy']:.1f}%, the lowest. Different from base by test: "
        f"{(overall['q'] < LEVEL).sum()} of these heads over all questions, {len(subjects)} pairs "
        "of head and subject."
    )
