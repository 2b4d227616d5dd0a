"""Accuracy against parameters: the method at every ratio, and every arm beside it."""

from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Image
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import ScaledTranslation

from headroom.analysis.compression.numbers import accuracy
from headroom.analysis.compression.trial import (
    BASELINE,
    METHOD,
    Trial,
    label,
    mixtures_of,
    ratios_of,
)
from headroom.analysis.sheet import rows_of
from headroom.analysis.text import percent, short
from headroom.config.compression import Compression
from headroom.figures.curves import spaced
from headroom.figures.drawing import Figure
from headroom.figures.style import TWO_COLUMNS, Theme

COLUMNS = ["arm", "quantised", "kind", "ratio", "whole", "n", "seeds", "accuracy", "low", "high"]
"""Columns of the numbers: ``whole``, parameters of encoder and thought head; the rest as in the
tables."""

_UNITS = ((1e9, "B"), (1e6, "M"), (1e3, "k"))
_BITS = 4  # points that marks of eight bits stand to the right
_HEADROOM = 20  # points above a panel, for ratios and sizes
_TEXT = 0.1  # of a panel's width, for a ratio


@dataclass(frozen=True)
class _Look:
    """How the arms of a kind are drawn."""

    color: str
    marker: str


def pareto(trial: Trial, colors: Theme) -> Figure:
    """Draw accuracy with its 95% interval against parameters, and arm by arm.

    Args:
        trial: a compression.
        colors: the theme to draw in.
    """
    data = _points(trial)
    kinds = _looks(colors)
    image = Image(figsize=(TWO_COLUMNS, 3.6))
    shown = data[data["arm"].isin(_named(trial))]
    left, right = image.subplots(
        1, 2, sharey=True, width_ratios=(1.0, max(0.5, 0.13 * shown["arm"].nunique()))
    )
    _curve(left, data, trial, kinds, colors)
    _strip(right, shown, kinds, colors)
    base = data[(data["arm"] == BASELINE) & ~data["quantised"]]
    for axes in (left, right):
        for value in 100 * base["accuracy"]:
            axes.axhline(value, color=colors.ink, linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=1)
    left.set_ylabel("accuracy (%)")
    present = [kind for kind in kinds if kind in set(data["kind"])]
    handles = [
        left.plot([], [], ls="", marker=kinds[kind].marker, color=kinds[kind].color, label=kind)[0]
        for kind in present
    ]
    if data["quantised"].any():
        handles += left.plot(
            [],
            [],
            ls="",
            marker="o",
            color=colors.muted,
            mfc=colors.surface,
            label="weights of 8 bits",
        )
    image.legend(handles=handles, loc="outside upper left", ncols=4, columnspacing=1.2)
    title = f"{short(trial.name)}: accuracy against parameters"
    return Figure(image, title, _caption(trial, data), _alt(trial, data), data)


def _points(trial: Trial) -> pd.DataFrame:
    """Return what is drawn: `COLUMNS`, a row an arm and number of bits."""
    rows: list[dict[str, Any]] = []
    for arm, settings in trial.settings.items():
        for quantised in (False, True):
            if trial.right(arm, quantised=quantised).empty:
                continue
            found = accuracy(trial, arm, quantised=quantised)
            rows.append(
                {
                    "arm": arm,
                    "quantised": quantised,
                    "kind": _kind(arm, settings),
                    "ratio": settings.ratio,
                    "whole": trial.parameters(arm),
                    **{name: found[name] for name in ("n", "seeds", "accuracy", "low", "high")},
                }
            )
    return pd.DataFrame(rows, columns=COLUMNS)


def _named(trial: Trial) -> list[str]:
    """Return the arms that are listed one by one: all but other ratios and mixtures."""
    ratios = set(ratios_of(trial).values()) - {METHOD}
    mixtures = {
        name
        for distilled in (True, False)
        for name in mixtures_of(trial, distilled=distilled).values()
        if name in trial.study.variations
    }
    arms = [arm for arm in trial.settings if arm not in ratios | mixtures]
    return sorted(arms, key=lambda arm: -trial.parameters(arm))


def _kind(arm: str, settings: Compression) -> str:
    """Say in a word what sets an arm apart."""
    if arm == BASELINE:
        return "nothing removed"
    if settings.scratch:
        return "from scratch"
    if not settings.ratio:
        return "nothing removed"
    if settings.distillation.teacher == "none":
        return "no teacher"
    if settings.schedule == "one_shot":
        return "one shot"
    return "recursive teacher" if settings.distillation.teacher == "recursive" else "first teacher"


def _looks(colors: Theme) -> dict[str, _Look]:
    return {
        "nothing removed": _Look(colors.ink, "s"),
        "recursive teacher": _Look(colors.blue, "o"),
        "first teacher": _Look(colors.purple, "P"),
        "one shot": _Look(colors.green, "D"),
        "no teacher": _Look(colors.orange[1], "^"),
        "from scratch": _Look(colors.vermillion, "X"),
    }


def _curve(
    axes: Axes, data: pd.DataFrame, trial: Trial, looks: dict[str, _Look], colors: Theme
) -> None:
    """Draw the method at all ratios as a curve, with its ratios, and the other arms as marks."""
    ratios = ratios_of(trial)
    family = data[data["arm"].isin([BASELINE, *ratios.values()])]
    line = family[~family["quantised"]].sort_values("whole")
    axes.plot(line["whole"], 100 * line["accuracy"], color=colors.blue, lw=1.0, zorder=2)
    others = data[data["arm"].isin(_named(trial)) & ~data["arm"].isin(family["arm"])]
    for row in rows_of(others[~others["quantised"]]):
        _mark(axes, row.whole, row, looks, colors, bare=True)
    for row in rows_of(family):
        _mark(axes, row.whole, row, looks, colors)
    axes.margins(x=0.06, y=0.08)
    if ratios:
        _label_ratios(axes, line[line["ratio"] > 0], colors)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _count(value)))
    axes.set_xlabel("parameters of the whole model")
    axes.set_title("by ratio of heads removed", pad=_HEADROOM)


def _label_ratios(axes: Axes, line: pd.DataFrame, colors: Theme) -> None:
    """Write each ratio above the panel, moved aside where two would touch."""
    low, high = axes.get_xlim()
    wanted = line["whole"].to_numpy(float)
    for x, place, ratio in zip(
        wanted, spaced(wanted, _TEXT * (high - low)), line["ratio"], strict=True
    ):
        axes.annotate(
            f"{100 * ratio:g}%",
            (x, 1.0),
            xycoords=axes.get_xaxis_transform(),
            xytext=(place, 1.045),
            textcoords=axes.get_xaxis_transform(),
            ha="center",
            va="bottom",
            fontsize=6.5,
            color=colors.muted,
            arrowprops={"arrowstyle": "-", "color": colors.muted, "linewidth": 0.5, "shrinkB": 0},
        )


def _strip(axes: Axes, shown: pd.DataFrame, looks: dict[str, _Look], colors: Theme) -> None:
    """Draw the arms side by side, those of equal size together."""
    arms = list(dict.fromkeys(shown.sort_values("whole", ascending=False, kind="stable")["arm"]))
    places = {arm: place for place, arm in enumerate(arms)}
    for row in rows_of(shown):
        _mark(axes, places[row.arm], row, looks, colors)
    sizes = shown.drop_duplicates("arm").set_index("arm")["whole"]
    start = 0
    for size, group in sizes.loc[arms].groupby(sizes.loc[arms], sort=False):
        middle = start + (len(group) - 1) / 2
        axes.text(
            middle,
            1.045,
            _count(size),
            transform=axes.get_xaxis_transform(),
            ha="center",
            va="bottom",
            fontsize=6.5,
            color=colors.muted,
        )
        start += len(group)
        if start < len(arms):
            axes.axvline(start - 0.5, color=colors.muted, linewidth=0.6)
    axes.set_xticks(
        range(len(arms)),
        [short(label(arm), 26) for arm in arms],
        rotation=45,
        ha="right",
        rotation_mode="anchor",
    )
    axes.tick_params(axis="x", length=0, labelsize=7)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(-0.6, len(arms) - 0.4)
    axes.set_title("by arm", pad=_HEADROOM)


def _mark(
    axes: Axes, x: float, row: Any, looks: dict[str, _Look], colors: Theme, *, bare: bool = False
) -> None:
    """Draw a mark and its interval; one of eight bits is hollow, and stands to the right."""
    look = looks[row.kind]
    move = axes.transData
    if row.quantised and axes.figure is not None:
        move += ScaledTranslation(_BITS / 72, 0, axes.figure.dpi_scale_trans)
    if not bare:
        axes.plot([x, x], [100 * row.low, 100 * row.high], color=look.color, lw=0.9, transform=move)
    axes.plot(
        x,
        100 * row.accuracy,
        marker=look.marker,
        markersize=3.0 if bare else 4.2,
        color=look.color,
        mfc=colors.surface if row.quantised else look.color,
        alpha=0.55 if bare else 1,
        lw=0,
        transform=move,
        zorder=3,
    )


def _count(parameters: float) -> str:
    """Write a number of parameters with its unit, as in 1.55M."""
    unit, letter = next((own for own in _UNITS if parameters >= own[0]), (1, ""))
    return f"{parameters / unit:.4g}{letter}"


def _caption(trial: Trial, data: pd.DataFrame) -> str:
    n, seeds = int(data["n"].iloc[0]), int(data["seeds"].max())
    of = f"means over {seeds} seeds" if seeds > 1 else "one seed"
    return (
        f"{trial.title}: share of n = {n} test examples answered right, {of}, with 95% "
        "bootstrap intervals (over seeds and examples), each for its own arm; differences of "
        "arms are paired and have narrower ones, see the tables. Left: the method at every ratio "
        "of heads removed, against parameters of encoder and thought head; small marks are "
        "arms of the right. Right: arms of equal size together, sizes above. Hollow marks: weights "
        "of eight bits, as many. The dotted line is the unpruned solver. No test is shown."
    )


def _alt(trial: Trial, data: pd.DataFrame) -> str:
    parts = [
        f"{label(row.arm)}{' in eight bits' if row.quantised else ''} {percent(row.accuracy)} "
        f"({percent(row.low)} to {percent(row.high)}) at {_count(row.whole)} parameters"
        for row in rows_of(data)
    ]
    return f"Accuracy against parameters for {trial.title}. {'; '.join(parts)}."
