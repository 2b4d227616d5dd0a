"""The SPRINT paper's Figure 2 from its own Tables 1-4 and Figure 5, beside what chance gives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from headroom.analysis.published import SIZES
from headroom.analysis.sheet import (
    Sheet,
    in_percent,
    in_points,
    interval,
    joined,
    name,
    number,
    rows_of,
)
from headroom.analysis.text import points
from headroom.statistics.selection import Contested, contested, gains_by_chance

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
_LEGIBLE = 0.5  # share of a pair's heads that must be legible


@dataclass(frozen=True)
class Audit:
    """Published gains and what chance gives for them."""

    pairs: pd.DataFrame  # one row an (exhibit, subject, layer) pair
    summary: pd.DataFrame  # one row an exhibit: a table or figure of the paper, of one model


def audit(table: pd.DataFrame, seed: int) -> Audit:
    """Hold the published gains of each table, and of Figure 5, against chance.

    Args:
        table: as `headroom.analysis.published.head_pruning` returns it.
        seed: decides the simulation.
    """
    pairs, summary = [], []
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
        summary.append({"exhibit": exhibit, "model": model, **_summary(read, best, mean, layers)})
    return Audit(pd.concat(pairs, ignore_index=True), pd.DataFrame(summary))


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
