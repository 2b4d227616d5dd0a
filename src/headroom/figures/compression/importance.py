"""The scores that heads were first ranked by, and when each head went."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Image

from headroom.analysis.compression.trial import METHOD, History, Trial, label
from headroom.analysis.text import short
from headroom.figures.drawing import Figure, empty
from headroom.figures.style import TWO_COLUMNS, Theme, legible, sequential
from headroom.variants import Variant

COLUMNS = ["layer", "head", "score", "removed"]
"""Columns of the numbers: ``removed``, the round before which the head went; empty if it stays."""

_CELL = 0.27  # inches


@dataclass(frozen=True)
class _Ranking:
    """What the first removal of an arm ranked, and which removal took each head."""

    arm: str
    scores: Mapping[Variant, float]
    removed: Mapping[Variant, int]
    events: str
    """What removals are counted in."""


def importance(trial: Trial, colors: Theme) -> Figure:
    """Draw the scores of all heads before any went, and in which round each went.

    Args:
        trial: a compression; of its arms the method's is drawn, or the first that removed heads.
        colors: the theme to draw in.
    """
    title = f"{short(trial.name)}: importance of the heads"
    ranking = _ranking(trial)
    if ranking is None:
        return empty(title, f"No arm of {short(trial.name)} ranked heads.", COLUMNS)
    data = pd.DataFrame(
        [(v.layer, v.head, score, ranking.removed.get(v)) for v, score in ranking.scores.items()],
        columns=COLUMNS,
    ).astype({"removed": "Int64"})
    grid = data.pivot(index="layer", columns="head", values="score")
    gone = data.pivot(index="layer", columns="head", values="removed")
    layers, heads = grid.shape
    image = Image(
        figsize=(min(TWO_COLUMNS, max(3.4, _CELL * heads + 1.6)), 0.8 * _CELL * layers + 1.1)
    )
    axes = image.add_subplot()
    colormap = sequential(colors)
    scores = grid.to_numpy(float)
    scale = Normalize(*_limits(scores))
    mesh = axes.imshow(scores, cmap=colormap, norm=scale, aspect="auto")
    for (row, column), number in np.ndenumerate(gone.to_numpy(object)):
        if not pd.isna(number):
            ink = legible(colormap(scale(scores[row, column]))[:3])
            axes.text(
                column,
                row,
                str(number),
                ha="center",
                va="center",
                fontsize=6.5,
                fontweight="bold",
                color=ink,
            )
    axes.set_xticks(range(heads), grid.columns)
    axes.set_yticks(range(layers), grid.index)
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    axes.tick_params(length=0, labelsize=7)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    bar = image.colorbar(mesh, ax=axes, pad=0.02, fraction=0.05)
    bar.outline.set_visible(False)
    bar.set_label("score; low goes first")
    bar.ax.tick_params(labelsize=7)
    return Figure(image, title, _caption(trial, ranking), _alt(trial, ranking), data)


def _ranking(trial: Trial) -> _Ranking | None:
    """Return the ranking of the method, or of the first arm that has one."""
    for arm in (METHOD, *trial.settings):
        if arm not in trial.settings:
            continue
        found = _removals(trial.first_history(arm), trial.settings[arm].schedule == "literal")
        if found:
            removed = {head: number for number, heads, _ in found for head in heads}
            literal = trial.settings[arm].schedule == "literal"
            return _Ranking(arm, found[0][2], removed, "removal" if literal else "round")
    return None


def _removals(
    history: History, literal: bool
) -> list[tuple[int, list[Variant], dict[Variant, float]]]:
    """Return each removal's number, heads and scores: the round's, or, in one round, its own."""
    removals = [
        (number, removal)
        for number, each in enumerate(history["rounds"], start=1)
        for removal in each["removals"]
        if removal["scores"]
    ]
    return [
        (
            place if literal else number,
            [Variant.parse(head) for head in removal["heads"]],
            {Variant.parse(head): score for head, score in removal["scores"].items()},
        )
        for place, (number, removal) in enumerate(removals, start=1)
    ]


def _limits(scores: np.ndarray) -> tuple[float, float]:
    low, high = float(np.nanmin(scores)), float(np.nanmax(scores))
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _caption(trial: Trial, ranking: _Ranking) -> str:
    importance = trial.settings[ranking.arm].importance
    how = f"criterion {importance.criterion}"
    if importance.criterion == "mixed":
        how = f"alpha = {importance.alpha:g} of weight norm, the rest attention entropy"
    return (
        f"{trial.title}, arm {label(ranking.arm)}, seed {trial.study.seeds[0]}: "
        f"each head's score before any head went ({how}). Numbers: the {ranking.events} that took "
        "the head; later ones ranked what was left anew, so that their heads need not be the next "
        f"lowest here. n = {len(ranking.scores)} heads of one seed: no interval and no test."
    )


def _alt(trial: Trial, ranking: _Ranking) -> str:
    ordered = sorted(ranking.scores.items(), key=lambda item: item[1])
    rounds = sorted(set(ranking.removed.values()))
    taken = "; ".join(
        f"{ranking.events} {number}: "
        + ", ".join(
            str(head) for head in sorted(ranking.removed) if ranking.removed[head] == number
        )
        for number in rounds
    )
    (lowest, low), (highest, high) = ordered[0], ordered[-1]
    return (
        f"Heatmap of {len(ordered)} heads by layer and head for {trial.title}. The "
        f"lowest score is {low:.3g} of {lowest}, the highest {high:.3g} of {highest}. Removed in "
        f"{taken}."
    )
