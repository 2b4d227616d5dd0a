"""The weight of the norm in the score: the accuracy of each mixture, with and without teacher."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Image

from headroom.analysis.compression.numbers import accuracy
from headroom.analysis.compression.published import Published
from headroom.analysis.compression.trial import Trial, mixtures_of
from headroom.analysis.sheet import rows_of
from headroom.analysis.text import points, short
from headroom.figures.drawing import Figure, empty
from headroom.figures.style import TWO_COLUMNS, Theme

COLUMNS = ["source", "distilled", "alpha", "n", "seeds", "change", "change_low", "change_high"]
"""Columns of the numbers: ``source``, this run or the paper, which has no intervals."""

_RUN, _PAPER = "this run", "published"
_APART = 0.006  # that marks of the two lines stand apart, in alpha


def alpha(trial: Trial, beside: Published, colors: Theme) -> Figure:
    """Draw the change of accuracy against the baseline over alpha, and what is published of it.

    Args:
        trial: a compression.
        beside: the paper's numbers.
        colors: the theme to draw in.
    """
    title = f"{short(trial.name)}: what ranks the heads"
    own = _measured(trial)
    if own.empty:
        sentence = f"No two arms of {short(trial.name)} differ in alpha only."
        return empty(title, sentence, COLUMNS)
    printed = [
        beside.alphas(distilled=distilled).assign(source=_PAPER, distilled=distilled)
        for distilled in (True, False)
    ]
    theirs = pd.concat(printed).rename(columns={"published_change": "change"})
    data = pd.concat([own, theirs], ignore_index=True).reindex(columns=COLUMNS)
    image = Image(figsize=(TWO_COLUMNS, 2.9))
    axes = image.add_subplot()
    axes.axhline(0, color=colors.ink, linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=1)
    for distilled, color, marker, dashes in (
        (True, colors.blue, "o", "-"),
        (False, colors.orange[1], "^", (0, (4, 1.2))),
    ):
        name = f"{'with' if distilled else 'without'} distillation"
        for source, faint in ((_RUN, False), (_PAPER, True)):
            rows = data[(data["distilled"] == distilled) & (data["source"] == source)]
            shift = 0 if faint else _APART if distilled else -_APART
            _line(axes, rows, shift, color, marker, dashes, f"{name}, {source}", faint)
    axes.set_xticks(sorted(set(data["alpha"])))
    axes.set_xlabel("alpha: weight of the norm; 0 is entropy alone, 1 is norm alone")
    axes.set_ylabel("accuracy − baseline (points)")
    axes.set_xlim(-0.04, 1.04)
    image.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return Figure(image, title, _caption(trial, own), _alt(trial, own), data)


def _measured(trial: Trial) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for distilled in (True, False):
        found = mixtures_of(trial, distilled=distilled)
        for value, arm in found.items() if len(found) > 1 else ():
            numbers = accuracy(trial, arm)
            given = {name: numbers[name] for name in COLUMNS[3:]}
            rows.append({"source": _RUN, "distilled": distilled, "alpha": value, **given})
    return pd.DataFrame(rows, columns=COLUMNS).dropna(subset="change")


def _line(
    axes: Axes,
    rows: pd.DataFrame,
    shift: float,
    color: str,
    marker: str,
    dashes: Any,
    name: str,
    faint: bool,
) -> None:
    if rows.empty:
        return
    axes.plot(
        rows["alpha"] + shift,
        100 * rows["change"],
        color=color,
        linestyle=dashes,
        marker=marker,
        label=name,
        linewidth=0.8 if faint else 1.4,
        markersize=2.5 if faint else 4.2,
        alpha=0.45 if faint else 1,
        zorder=2 if faint else 3,
    )
    for row in rows_of(rows.dropna(subset="change_low")):
        ends = [100 * row.change_low, 100 * row.change_high]
        axes.plot([row.alpha + shift] * 2, ends, color=color, linewidth=0.9, zorder=3)


def _caption(trial: Trial, own: pd.DataFrame) -> str:
    seeds = int(own["seeds"].max())
    of = f"{seeds} seeds" if seeds > 1 else "one seed"
    return (
        f"{trial.title}: accuracy minus the baseline's on the same n = "
        f"{int(own['n'].max())} test examples, {of}, by alpha, with paired 95% bootstrap intervals "
        "over seeds and examples, each for its own arm. Faint: the paper's accuracies minus its "
        "baseline's, 84.4% (ATHENA-base on Math23k; Table 3a, and Table 4 without distillation), "
        "without intervals. No test is shown."
    )


def _alt(trial: Trial, own: pd.DataFrame) -> str:
    parts = [
        f"{'with' if distilled else 'without'} distillation "
        + ", ".join(
            f"alpha {row.alpha:g} {points(row.change)} ({points(row.change_low)} to "
            f"{points(row.change_high)})"
            for row in rows_of(rows)
        )
        for distilled, rows in own.groupby("distilled", sort=False)
    ]
    return f"Change of accuracy in points over alpha for {trial.title}: {'; '.join(parts)}."
