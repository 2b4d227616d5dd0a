"""Figure 4 of the SPRINT paper: Pass@N of the methods, and SPRINT's gain over each."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Image
from scipy.optimize import isotonic_regression

from headroom.analysis.text import percent, plain, short
from headroom.figures.drawing import Figure
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
    limit = _largest_n(table)
    within = table[table["n"] <= limit].sort_values("n", kind="stable")
    ends = within.groupby("method", sort=False).tail(1).set_index("method")["pass_at_n"]
    sampled = ends[ends.index.str.startswith("sampling")]
    best = [str(sampled.idxmax())] if len(sampled) else []
    drawn = [name for name in (SPRINT, *best, COVER, BASE, ORACLE) if name in ends.index]
    _curves(left, within, drawn, [SPRINT, *best], limit)
    _differences(right, paired[~paired["method"].isin(RIVALS)])
    data = table.merge(paired, on=["method", "n"], how="left", suffixes=("", "_of_difference"))
    listed = ", ".join(
        f"{plain(str(name))} {percent(value)}"
        for name, value in ends[drawn].sort_values(ascending=False).items()
    )
    alt = f"Line plot of Pass@N against N. At N = {limit}: {listed}."
    return Figure(image, alt, data, {"n": questions, "covered": _covered(paired)})


def _curves(
    axes: Axes, table: pd.DataFrame, drawn: list[str], banded: list[str], limit: int
) -> None:
    powers = [2**exponent for exponent in range(limit.bit_length()) if 2**exponent <= limit]
    powers = powers if limit in powers else [*powers, limit]
    ends = {}
    for method in drawn:
        line, part = method_line(method), table[table["method"] == method]
        n, value = part["n"].to_numpy(), 100 * part["pass_at_n"].to_numpy()
        ends[method] = value[-1]
        look: dict[str, Any] = {
            "color": line.color,
            "linestyle": line.dashes,
            "linewidth": line.width,
        }
        if len(part) == 1 or np.ptp(value) == 0:  # a single answer: the same at every N
            axes.plot([1, limit], [value[-1]] * 2, **look, zorder=line.order)
            continue
        if method in banded:
            band: dict[str, Any] = {
                "color": line.color,
                "alpha": 0.14,
                "linewidth": 0,
                "zorder": line.order - 1,
            }
            axes.fill_between(n, 100 * part["low"], 100 * part["high"], **band)
        marked = np.flatnonzero(np.isin(n, powers)).tolist()
        marks: dict[str, Any] = {"marker": line.marker, "markevery": marked, "clip_on": False}
        axes.plot(n, value, **look, **marks, zorder=line.order)
    axes.set_xscale("log", base=2)
    axes.set_xticks(powers, [str(power) for power in powers])
    axes.set_xticks([], minor=True)
    axes.set_xlim(1, limit)
    axes.set_xlabel("N, answers a question")
    axes.set_ylabel("questions with a right answer (%)")
    axes.set_title("Pass@N, 95% bands", pad=20)
    label_right(axes, [(name, limit, ends[name], method_line(name).color) for name in ends])


def label_right(axes: Axes, marks: Sequence[tuple[str, float, float, str]]) -> None:
    """Write names to the right of axes, moved apart where they overlap, with lines to their marks.

    Args:
        axes: axes with final limits.
        marks: name, position (x, y) and colour of each.
    """
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    marks = sorted(marks, key=lambda mark: mark[2])
    wanted = np.array([(y - low) / (high - low) for _, _, y, _ in marks])
    for (name, x, y, color), place in zip(marks, spaced(wanted, 0.058), strict=True):
        axes.annotate(
            short(name, 26),
            (x, y),
            xytext=(1.06, place),
            textcoords="axes fraction",
            va="center",
            fontsize=7.2,
            color=color,
            fontweight="bold" if name == SPRINT else "normal",
            arrowprops={"arrowstyle": "-", "color": color, "lw": 0.5, "shrinkA": 1, "shrinkB": 0},
        )


def spaced(wanted: np.ndarray, gap: float) -> np.ndarray:
    """Move ascending positions apart to at least a gap, with the least squared movement."""
    offsets = np.arange(len(wanted)) * gap
    return np.asarray(isotonic_regression(wanted - offsets).x + offsets)


def _differences(axes: Axes, paired: pd.DataFrame) -> None:
    methods = [name for name in dict.fromkeys(paired["method"]) if name != ORACLE]
    markers = dict(zip(_compared(paired["n"]), "osD", strict=False))
    axes.axvline(0, color=INK, linewidth=0.8, zorder=1)
    known = paired.set_index(["method", "n"])[["difference", "low", "high"]]
    for row, method in enumerate(methods):
        color = method_line(method).color
        for place, (n, marker) in enumerate(markers.items()):
            if (method, n) not in known.index:  # the method has fewer than N answers
                continue
            y = row + 0.24 * (place - (len(markers) - 1) / 2)
            value, low, high = 100 * known.loc[(method, n)].to_numpy(float)
            axes.plot([low, high], [y, y], color=color, linewidth=1.1)
            fill = color if low > 0 or high < 0 else SURFACE
            axes.plot(value, y, marker, color=color, markerfacecolor=fill, markersize=4)
    for n, marker in markers.items():
        axes.plot([], [], marker, color=MUTED, markersize=4, label=f"N = {n}")
    look = {"ncols": len(markers), "handletextpad": 0.1, "columnspacing": 0.8}
    axes.legend(loc="lower right", bbox_to_anchor=(1.03, 0.985), **look)
    axes.set_yticks(range(len(methods)), [short(method, 26) for method in methods])
    for label, method in zip(axes.get_yticklabels(), methods, strict=True):
        label.set_color(method_line(method).color)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(methods) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.set_xlabel("SPRINT − method (points)")
    axes.set_title("Difference (95%)", pad=20)


def _covered(paired: pd.DataFrame) -> str:
    """Return what the paired differences' intervals account for (`headroom.sprint.evaluation`)."""
    known = [text for of, text in _COVERED.items() if of in paired and paired[of].any()]
    *others, last = known or ["test questions"]
    return f"{', '.join(others)} and {last}" if others else last


def _compared(numbers: Iterable[int]) -> list[int]:
    """Return the N whose differences are drawn: 1, 4 and the largest, as far as available."""
    available = set(numbers)
    return sorted({1, 4, max(available, default=0)} & available)


def _largest_n(table: pd.DataFrame) -> int:
    """Return the largest N of SPRINT, or of any method if SPRINT is missing."""
    own = table[table["method"] == SPRINT]
    return int((own if len(own) else table)["n"].max())
