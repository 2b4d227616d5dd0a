"""The papers' Figures 2, 4 and 5, drawn as the papers draw them."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Image

from headsweep.experiments.sprint.methods import SPRINT
from headsweep.page.figures.draw import Figure, empty
from headsweep.page.figures.style import (
    BLUE,
    INK,
    MUTED,
    PURPLE,
    SEQUENTIAL,
    TWO_COLUMNS,
    legible,
    method_line,
)
from headsweep.page.printed.exhibits import PrintedExhibit
from headsweep.page.printed.numbers import (
    AS_PRINTED,
    AS_PUBLISHED,
    GSM8K_PANEL,
    MATH_PANEL,
    Numbers,
)
from headsweep.page.printed.tables import in_place_of
from headsweep.results.published import EXHIBITS, LEGIBLE
from headsweep.text import points, wrapped

_FIGURE_5 = (
    "Geometry",
    "Intermediate Algebra",
    "Counting & Probability",
    "Precalculus",
    "Prealgebra",
    "Number Theory",
    "Algebra",
)
"""The columns of Figure 5, in its order."""


def gains(_: PrintedExhibit, numbers: Numbers) -> Figure:
    """Draw Figure 2: a violin a model of max over heads of accuracy minus base, over all pairs."""
    of_models = [_pairs(numbers.of_model(model)) for model in EXHIBITS]
    if all(pairs.empty for pairs in of_models):
        return empty(f"Empty: gains of single heads are {numbers.missing}.")
    pairs = pd.concat([pairs for pairs in of_models if len(pairs)])
    models = list(dict.fromkeys(pairs["model"]))
    image = Image(figsize=(TWO_COLUMNS, 3.2))
    axes = image.add_subplot()
    told = []
    for place, model in enumerate(models):
        values = 100 * pairs.loc[pairs["model"] == model, "gain"].to_numpy()
        if np.ptp(values) > 0:
            drawn: Any = axes.violinplot(values, [place], widths=0.7, showextrema=False)
            drawn["bodies"][0].set(facecolor=BLUE, edgecolor=BLUE, alpha=0.35, linewidth=0.8)
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
        axes.vlines(place, values.min(), values.max(), color=INK, linewidth=0.7)
        axes.vlines(place, low, high, color=INK, linewidth=4)
        axes.scatter(place, middle, s=14, color="white", zorder=3)
        axes.annotate(
            points(middle / 100), (place + 0.06, middle), va="center", fontsize=7, color=INK
        )
        told.append(f"{model}: median {points(middle / 100)}, {len(values)} pairs")
    axes.axhline(0, color=MUTED, linewidth=0.8, linestyle="--")
    ticks = [f"{wrapped(t.partition(':')[0], 22)}\n{t.rpartition(', ')[2]}" for t in told]
    axes.set_xticks(range(len(models)), ticks)
    room = 0.6 if len(models) > 1 else 1.5  # a single violin stays slim
    axes.set_xlim(-room, len(models) - 1 + room)
    axes.set_ylabel("accuracy gain (points)")
    alt = f"Violin plot of the best head's gain by model. {'; '.join(told)}."
    return Figure(image, alt, pairs, {"n": len(pairs)})


def _pairs(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the gain of the best head of each (subject, layer) pair of a model."""
    columns = ["model", "layer", "subject", "n", "heads", "gain"]
    pruned = cells.dropna(subset="head")
    if pruned.empty:
        return pd.DataFrame(columns=columns)
    base = (
        cells[cells["head"].isna()].groupby("subject")["accuracy"].median()
    )  # alike at all layers
    most = pruned["head"].nunique()
    rows = []
    for (_, subject), heads in pruned.groupby(["layer", "subject"], sort=False):
        if len(heads) < LEGIBLE * most or subject not in base:
            continue
        gain = heads["accuracy"].max() - base[str(subject)]
        first = heads.iloc[0]
        rows.append((*first[columns[:4]], len(heads), gain))
    return pd.DataFrame(rows, columns=columns)


def pass_at_n(_: PrintedExhibit, numbers: Numbers) -> Figure:
    """Draw Figure 4: Pass@N against N, on MATH500 and on GSM8K."""
    if not numbers.curves:
        if numbers.source == AS_PUBLISHED:
            return empty("Empty: the paper draws this figure without its values.")
        return empty(f"Empty: Pass@N is {numbers.missing}.")
    image = Image(figsize=(TWO_COLUMNS, 3.1))
    panels = image.subplots(1, 2)
    lines: dict[str, Any] = {}
    told: list[str] = []
    for axes, name in zip(panels, (MATH_PANEL, GSM8K_PANEL), strict=True):
        axes.set(xlabel="N", ylabel="Pass@N (%)")
        found = [curves for curves in numbers.curves if curves.panel == name]
        if not found:
            axes.set_title(name)
            axes.text(0.5, 0.5, numbers.missing, ha="center", transform=axes.transAxes)
            continue
        rows = found[0].rows
        readings = [str(method) for method in rows["method"].unique() if SPRINT in str(method)]
        axes.set_title(f"{name}: {found[0].tested}\n")
        axes.text(0, 1.02, "; ".join(readings), fontsize=6.5, transform=axes.transAxes)
        for method, curve in rows.groupby("method", sort=False):
            label = str(method).partition(":")[0]
            solved = 100 * curve["pass_at_n"]
            (lines[label],) = axes.plot(curve["n"], solved, **_look(label))
            told.append(f"{name}, {method} {solved.iloc[-1]:.1f}%")
        axes.set_xticks(range(1, int(rows["n"].max()) + 1))
        axes.grid(visible=True, axis="x")
    image.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=3)
    alt = f"Line plot of Pass@N. At the largest N: {'; '.join(told)}."
    data = pd.concat([curves.rows.assign(panel=curves.panel) for curves in numbers.curves])
    return Figure(image, alt, data, {})


def _look(label: str) -> dict[str, Any]:
    """Return how a method is drawn: as on the page, with a mark at every N."""
    if label == AS_PRINTED:
        return {"color": PURPLE, "linestyle": (0, (3, 1.5)), "linewidth": 1.6, "marker": "P"}
    line = method_line(label)
    return {"color": line.color, "linestyle": line.dashes, "linewidth": 1.4, "marker": line.marker}


def heatmap(exhibit: PrintedExhibit, numbers: Numbers) -> Figure:
    """Draw Figure 5: accuracy by head (rows) and subject (columns) of one layer, coloured by it."""
    layer, cells = numbers.of_figure()
    words: dict[str, object] = {"models": exhibit.of, "tested": MATH_PANEL, "layer": layer}
    if cells.empty:
        return empty(f"Empty: accuracy by head is {numbers.missing}.")._replace(facts=words)
    model, tested = cells[["model", "tested"]].iloc[0]
    words |= {"models": in_place_of(model, exhibit.of), "tested": tested}
    pruned = cells.dropna(subset="head")
    grid = pruned.pivot(index="head", columns="subject", values="accuracy")
    order = [*_FIGURE_5, *(name for name in grid if name not in _FIGURE_5)]
    grid = grid[[name for name in order if name in grid]]
    base = cells[cells["head"].isna()].groupby("subject")["accuracy"].median()
    values = np.vstack([grid.to_numpy(float), base.reindex(grid.columns).to_numpy(float)])
    image = Image(figsize=(TWO_COLUMNS, 0.2 * len(values) + 1.2))
    axes = image.add_subplot()
    least = np.floor(10 * np.nanmin(values)) / 10
    mesh = axes.imshow(values, cmap=SEQUENTIAL, vmin=least, vmax=1, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        text = "--" if np.isnan(value) else f"{value:.2f}"
        red, green, blue, _ = mesh.to_rgba(value)
        ink = INK if np.isnan(value) else legible((red, green, blue))
        axes.text(column, row, text, ha="center", va="center", fontsize=7, color=ink)
    axes.set_xticks(range(grid.shape[1]), [wrapped(str(name), 14) for name in grid])
    axes.set_yticks(range(len(values)), [*map(str, grid.index), "No Prune"])
    axes.set_ylabel("head pruned")
    axes.axhline(len(grid) - 0.5, color=INK, linewidth=1)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    bar = image.colorbar(mesh, ax=axes, label="accuracy", pad=0.015, fraction=0.04)
    bar.outline.set_visible(False)
    alt = f"Heatmap of accuracy of {model} without one of {len(grid)} heads of layer {layer}."
    return Figure(image, alt, cells, words)
