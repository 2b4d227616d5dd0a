"""Figure 4 of the SPRINT paper: Pass@N of every method, and what SPRINT gains over each."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Image

from headroom.analysis.findings import covered, largest_n, told
from headroom.analysis.text import percent, plain, short
from headroom.figures.drawing import Figure
from headroom.figures.style import TWO_COLUMNS, Line, Theme, method_line
from headroom.planning.exhibits import words
from headroom.sprint.methods import ORACLE, RIVALS, SPRINT


def curves(
    table: pd.DataFrame, paired: pd.DataFrame, selector: str, questions: int, colors: Theme
) -> Figure:
    """Draw Pass@N with 95% bands, and the paired differences to SPRINT.

    Simpler ways to match questions with heads stand in the data and in tables: lines enough.

    Args:
        table: rows of `headroom.tables.CURVES`.
        paired: columns `headroom.sprint.evaluation.PAIRED`; differences as fractions.
        selector: name of the selector.
        questions: how many test questions there are.
        colors: the theme to draw in.
    """
    image = Image(figsize=(TWO_COLUMNS, 3.7))
    left, right = image.subplots(1, 2, width_ratios=(1.35, 1))
    drawn, compared = (part[~part["method"].isin(RIVALS)] for part in (table, paired))
    _curves(left, drawn, colors)
    _differences(right, compared, colors)
    data = table.merge(paired, on=["method", "n"], how="left", suffixes=("", "_of_difference"))
    said = words("pass_at_n", of=short(selector), n=questions, covered=covered(paired))
    return Figure(image, *said, _alt(table), data)


def _curves(axes: Axes, table: pd.DataFrame, colors: Theme) -> None:
    limit = largest_n(table)
    ends: dict[str, float] = {}
    for method in dict.fromkeys(table["method"].tolist()):
        line = method_line(method, colors)
        part = table[(table["method"] == method) & (table["n"] <= limit)].sort_values("n")
        n, value = part["n"].to_numpy(), 100 * part["pass_at_n"].to_numpy()
        ends[method] = value[-1]
        if len(part) == 1 or np.ptp(value) == 0:  # one model, one answer: the same at every N
            axes.plot([1, limit], [value[-1]] * 2, **_look(line), zorder=line.order)
            continue
        axes.fill_between(
            n,
            100 * part["low"],
            100 * part["high"],
            color=line.color,
            alpha=0.16 if method == SPRINT else 0.08,
            linewidth=0,
            zorder=line.order - 1,
        )
        marked = [int(np.argmax(n == power)) for power in _powers(limit) if power in n]
        axes.plot(
            n,
            value,
            **_look(line),
            marker=line.marker,
            markevery=marked,
            zorder=line.order,
            clip_on=False,
        )
    axes.set_xscale("log", base=2)
    powers = _powers(limit)
    axes.set_xticks(powers, [str(power) for power in powers])
    axes.set_xticks([], minor=True)
    axes.set_xlim(1, limit)
    axes.set_xlabel("N, answers a question")
    axes.set_ylabel("questions with a right answer (%)")
    axes.set_title("Pass@N, 95% bands", pad=20)
    _label_ends(axes, ends, colors)


def _label_ends(axes: Axes, ends: dict[str, float], colors: Theme) -> None:
    """Write each method's name beside the end of its line, moved apart where they collide."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    names = sorted(ends, key=lambda name: ends[name])
    wanted = np.array([(ends[name] - low) / (high - low) for name in names])
    for name, height, place in zip(names, wanted, spaced(wanted, 0.058), strict=True):
        line = method_line(name, colors)
        axes.annotate(
            short(name, 26),
            (1.0, height),
            xytext=(1.06, place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            va="center",
            fontsize=7.2,
            color=line.color,
            fontweight="bold" if name == SPRINT else "normal",
            arrowprops={
                "arrowstyle": "-",
                "color": line.color,
                "lw": 0.5,
                "shrinkA": 1,
                "shrinkB": 0,
            },
        )


def spaced(wanted: np.ndarray, gap: float) -> np.ndarray:
    """Move ascending positions apart to at least a gap, as little as needed (least squares).

    Positions closer than the gap are pooled around their mean (pool adjacent violators).
    """
    offsets = np.arange(len(wanted)) * gap
    blocks: list[tuple[float, int]] = []  # mean and size of what is pooled
    for value in wanted - offsets:
        mean, size = float(value), 1
        while blocks and blocks[-1][0] > mean:
            other, count = blocks.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        blocks.append((mean, size))
    return np.concatenate([np.full(size, mean) for mean, size in blocks]) + offsets


def _differences(axes: Axes, paired: pd.DataFrame, colors: Theme) -> None:
    methods = [name for name in dict.fromkeys(paired["method"]) if name != ORACLE]
    shown = told(paired["n"])
    markers = dict(zip(shown, ("o", "s", "D"), strict=False))
    axes.axvline(0, color=colors.ink, linewidth=0.8, zorder=1)
    for row, method in enumerate(methods):
        line = method_line(method, colors)
        for place, n in enumerate(shown):
            found = paired[(paired["method"] == method) & (paired["n"] == n)]
            if found.empty:
                continue
            y = row + 0.24 * (place - (len(shown) - 1) / 2)
            value, low, high = (
                100 * float(found[c].iloc[0]) for c in ("difference", "low", "high")
            )
            clear = low > 0 or high < 0
            axes.plot([low, high], [y, y], color=line.color, linewidth=1.1)
            fill = line.color if clear else colors.surface
            axes.plot(value, y, markers[n], color=line.color, markerfacecolor=fill, markersize=4)
    for n, marker in markers.items():
        axes.plot([], [], marker, color=colors.muted, markersize=4, label=f"N = {n}")
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1.03, 0.985),
        ncols=len(shown),
        handletextpad=0.1,
        columnspacing=0.8,
    )
    axes.set_yticks(range(len(methods)), [short(method, 26) for method in methods])
    for label, method in zip(axes.get_yticklabels(), methods, strict=True):
        label.set_color(method_line(method, colors).color)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(methods) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.set_xlabel("SPRINT − method (points)")
    axes.set_title("Difference (95%)", pad=20)


def _look(line: Line) -> dict[str, Any]:
    return {"color": line.color, "linestyle": line.dashes, "linewidth": line.width}


def _powers(limit: int) -> list[int]:
    powers = [2**exponent for exponent in range(limit.bit_length()) if 2**exponent <= limit]
    return powers if limit in powers else [*powers, limit]


def _alt(table: pd.DataFrame) -> str:
    limit = largest_n(table)
    ends = table[table["n"] <= limit].sort_values("n").groupby("method", sort=False).tail(1)
    ends = ends.sort_values("pass_at_n", ascending=False)
    listed = ", ".join(
        f"{plain(method)} {percent(value)}"
        for method, value in zip(ends["method"].tolist(), ends["pass_at_n"].tolist(), strict=True)
    )
    return f"Line plot of Pass@N against N. At N = {limit}: {listed}."
