"""The SPRINT paper's Figure 2 from its own Tables 1-4 and Figure 5, beside what chance gives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Image

from headroom.figures.drawing import Figure
from headroom.figures.published import SIZES
from headroom.figures.sheet import (
    Sheet,
    in_percent,
    in_points,
    interval,
    joined,
    name,
    number,
    rows_of,
)
from headroom.figures.style import TWO_COLUMNS, Theme
from headroom.figures.text import points, wrapped
from headroom.figures.violins import mark_median, spread_out
from headroom.statistics.contested import Contested, contested, gains_by_chance

METHOD = (
    "By chance: outcomes of single questions are not published, so base model and heads are taken "
    "to agree on all questions but some contested ones, which each answers like a fair coin, as "
    "many as explain the spread between the heads of a layer (4,000 simulations; No Prune is one "
    "model for all layers). What heads keep from subject to subject is not counted as noise, "
    "heads that surely hurt are left out; an effect of one head on one subject alone looks like "
    "noise, so chance is an upper bound. Where cells are missing the published maximum is a lower "
    "bound, and chance is taken over as many heads as are legible."
)
"""How chance is computed, and its limits."""

_RESAMPLES = 4000
_APART = 0.24  # of a violin from its tick
_LEGIBLE = 0.5  # share of a pair's heads that must be legible


@dataclass(frozen=True)
class Audit:
    """Published gains and what chance gives for them."""

    pairs: pd.DataFrame  # one row an (exhibit, subject, layer) pair
    summary: pd.DataFrame  # one row an exhibit: a table or figure of the paper, of one model
    chance: dict[str, Float[np.ndarray, "resamples pairs"]]  # best gains by exhibit


def audit(table: pd.DataFrame, seed: int) -> Audit:
    """Hold the published gains of each table, and of Figure 5, against chance.

    Args:
        table: as `headroom.figures.published.head_pruning` returns it.
        seed: decides the simulation.
    """
    pairs, summary, chance = [], [], {}
    for (exhibit, model), part in table.groupby(["exhibit", "model"], sort=False):
        read, layers = _pairs(part)
        best, mean = gains_by_chance(
            read["n"].to_numpy(),
            read["contested"].to_numpy(),
            read["ordinary"].to_numpy(),
            pd.factorize(read["subject"])[0],
            _RESAMPLES,
            seed,
        )
        read = read.assign(
            exhibit=str(exhibit),
            model=str(model),
            by_chance=best.mean(axis=0),
            quantile=np.quantile(best, 0.95, axis=0),
            over_mean_by_chance=(best - mean).mean(axis=0),
        )
        read["beyond"] = read["gain"] > read["quantile"] + 1e-9
        pairs.append(read)
        chance[str(exhibit)] = best
        summary.append({"exhibit": exhibit, "model": model, **_summary(read, best, mean, layers)})
    return Audit(pd.concat(pairs, ignore_index=True), pd.DataFrame(summary), chance)


def _pairs(part: pd.DataFrame) -> tuple[pd.DataFrame, list[Contested]]:
    """Return the pairs of a model that can be judged, and the spread of each layer."""
    base = part[part["head"].isna()].set_index(["layer", "subject"])["accuracy"]
    pruned = part[part["head"].notna()]
    all_heads = pruned["head"].max() + 1
    rows, layers = [], []
    for layer, cells in pruned.groupby("layer"):
        grid = cells.pivot(index="head", columns="subject", values="accuracy")
        sizes = np.array([SIZES[subject] for subject in grid.columns.astype(str)])
        found = contested(grid.to_numpy(float), sizes)
        layers.append(found)
        for subject in grid.columns.astype(str):
            legible = grid[subject].dropna()
            if len(legible) < _LEGIBLE * all_heads or (layer, subject) not in base.index:
                continue
            ordinary = grid[subject][found.ordinary].dropna()
            own, mean = base.loc[(layer, subject)], ordinary.mean()
            rows.append(
                {
                    "layer": layer,
                    "subject": subject,
                    "n": SIZES[subject],
                    "heads": len(legible),
                    "missing": int(all_heads - len(legible)),
                    "ordinary": len(ordinary),
                    "base": own,
                    "accuracy": mean,
                    "gain": legible.max() - own,
                    "over_mean": legible.max() - mean,
                    "mean_gain": mean - own,
                    "contested": 4 * mean * (1 - mean) * found.noise * SIZES[subject],
                }
            )
    return pd.DataFrame(rows), layers


def _summary(
    read: pd.DataFrame, best: np.ndarray, mean: np.ndarray, layers: Sequence[Contested]
) -> dict[str, Any]:
    medians = np.median(best, axis=1)
    weights = read["n"] / read["n"].sum()
    means = mean @ weights.to_numpy()
    own = float(np.dot(read["mean_gain"], weights))
    low, high = own - np.quantile(means, [0.975, 0.025])
    return {
        "pairs": len(read),
        "complete": int((read["missing"] == 0).sum()),
        "gain": read["gain"].median(),
        "by_chance": medians.mean(),
        "chance_low": np.quantile(medians, 0.025),
        "chance_high": np.quantile(medians, 0.975),
        "beyond": int(read["beyond"].sum()),
        "over_mean": read["over_mean"].mean(),
        "over_mean_by_chance": read["over_mean_by_chance"].mean(),
        "mean_gain": own,
        "mean_low": low,
        "mean_high": high,
        "hurt": int(sum((~layer.ordinary).sum() for layer in layers)),
        "contested": read["contested"].sum() / read["n"].sum(),
        "common": float(
            sum(layer.common for layer in layers) / sum(layer.spread for layer in layers)
        ),
    }


def audit_sheet(summary: pd.DataFrame) -> Sheet:
    """Return the audit's summary as text."""
    columns = (
        ("exhibit", name("exhibit")),
        ("model", name("model")),
        ("pairs", number("pairs")),
        ("complete", number("complete")),
        ("median gain", in_points("gain")),
        ("by chance", interval("by_chance", "chance")),
        ("beyond 95%", joined(number("beyond"), " of ", number("pairs"))),
        ("best − mean", in_points("over_mean")),
        ("by chance", in_points("over_mean_by_chance")),
        ("mean − base", interval("mean_gain", "mean")),
        ("hurt", number("hurt")),
        ("contested (%)", in_percent("contested")),
        ("repeats (%)", in_percent("common")),
    )
    caption = (
        "The published gains of the best head against chance, in percentage points; brackets are "
        "95% intervals. Pairs: (subject, layer) pairs with half of their heads legible; complete: "
        "with all. Beyond 95%: pairs whose gain exceeds the 95% quantile of chance; 5% would. "
        "Mean: of the heads that do not surely hurt, of which hurt is the number. Contested: share "
        "of questions that base and heads answer by a coin; repeats: share of the spread between "
        "heads that is alike from subject to subject. " + METHOD
    )
    return Sheet.of(summary, columns, caption, texts=2)


def audit_figure(found: Audit, colors: Theme) -> Figure:
    """Draw the published gains of each model beside those that chance alone gives.

    Args:
        found: as `audit` returns it.
        colors: the theme to draw in.
    """
    image = Image(figsize=(TWO_COLUMNS, 3.6))
    axes = image.add_subplot()
    axes.axhline(0, color=colors.ink, linewidth=0.8, zorder=1)
    for position, row in enumerate(rows_of(found.summary)):
        read = found.pairs[found.pairs["exhibit"] == row.exhibit]
        values = 100 * read["gain"].to_numpy(float)
        _violin(axes, values, position - _APART, colors.blue)
        chance = 100 * found.chance[row.exhibit].ravel()
        inner = chance[
            (chance >= np.quantile(chance, 0.01)) & (chance <= np.quantile(chance, 0.99))
        ]
        _violin(axes, inner, position + _APART, colors.muted)
        shifts = spread_out(values, 0.12)
        for beyond, look in ((False, "none"), (True, colors.blue)):
            chosen = read["beyond"].to_numpy() == beyond
            axes.scatter(
                position - _APART + shifts[chosen],
                values[chosen],
                s=11,
                facecolors=look,
                edgecolors=colors.blue,
                linewidths=0.7,
                zorder=3,
            )
        low, high = 100 * row.chance_low, 100 * row.chance_high
        axes.vlines(position + _APART, low, high, color=colors.ink, linewidth=1, zorder=3)
        for x, value in ((position - _APART, row.gain), (position + _APART, row.by_chance)):
            mark_median(axes, x, 100 * value, colors)
    axes.set_xticks(
        range(len(found.summary)),
        [
            f"{row.exhibit}\n{wrapped(row.model, 16)}\n{row.beyond} of {row.pairs} pairs\nbeyond"
            for row in rows_of(found.summary)
        ],
    )
    axes.set_xlim(-0.55, len(found.summary) - 0.3)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("best head − No Prune (percentage points)")
    _legend(image, axes, colors)
    title = "Published gains, and what chance alone gives"
    data = found.pairs.drop(columns="accuracy")
    return Figure(image, title, _caption(found), _alt(found), data)


def sentences(summary: pd.DataFrame) -> list[str]:
    """Say for each table of the paper, and Figure 5, what it shows.

    Args:
        summary: that of an `Audit`, or its CSV file read again.
    """
    return [
        f"{row.exhibit}, {row.model}: {row.pairs} (subject, layer) pairs read, {row.complete} "
        f"complete. The best head gains {points(row.gain)} points at the median; by chance alone "
        f"{points(row.by_chance)} (95% interval {points(row.chance_low)} to "
        f"{points(row.chance_high)}). {row.beyond} of {row.pairs} pairs are beyond the 95% "
        f"quantile of chance, where {0.05 * row.pairs:.1f} would be by chance. The mean head is "
        f"{points(row.mean_gain)} points from the base model ({points(row.mean_low)} to "
        f"{points(row.mean_high)})."
        for row in rows_of(summary)
    ]


def _violin(axes: Axes, values: np.ndarray, x: float, color: str) -> None:
    bodies: Any = axes.violinplot(values, [x], widths=0.3, showextrema=False, bw_method=0.35)[
        "bodies"
    ]
    bodies[0].set(facecolor=color, edgecolor=color, alpha=0.25, linewidth=0.6)


def _legend(image: Image, axes: Axes, colors: Theme) -> None:
    looks = (
        ("none", colors.blue, "published gain of a (subject, layer) pair"),
        (colors.blue, colors.blue, "beyond the 95% quantile of chance"),
        (colors.muted, colors.muted, "chance alone"),
    )
    handles = [
        axes.scatter([], [], s=24, facecolors=face, edgecolors=edge, linewidths=0.8, label=label)
        for face, edge, label in looks
    ]
    image.legend(handles=handles, loc="outside upper left", ncols=3, columnspacing=1.2)


def _caption(found: Audit) -> str:
    read = "; ".join(
        f"{row.exhibit} {row.pairs} pairs ({row.complete} complete)"
        for row in rows_of(found.summary)
    )
    return (
        "The SPRINT paper's Figure 2 from its own Tables 1-4, and the same from its Figure 5: "
        "maximum over heads of accuracy minus No Prune, for each (subject, layer) pair with at "
        "least half of its heads legible. Beside it the same maximum where pruning does nothing. "
        "Bars are medians over pairs; the vertical line is the 95% interval of the median by "
        "chance, the grey violin holds the "
        f"inner 98% of chance. {METHOD} "
        f"Pairs read: {read}."
    )


def _alt(found: Audit) -> str:
    parts = ". ".join(
        f"{row.exhibit}, {row.model}: published median {points(row.gain)}, by chance "
        f"{points(row.by_chance)}, {row.beyond} of {row.pairs} pairs beyond the 95% quantile"
        for row in rows_of(found.summary)
    )
    return f"Violin plots of gains in percentage points, published beside chance alone. {parts}."
