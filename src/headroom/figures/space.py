"""The embedding map: heads and test questions in the space of a trained selector, in the plane."""

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import BoundaryNorm, Normalize
from matplotlib.figure import Figure as Image

from headroom.analysis.text import percent, short
from headroom.figures.drawing import Figure
from headroom.figures.style import TWO_COLUMNS, Theme, sequential
from headroom.planning.exhibits import words
from headroom.variants import Variant


def plane(points: pd.DataFrame, solved: pd.Series) -> tuple[pd.DataFrame, tuple[float, float]]:
    """Project heads and questions together on their first two principal components.

    Args:
        points: rows of `headroom.tables.POINTS`.
        solved: by question, the share of the pool's heads that solve it.

    Returns:
        Columns ``kind``, ``name``, ``layer`` (of heads), ``solved`` (of questions), ``x`` and
        ``y``; and the share of the variance that each axis keeps.
    """
    placed, kept = principal(np.stack(points["vector"].tolist()).astype(float))
    layers = [
        Variant.parse(name).layer if kind == "head" else None
        for kind, name in zip(points["kind"], points["name"], strict=True)
    ]
    table = points[["kind", "name"]].assign(
        layer=pd.array(layers, dtype="Int64"),
        solved=points["name"].map(solved),
        x=placed[:, 0],
        y=placed[:, 1],
    )
    return table, kept


def principal(
    vectors: Float[np.ndarray, "points dimension"],
) -> tuple[Float[np.ndarray, "points 2"], tuple[float, float]]:
    """Return the first two principal components, and the shares of variance that they keep.

    Signs are fixed: the longest entry of each axis is positive.
    """
    centred = vectors - vectors.mean(axis=0)
    _, lengths, axes = np.linalg.svd(centred, full_matrices=False)
    axes = np.pad(axes, ((0, max(0, 2 - len(axes))), (0, 0)))[:2]
    lengths = np.pad(lengths, (0, 2))
    longest = np.abs(axes).argmax(axis=1)
    axes *= np.where(axes[[0, 1], longest] < 0, -1, 1)[:, np.newaxis]
    total = max(float(np.sum(lengths**2)), np.finfo(float).tiny)
    return centred @ axes.T, (float(lengths[0] ** 2 / total), float(lengths[1] ** 2 / total))


def space(placed: pd.DataFrame, kept: tuple[float, float], selector: str, colors: Theme) -> Figure:
    """Draw questions by how many heads solve them, and heads by layer, on the same two axes.

    Args:
        placed: as `plane` returns it.
        kept: the share of the variance that each axis keeps.
        selector: its name.
        colors: the theme to draw in.
    """
    image = Image(figsize=(TWO_COLUMNS, 3.3))
    left, right = image.subplots(1, 2, sharex=True, sharey=True)
    questions = placed[placed["kind"] == "question"]
    heads = placed[placed["kind"] == "head"]
    background = {"s": 7, "color": colors.muted, "alpha": 0.35, "linewidths": 0}
    left.scatter(heads["x"], heads["y"], marker="D", **background)
    _dots(image, left, questions, 100 * questions["solved"], Normalize(0, 100), colors)
    left.set_title("Questions, by heads that solve them (%)")
    right.scatter(questions["x"], questions["y"], **background)
    layers = sorted(heads["layer"].dropna().unique().tolist())
    rank = heads["layer"].map({layer: place for place, layer in enumerate(layers)})
    steps = BoundaryNorm(np.arange(len(layers) + 1) - 0.5, 256)
    bar = _dots(image, right, heads, rank, steps, colors, marker="D")
    bar.set_ticks(range(len(layers)), labels=[str(layer) for layer in layers])
    right.set_title("Heads, by layer")
    left.set_ylabel(f"second axis ({percent(kept[1])} of the variance)")
    for axes in (left, right):
        axes.set_xlabel(f"first axis ({percent(kept[0])} of the variance)")
        axes.grid(visible=False)
        axes.margins(0.05)
    counts, share = {"questions": len(questions), "heads": len(heads)}, percent(sum(kept))
    told = words("space", of=short(selector), kept=share, **counts)
    return Figure(image, *told, _alt(placed, selector), placed)


def _dots(
    image: Image,
    axes: Axes,
    placed: pd.DataFrame,
    amount: pd.Series,
    scale: Normalize,
    colors: Theme,
    marker: str = "o",
) -> Colorbar:
    """Draw points in the colours of an amount, with its colour bar."""
    dots = axes.scatter(
        placed["x"],
        placed["y"],
        c=amount.to_numpy(float, na_value=0),
        cmap=sequential(colors),
        norm=scale,
        s=16,
        marker=marker,
        edgecolors=colors.muted,
        linewidths=0.5,
    )
    bar = image.colorbar(dots, ax=axes, pad=0.02, aspect=28)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7, length=0)
    return bar


def _alt(placed: pd.DataFrame, selector: str) -> str:
    spread = placed.groupby("kind")[["x", "y"]].std(ddof=0)
    reach = {kind: float(np.hypot(row["x"], row["y"])) for kind, row in spread.iterrows()}
    return (
        f"Two scatter plots of the shared space of {short(selector)}, on the same axes: questions, "
        "by the share of heads that solve them, and heads, by layer. Root mean square distance "
        f"from their own centre: questions {reach['question']:.2f}, heads {reach['head']:.2f}."
    )
