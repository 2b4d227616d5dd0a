"""Maps of a sweep and of a selector: accuracy by head and subject (Figure 5 of the SPRINT paper),
agreement of pruned models, heads and questions in a selector's embedding space.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, Normalize
from matplotlib.figure import Figure as Image

from headroom.analysis.controls import LEVEL
from headroom.analysis.gains import cells
from headroom.analysis.text import percent, wrapped
from headroom.figures.drawing import Figure, color_bar
from headroom.figures.style import (
    DIVERGING,
    INK,
    MUTED,
    ONE_COLUMN,
    SEQUENTIAL,
    SURFACE,
    TWO_COLUMNS,
    legible,
)
from headroom.variants import Variant

_ROW = 0.185  # inches
_LEAST = 5  # the colour bar reaches at least this many percentage points
_FEW_GROUPS, _FEW_VARIANTS = 3, 64  # the most that fit into one column
_REACH = 4  # the colour bar of agreement ends at this multiple of the median pair's disagreement


def heatmap(z: pd.DataFrame, variants: Sequence[Variant], layer: int) -> Figure:
    """Draw accuracy by head and subject of one layer, with the base model in the first row.

    Args:
        z: accuracy matrix, one row per question (see `headroom.tables.ACCURACY`).
        variants: base first, then the pruned variants.
        layer: the layer to draw.
    """
    table = cells(z, variants)
    rows = table[(table["by"] != "level") & (table["layer"].isna() | (table["layer"] == layer))]
    overall = rows[rows["by"] == "overall"]
    groups = rows.drop_duplicates("group").sort_values("by", ascending=False, kind="stable")
    accuracy, q = (
        rows.pivot(index="variant", columns="group", values=values)
        .loc[overall["variant"], groups["group"]]
        .to_numpy(float)
        for values in ("accuracy", "q")
    )
    accuracy = 100 * accuracy
    difference = accuracy - accuracy[0]
    limit = max(_LEAST, 5 * math.ceil(np.abs(difference).max() / 5))
    width = TWO_COLUMNS if len(groups) > _FEW_GROUPS else ONE_COLUMN
    image = Image(figsize=(width, _ROW * len(overall) + 1.15))
    axes = image.add_subplot()
    scale = Normalize(-limit, limit)
    mesh = axes.imshow(difference, cmap=DIVERGING, norm=scale, aspect="auto")
    best = accuracy == accuracy[1:].max(axis=0)
    best[0] = False
    for (row, column), value in np.ndenumerate(accuracy):
        ink = legible(DIVERGING(scale(difference[row, column]))[:3])
        if q[row, column] < LEVEL:
            sign = "^" if difference[row, column] > 0 else "v"
            axes.scatter(column + 0.37, row, s=11, marker=sign, color=ink, linewidths=0)
        look: dict[str, Any] = {"fontweight": "bold" if best[row, column] else "normal"}
        look |= {"ha": "center", "va": "center", "fontsize": 6.5, "color": ink}
        axes.text(column, row, f"{value:.1f}", **look)
    sizes = zip(groups["group"], groups["n"], strict=True)
    axes.set_xticks(range(len(groups)), [f"{wrapped(name, 14)}\nn = {n}" for name, n in sizes])
    heads = [f"head {head}" for head in overall["head"].iloc[1:]]
    axes.set_yticks(range(len(overall)), ["No Prune", *heads])
    axes.tick_params(
        length=0, labelsize=7, top=True, labeltop=True, bottom=False, labelbottom=False
    )
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.axhline(0.5, color=INK, linewidth=1)
    axes.axvline(len(groups) - 1.5, color=INK, linewidth=1)
    bar = color_bar(image, axes, mesh, pad=0.015, fraction=0.04, aspect=max(12, len(overall)))
    bar.set_label("accuracy − No Prune (points)")
    ordered = overall.iloc[1:].sort_values("accuracy")
    worst, top = ordered.iloc[0], ordered.iloc[-1]
    alt = (
        f"Heatmap of accuracy for {len(heads)} heads. Over all questions the base model has "
        f"{percent(top['base'])}; pruning head {top['head']} gives {percent(top['accuracy'])}, the "
        f"highest, and head {worst['head']} {percent(worst['accuracy'])}, the lowest. "
        f"{(overall['q'] < LEVEL).sum()} heads differ from base by test."
    )
    facts = {"layer": layer, "heads": len(variants) - 1, "n": overall["n"].iloc[0]}
    return Figure(image, alt, rows.drop(columns="by"), facts)


def agreement(z: pd.DataFrame, variants: Sequence[Variant]) -> pd.DataFrame:
    """Return s_jk = mean_i 1[z_ij = z_ik] (SPRINT paper, section 4) for all pairs j < k.

    Args:
        z: accuracy matrix, one row per question (see `headroom.tables.ACCURACY`).
        variants: base first, then the pruned variants.

    Returns:
        Columns ``first``, ``second`` (names), ``agreement`` and ``by_chance`` (the agreement
        expected of independent models with the same two accuracies).
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


def agreement_map(z: pd.DataFrame, variants: Sequence[Variant]) -> Figure:
    """Draw s_jk of all pairs, ordered by layer and head, base first.

    Args:
        z: as for `agreement`.
        variants: as for `agreement`.
    """
    pairs = agreement(z, variants)
    heads, base = (pairs[(pairs["first"] == "base") == own] for own in (False, True))
    middle, chance = heads[["agreement", "by_chance"]].median()
    grid = np.eye(len(variants))
    first, second = np.triu_indices(len(variants), k=1)
    grid[first, second] = grid[second, first] = pairs["agreement"]
    lowest = max(0.0, min(0.95, math.floor(20 * (1 - _REACH * (1 - middle))) / 20))
    width = ONE_COLUMN if len(variants) <= _FEW_VARIANTS else TWO_COLUMNS
    image = Image(figsize=(width, 0.88 * width))
    axes = image.add_subplot()
    scale = Normalize(lowest, 1)
    mesh = axes.imshow(grid, cmap=SEQUENTIAL, norm=scale, interpolation="nearest")
    _label_layers(axes, variants)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("layer of the head pruned")
    axes.set_ylabel("layer of the head pruned")
    beyond = "min" if grid.min() < lowest else "neither"
    bar = color_bar(image, axes, mesh, extend=beyond, pad=0.02, aspect=30)
    bar.set_label("share of questions with the same outcome")
    base = base.sort_values("agreement")
    low, high = (
        f"{row['second']} on {percent(row['agreement'])}"
        for _, row in base.iloc[[0, -1]].iterrows()
    )
    alt = (
        f"Map of agreement. The median pair of heads has the same outcome on {percent(middle)} of "
        f"the questions. {high} agrees most with the base model, {low} least."
    )
    facts = {
        "n": len(z),
        "heads": len(variants) - 1,
        "median": percent(middle),
        "chance": percent(chance),
        "error": percent(math.sqrt(0.25 / len(z))),
    }
    return Figure(image, alt, pairs, facts)


def _label_layers(axes: Axes, variants: Sequence[Variant]) -> None:
    """Label each layer at the middle of its heads, and draw lines between layers."""
    layers = [-1 if variant.layer is None else variant.layer for variant in variants]
    edges = np.flatnonzero(np.diff(layers)) + 0.5
    bounds = np.concatenate([[-0.5], edges, [len(layers) - 0.5]])
    names = ["base" if layer < 0 else str(layer) for layer in dict.fromkeys(layers)]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks((bounds[:-1] + bounds[1:]) / 2, names)
    axes.tick_params(length=0, labelsize=7)
    axes.get_xticklabels()[0].set_rotation(90)
    for edge in edges:
        axes.axhline(edge, color=SURFACE, linewidth=1)
        axes.axvline(edge, color=SURFACE, linewidth=1)


def plane(points: pd.DataFrame, solved: pd.Series) -> tuple[pd.DataFrame, np.ndarray]:
    """Project heads and questions together onto their first two principal components.

    Signs are fixed: the entry of largest magnitude of each axis is positive.

    Args:
        points: rows of `headroom.tables.POINTS`.
        solved: for each question, the share of the pool's heads that solve it.

    Returns:
        Columns ``kind``, ``name``, ``layer`` (of heads), ``solved`` (of questions), ``x`` and
        ``y``; and the share of the variance that each axis explains.
    """
    vectors = np.stack(points["vector"].tolist()).astype(float)
    scores, lengths, axes = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])
    placed = np.pad(scores * lengths * signs, ((0, 0), (0, 2)))  # one dimension has a plane, too
    kept = np.pad(lengths**2 / max(np.sum(lengths**2), np.finfo(float).tiny), (0, 2))[:2]
    heads = points["kind"] == "head"
    layers = [Variant.parse(name).layer for name in points["name"].where(heads, "base")]
    table = points[["kind", "name"]].assign(
        layer=pd.array(layers, dtype="Int64"),
        solved=points["name"].map(solved),
        x=placed[:, 0],
        y=placed[:, 1],
    )
    return table, kept


def space(points: pd.DataFrame, solved: pd.Series) -> Figure:
    """Draw questions coloured by how many heads solve them and heads by layer, on the same axes.

    Args:
        points: as for `plane`.
        solved: as for `plane`.
    """
    placed, kept = plane(points, solved)
    image = Image(figsize=(TWO_COLUMNS, 3.3))
    left, right = image.subplots(1, 2, sharex=True, sharey=True)
    questions, heads = (placed[placed["kind"] == kind] for kind in ("question", "head"))
    layers = sorted(heads["layer"].dropna().unique().tolist())
    rank = heads["layer"].map({layer: place for place, layer in enumerate(layers)})
    steps = BoundaryNorm(np.arange(len(layers) + 1) - 0.5, 256)
    for axes, own, amount, scale, marker, others, small in (
        (left, questions, 100 * questions["solved"], Normalize(0, 100), "o", heads, "D"),
        (right, heads, rank, steps, "D", questions, "o"),
    ):
        faint: dict[str, Any] = {"s": 7, "color": MUTED, "alpha": 0.35, "linewidths": 0}
        axes.scatter(others["x"], others["y"], marker=small, **faint)
        colors = amount.to_numpy(float, na_value=0)
        look: dict[str, Any] = {"s": 16, "marker": marker, "edgecolors": MUTED, "linewidths": 0.5}
        dots = axes.scatter(own["x"], own["y"], c=colors, cmap=SEQUENTIAL, norm=scale, **look)
        bar = color_bar(image, axes, dots, pad=0.02, aspect=28)
        axes.set_xlabel(f"first axis ({percent(kept[0])} of the variance)")
        axes.grid(visible=False)
        axes.margins(0.05)
    bar.set_ticks(range(len(layers)), labels=[str(layer) for layer in layers])
    left.set_title("Questions, by heads that solve them (%)")
    right.set_title("Heads, by layer")
    left.set_ylabel(f"second axis ({percent(kept[1])} of the variance)")
    reach = placed.groupby("kind")[["x", "y"]].std(ddof=0).apply(np.linalg.norm, axis=1)
    alt = (
        "Two scatter plots on the same axes: questions, by the share of heads that solve them, and "
        "heads, by layer. Root mean square distance from their own centre: questions "
        f"{reach['question']:.2f}, heads {reach['head']:.2f}."
    )
    facts = {"questions": len(questions), "heads": len(heads), "kept": percent(sum(kept))}
    return Figure(image, alt, placed, facts)
