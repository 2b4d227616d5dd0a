"""Maps of a sweep and of a selector: accuracy by head and subject (Figure 5 of the SPRINT paper),
agreement of pruned models, heads and questions in a selector's embedding space.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap
from matplotlib.figure import Figure as Image

from headsweep.experiments.maps.outcomes import HIGHER, LOWER, TITLE_OF_OUTCOME
from headsweep.page.figures.draw import Figure, empty
from headsweep.page.figures.shared import strongest
from headsweep.page.figures.style import (
    DIVERGING,
    INK,
    MUTED,
    ONE_COLUMN,
    SEQUENTIAL,
    SURFACE,
    TWO_COLUMNS,
    VERMILLION,
    legible,
)
from headsweep.results.gains import cells
from headsweep.statistics import SIGNIFICANCE
from headsweep.text import counted, percent, short, wrapped
from headsweep.variants import BASE, Variant

_LETTERS = 14  # of a column's title, an inch of all columns
_FEW_GROUPS, _FEW_VARIANTS = 3, 64  # the most that fit into one column


def heatmap(z: pd.DataFrame, variants: Sequence[Variant], layer: int) -> Figure:
    """Draw accuracy by head and subject of one layer, with the base model in the first row.

    `z` is the accuracy matrix (`headsweep.files.tables.ACCURACY`); of the variants, base comes
    first.
    """
    table = cells(z, variants)
    rows = table[(table["by"] != "level") & (table["layer"].isna() | (table["layer"] == layer))]
    groups = rows.drop_duplicates("group").sort_values("by", ascending=False, kind="stable")
    overall = rows[rows["by"] == "overall"]
    accuracy, gain, q = (
        rows.pivot(index="variant", columns="group", values=values)
        .loc[overall["variant"], groups["group"]]
        .to_numpy(float)
        for values in ("accuracy", "gain", "q")
    )
    width = TWO_COLUMNS if len(groups) > _FEW_GROUPS else ONE_COLUMN
    image = Image(figsize=(width, 0.185 * len(overall) + 1.15))
    axes = image.add_subplot()
    # One range for all layers: heads that hurt most lie beyond it.
    gains = table.loc[table["head"].notna() & (table["by"] != "level"), "gain"]
    limit = max(5, 5 * math.ceil(20 * strongest(gains)))  # percentage points
    ends = (-limit, limit)
    _map(axes, 100 * gain, DIVERGING, ends, "minus No Prune (points)", 0.015, extend="both")
    best = (accuracy == accuracy[1:].max(axis=0)) & (q < SIGNIFICANCE) & (gain > 0)
    for (row, column), value in np.ndenumerate(accuracy):
        ink = legible(DIVERGING(0.5 + 50 * float(gain[row, column]) / limit)[:3])
        if q[row, column] < SIGNIFICANCE:
            sign = "^" if gain[row, column] > 0 else "v"
            axes.scatter(column + 0.37, row, s=11, marker=sign, color=ink, linewidths=0)
        look: dict[str, Any] = {"fontweight": "bold" if best[row, column] else "normal"}
        look |= {"ha": "center", "va": "center", "fontsize": 6.5, "color": ink}
        axes.text(column, row, f"{100 * value:.1f}", **look)
    _title_groups(axes, groups, width)
    heads = [f"head {head}" for head in overall["head"].iloc[1:]]
    axes.set_yticks(range(len(overall)), ["No Prune", *heads])
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.axhline(0.5, color=INK, linewidth=1)
    axes.axvline(len(groups) - 1.5, color=INK, linewidth=1)
    facts = {"layer": layer, "heads": len(variants) - 1, "n": len(z)}
    return Figure(image, _told_of_heads(overall), rows.drop(columns="by"), facts)


def _title_groups(axes: Axes, groups: pd.DataFrame, width: float) -> None:
    """Write a group of questions above each column; the figure has a width in inches."""
    longest = max(len(word) for name in groups["group"] for word in re.split("[ -]", name))
    places = range(len(groups))
    sizes = list(zip(groups["group"], groups["n"], strict=True))
    if longest > _LETTERS * width / len(groups):  # then words would run into one another
        titles = [f"{short(name, 24)}, n = {n}" for name, n in sizes]  # as short as on the page
        axes.set_xticks(places, titles, rotation=30, ha="left")
    else:
        axes.set_xticks(places, [f"{wrapped(name, 14)}\nn = {n}" for name, n in sizes])


def _told_of_heads(overall: pd.DataFrame) -> str:
    """Return what a heatmap shows, in words; its heads come after the base model."""
    ranked = overall.iloc[1:].sort_values("accuracy").to_dict("records")
    worst, best = ranked[0], ranked[-1]
    count = counted(len(ranked), "head")
    alt = (
        f"Heatmap of accuracy for {count}. Over all questions the base model has "
        f"{percent(best['base'])}; pruning head {best['head']} gives {percent(best['accuracy'])}"
    )
    if len(ranked) > 1:
        alt += f", the highest, and head {worst['head']} {percent(worst['accuracy'])}, the lowest"
    differing = (overall["q"] < SIGNIFICANCE).sum()
    return f"{alt}. At q < {SIGNIFICANCE}, {differing} of {count} differ."


def agreement(z: pd.DataFrame, variants: Sequence[Variant]) -> Figure:
    """Draw s_jk = mean_i 1[z_ij = z_ik] (SPRINT paper, section 4) of all pairs, base first.

    `by_chance` is the agreement expected of independent models with the same two accuracies.
    Arguments are those of `heatmap`.
    """
    if len(variants) < 3:
        return empty("One head has no other to agree with.")
    names = np.array([str(variant) for variant in variants])
    right = z[names].to_numpy(float)
    share = right.mean(axis=0)
    grid = (right.T @ right + (1 - right).T @ (1 - right)) / len(z)
    chance = np.outer(share, share) + np.outer(1 - share, 1 - share)
    first, second = np.triu_indices(len(names), k=1)
    pairs = pd.DataFrame({"first": names[first], "second": names[second]})
    pairs = pairs.assign(agreement=grid[first, second], by_chance=chance[first, second])
    middle = pairs[pairs["first"] != names[0]][["agreement", "by_chance"]].median().map(percent)
    width = ONE_COLUMN if len(variants) <= _FEW_VARIANTS else TWO_COLUMNS
    image = Image(figsize=(width, 0.88 * width))
    axes = image.add_subplot()
    colour_ends = min(0.95, grid.min()), 1
    _map(axes, grid, SEQUENTIAL, colour_ends, "share of questions with the same outcome", 0.02)
    layers = pd.Series(
        ["base" if variant.layer is None else str(variant.layer) for variant in variants]
    )
    places = layers.index.to_series().groupby(layers, sort=False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(places.mean(), layers.unique())
        axis.set_label_text("layer of the head pruned")
    axes.get_xticklabels()[0].set_rotation(90)
    for last in places.max()[:-1]:
        axes.axhline(last + 0.5, color=SURFACE, linewidth=1)
        axes.axvline(last + 0.5, color=SURFACE, linewidth=1)
    with_base = pd.Series(grid[0, 1:], index=names[1:])
    least, most = (
        f"{head} on {percent(with_base[head])}"
        for head in (str(with_base.idxmin()), str(with_base.idxmax()))
    )
    alt = (
        f"Map of agreement. The median pair of heads has the same outcome on {middle['agreement']} "
        f"of the questions. {most} agrees most with the base model, {least} least."
    )
    facts = {
        "n": len(z),
        "heads": len(variants) - 1,
        "median": middle["agreement"],
        "chance": middle["by_chance"],
        "error": percent(math.sqrt(0.25 / len(z))),
    }
    return Figure(image, alt, pairs, facts)


def _map(
    axes: Axes,
    values: np.ndarray,
    colors: Colormap,
    ends: tuple[float, float],
    label: str,
    pad: float,
    extend: str = "neither",
) -> None:
    """Draw a matrix without frame and grid, and its colour bar, pointed where values go beyond."""
    mesh = axes.imshow(values, cmap=colors, vmin=ends[0], vmax=ends[1], aspect="auto")
    axes.tick_params(length=0, labelsize=7)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    shape = {"pad": pad, "fraction": 0.04, "aspect": max(12, len(values))}
    _bar(axes, mesh, label, extend=extend, **shape)


def _bar(axes: Axes, drawn: ScalarMappable, label: str, **options: Any) -> None:
    bar = axes.figure.colorbar(drawn, ax=axes, label=label, **options)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7)


def scored_map(heads: pd.DataFrame) -> Figure:
    """Draw a map of every head (columns `headsweep.experiments.maps.outcomes.HEADS`): a panel an
    outcome.

    Rows are layers; the last column, apart, is the mean of a layer's noise placebos.
    """
    outcomes = [outcome for outcome in TITLE_OF_OUTCOME if (heads["outcome"] == outcome).any()]
    if not outcomes:
        return empty("Fewer than two questions have texts to score.")
    pruned = heads[heads["kind"] == "head"]
    layers = np.unique(pruned["layer"])
    width = int(pruned["head"].max()) + 1
    size = TWO_COLUMNS if len(outcomes) > 1 else ONE_COLUMN
    image = Image(figsize=(size, 0.16 * len(layers) + 1.1))
    panels = image.subplots(1, len(outcomes), squeeze=False)[0]
    described = []
    for axes, outcome in zip(panels, outcomes, strict=True):
        of_outcome = heads[heads["outcome"] == outcome]
        _scored_panel(axes, of_outcome, layers, width)
        axes.set_title(f"{outcome}:\n{TITLE_OF_OUTCOME[outcome]}", fontsize=7)
        count = (of_outcome["kind"] == "head").sum()
        shown = of_outcome["shown"].notna().sum()
        described.append(f"{outcome}: {shown} of {count} heads shown")
    panels[0].set_ylabel("layer")
    alt = f"Map of {len(layers)} layers of heads, by outcome. {'; '.join(described)}."
    facts = {"heads": pruned["variant"].nunique(), "n": int(heads["n"].max())}
    return Figure(image, alt, heads, facts)


def _scored_panel(axes: Axes, rows: pd.DataFrame, layers: np.ndarray, width: int) -> None:
    """Draw the map of one outcome: so many heads to a layer, a gap, and the noise placebos.

    Below it stand its marks, and the largest change if the colours end before it.
    """
    grid = np.full((len(layers), width + 2), np.nan)
    of_heads = rows[rows["kind"] == "head"].pivot(index="layer", columns="head", values="change")
    grid[:, :width] = of_heads.reindex(index=layers, columns=range(width))
    noise = rows[rows["kind"] == "noise"].groupby("layer")["change"].mean()
    grid[np.searchsorted(layers, noise.index), width + 1] = noise
    limit = strongest(grid[:, :width])
    _map(axes, grid, DIVERGING, (-limit, limit), "", 0.03, extend="both")
    for row in rows[rows["shown"].notna()].to_dict("records"):
        place = np.searchsorted(layers, row["layer"])
        sign = {HIGHER: "^", LOWER: "v"}[row["shown"]]
        ink = legible(DIVERGING(0.5 + row["change"] / limit / 2)[:3])
        axes.scatter(row["head"], place, s=9, marker=sign, color=ink, linewidths=0)
    step = max(1, len(layers) // 12)
    axes.set_yticks(range(0, len(layers), step), layers[::step])
    axes.set_xticks([0, width - 1, width + 1], ["0", str(width - 1), "noise"])
    about = ["head"]
    if (rows["shown"] == LOWER).any():
        about.append("▼ shown to be lower")
    if (rows["shown"] == HIGHER).any():
        about.append("▲ shown to be higher")
    largest = max(np.nanmin(grid), np.nanmax(grid), key=abs)
    if abs(largest) > limit:
        about.append(f"beyond the colours: up to {largest:+.3g}".replace("-", "−"))
    axes.set_xlabel("\n".join(about), fontsize=7)


def space(points: pd.DataFrame, solved: pd.Series) -> Figure:
    """Draw heads and questions (`headsweep.files.tables.POSITIONS`) on the first two principal
    components of both together, and the share of the pool's heads that solve each question.

    Signs are fixed: the entry of largest magnitude of each axis is positive.
    """
    vectors = np.stack(points["vector"].tolist()).astype(float)
    scores, lengths, axis = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    signs = np.sign(axis[np.arange(len(axis)), np.abs(axis).argmax(axis=1)])
    placed = np.pad(scores * lengths * signs, ((0, 0), (0, 2)))  # one dimension has a plane, too
    kept = np.pad(lengths**2 / max(np.sum(lengths**2), np.finfo(float).tiny), (0, 2))[:2]
    head = points["kind"] == "head"
    layers = [Variant.parse(name).layer for name in points["name"].where(head, "base")]
    table = points[["kind", "name"]].assign(
        layer=pd.array(layers, dtype="Int64"),
        solved=points["name"].map(solved),
        x=placed[:, 0],
        y=placed[:, 1],
    )
    questions, heads = table[~head], table[head]
    image = Image(figsize=(1.4 * ONE_COLUMN, 3.6))
    axes = image.add_subplot()
    look: dict[str, Any] = {"s": 16, "edgecolors": MUTED, "linewidths": 0.5, "cmap": SEQUENTIAL}
    shares = 100 * questions["solved"].to_numpy(float)
    dots = axes.scatter(questions["x"], questions["y"], c=shares, vmin=0, vmax=100, **look)
    _bar(axes, dots, "heads that solve the question (%)", pad=0.02)
    axes.scatter(heads["x"], heads["y"], s=14, marker="D", color=VERMILLION, linewidths=0)
    has_layers = heads["layer"].nunique() > 1
    for name, x, y in heads[["name", "x", "y"]].itertuples(index=False):
        variant = Variant.parse(name)
        label = str(variant.layer if has_layers else variant.head)
        label = "base" if variant == BASE else label
        axes.annotate(label, (x, y), xytext=(3, 1), textcoords="offset points", fontsize=6.5)
    axes.set_xlabel(f"first axis ({percent(kept[0])} of the variance)")
    axes.set_ylabel(f"second axis ({percent(kept[1])} of the variance)")
    axes.grid(visible=False)
    axes.margins(0.05)
    reach = table.groupby("kind")[["x", "y"]].std(ddof=0).apply(np.linalg.norm, axis=1)
    alt = (
        "Scatter plot of questions, by the share of heads that solve them, and heads, by layer. "
        "Root mean square distance from their own centre: questions "
        f"{reach['question']:.2f}, heads {reach['head']:.2f}."
    )
    facts = {"questions": len(questions), "heads": len(heads), "kept": percent(sum(kept))}
    return Figure(image, alt, table, facts)
