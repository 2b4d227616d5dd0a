"""Figure 4 of the SPRINT paper: Pass@N of the methods, and SPRINT's gain over each."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Image
from scipy.optimize import isotonic_regression

from headroom.analysis.text import percent, plain, short
from headroom.figures.draw import Figure
from headroom.figures.style import INK, MUTED, SURFACE, TWO_COLUMNS, method_line
from headroom.sprint.methods import BASE, COVER, ORACLE, RIVALS, SPRINT

_COVERED = {
    "by_questions": "test questions",
    "by_draw": "draws of training questions",
    "by_seed": "seeds",
}


def curves(table: pd.DataFrame, paired: pd.DataFrame, questions: int) -> Figure:
    """Draw Pass@N of at most five methods, and SPRINT's paired difference from each method.

    Simpler ways to match questions with heads (`RIVALS`) are only in the data and in tables, to
    keep the figure readable.

    Args:
        table: rows of `headroom.tables.CURVES`.
        paired: columns `headroom.sprint.evaluation.PAIRED`; differences as fractions.
        questions: number of test questions.
    """
    image = Image(figsize=(TWO_COLUMNS, 3.5))
    left, right = image.subplots(1, 2, width_ratios=(1.35, 1))
    limit = int(table.loc[table["method"] == SPRINT, "n"].max())
    within = table[table["n"] <= limit].sort_values("n", kind="stable")
    ends = within.groupby("method", sort=False)["pass_at_n"].last()
    sampled = ends[ends.index.str.startswith("sampling")]
    best = [str(sampled.idxmax())] if len(sampled) else []
    drawn = ends.reindex([SPRINT, *best, COVER, BASE, ORACLE]).dropna()
    for method in drawn.index:
        _curve(left, within[within["method"] == method], method, limit, [SPRINT, *best])
    left.set_xscale("log", base=2)
    powers = _powers(limit)
    left.set_xticks(powers, [str(power) for power in powers])
    left.set_xticks([], minor=True)
    left.set_xlim(1, limit)
    left.set_xlabel("N, answers a question")
    left.set_ylabel("questions with a right answer (%)")
    left.set_title("Pass@N, 95% bands", pad=20)
    colors = {method: method_line(method).color for method in drawn.index}
    name_curves(left, drawn, {name: short(name, 26) for name in drawn.index}, colors, SPRINT)
    _differences(right, paired[~paired["method"].isin([*RIVALS, ORACLE])], limit)
    data = table.merge(paired, on=["method", "n"], how="left", suffixes=("", "_of_difference"))
    ordered = drawn.sort_values(ascending=False).items()
    listed = ", ".join(f"{plain(str(name))} {percent(value)}" for name, value in ordered)
    alt = f"Line plot of Pass@N against N. At N = {limit}: {listed}."
    known = [text for of, text in _COVERED.items() if of in paired and paired[of].any()]
    *others, last = known or ["test questions"]
    covered = f"{', '.join(others)} and {last}" if others else last
    return Figure(image, alt, data, {"n": questions, "covered": covered})


def _powers(limit: int) -> list[int]:
    """Return the powers of two up to a limit, and the limit."""
    return sorted({*(2**power for power in range(limit.bit_length())), limit})


def _curve(axes: Axes, table: pd.DataFrame, method: str, limit: int, banded: Sequence[str]) -> None:
    line = method_line(method)
    look: dict[str, Any] = {"color": line.color, "zorder": line.order}
    path = look | {"linestyle": line.dashes, "linewidth": line.width}
    n, value = table["n"].to_numpy(), 100 * table["pass_at_n"].to_numpy()
    if len(table) == 1 or np.ptp(value) == 0:  # a single answer: the same at every N
        axes.plot([1, limit], [value[-1]] * 2, **path)
        return
    if method in banded:
        band = look | {"alpha": 0.14, "linewidth": 0, "zorder": line.order - 1}
        axes.fill_between(n, 100 * table["low"], 100 * table["high"], **band)
    marked = np.flatnonzero(np.isin(n, _powers(limit))).tolist()
    axes.plot(n, value, marker=line.marker, markevery=marked, clip_on=False, **path)


def name_curves(
    axes: Axes,
    ends: pd.Series,
    titles: Mapping[str, str],
    colors: Mapping[str, str],
    bold: str,
    at: Mapping[Any, float] | None = None,
) -> None:
    """Write names to the right of axes, moved apart where they overlap, with lines to the ends.

    Args:
        axes: the axes, with all curves drawn.
        ends: the curves' last values as fractions, by name.
        titles: what is written for each name.
        colors: the curves' colours.
        bold: the name that stands out.
        at: where the curves end on the x axis; None: at its end.
    """
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    ends = 100 * ends.sort_values()
    places = spaced((ends.to_numpy() - low) / (high - low), 0.058)
    for (name, value), place in zip(ends.items(), places, strict=True):
        color = colors[str(name)]
        look: dict[str, Any] = {"color": color, "va": "center", "fontsize": 7.2}
        look["fontweight"] = "bold" if name == bold else "normal"
        leader = {"arrowstyle": "-", "color": color, "lw": 0.5, "shrinkA": 1, "shrinkB": 0}
        look |= {"xytext": (1.06, place), "textcoords": "axes fraction", "arrowprops": leader}
        end = axes.get_xlim()[1] if at is None else at[name]
        axes.annotate(titles[str(name)], (end, value), **look)


def spaced(wanted: np.ndarray, gap: float) -> np.ndarray:
    """Move ascending positions apart to at least a gap, with the least squared movement."""
    offsets = np.arange(len(wanted)) * gap
    return np.asarray(isotonic_regression(wanted - offsets).x + offsets)


def _differences(axes: Axes, paired: pd.DataFrame, limit: int) -> None:
    methods = list(dict.fromkeys(paired["method"]))
    compared = sorted({1, 4, limit} & set(paired["n"]))
    for place, (n, marker) in enumerate(zip(compared, "osD", strict=False)):
        known = paired[paired["n"] == n].set_index("method")[["difference", "low", "high"]]
        for row, method in enumerate(methods):
            if method not in known.index:  # the method has fewer than N answers
                continue
            color, y = method_line(method).color, row + 0.24 * (place - (len(compared) - 1) / 2)
            value, low, high = known.loc[method].tolist()
            difference(axes, y, (value, low, high), marker, color, filled=low > 0 or high < 0)
        axes.plot([], [], marker, color=MUTED, markersize=4, label=f"N = {n}")
    look: dict[str, Any] = {"handletextpad": 0.1, "columnspacing": 0.8, "ncols": len(compared)}
    axes.legend(loc="lower right", bbox_to_anchor=(1.03, 0.985), **look)
    axes.set_yticks(range(len(methods)), [short(method, 26) for method in methods])
    finish_differences(axes, [method_line(method).color for method in methods])
    axes.set_xlabel("SPRINT − method (points)")
    axes.set_title("Difference (95%)", pad=20)


def difference(
    axes: Axes,
    y: float,
    ends: tuple[float, float, float],
    marker: str,
    color: str,
    *,
    filled: bool,
) -> None:
    """Draw a difference with its interval (value, low, high, as fractions) in points."""
    value, low, high = (100 * each for each in ends)
    axes.plot([low, high], [y, y], color=color, linewidth=1.1)
    fill = color if filled else SURFACE
    axes.plot(value, y, marker, color=color, markerfacecolor=fill, markersize=4)


def finish_differences(axes: Axes, colors: Sequence[str]) -> None:
    """Give axes of differences a zero line, and rows, from above, in the colours of their names."""
    axes.axvline(0, color=INK, linewidth=0.8, zorder=1)
    for label, color in zip(axes.get_yticklabels(), colors, strict=True):
        label.set_color(color)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(len(colors), 1) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
