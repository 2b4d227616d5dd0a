"""Pass@N of methods (Figure 4 of the SPRINT paper) and of families of variants against tokens, and
the losses of a compression over its steps.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Image
from matplotlib.ticker import FuncFormatter, NullFormatter
from scipy.optimize import isotonic_regression

from headsweep.config.experiments import METHOD
from headsweep.experiments.sprint.methods import (
    ONE_ANSWER,
    ORACLE,
    RANDOM,
    RIVALS,
    SPRINT,
    is_sampling,
)
from headsweep.page.figures.draw import Figure, empty
from headsweep.page.figures.style import (
    BLUE,
    GREEN,
    GRID,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    SURFACE,
    TWO_COLUMNS,
    VERMILLION,
    method_line,
)
from headsweep.results.comparisons import TESTED_AT_BUDGET
from headsweep.results.compression_arms import StudyResults
from headsweep.results.facts import rows_of
from headsweep.statistics import SIGNIFICANCE
from headsweep.text import percent, plain, points, short

_COVERED = {
    "by_questions": "test questions",
    "by_draw": "draws of training questions",
    "by_seed": "seeds",
}

_MARKS = 8  # of a family's curve, about
_FAMILIES = {
    "head": (BLUE, "D"),
    "sampling": (ORANGE[1], "v"),
    "noise": (MUTED, "x"),
    "scaled": (VERMILLION, "^"),
    "skip": (GREEN, "P"),
    "weights": (PURPLE, "*"),
}
"""Colour and mark of each family, marks for readers in grey; outcomes have circles and squares.
Heads and sampling have the colours of Pass@N; matched noise is grey: it changes as much as a head
does, at random."""
_OWN_MARKS = ("<", ">", "d")
"""Marks of a user's own families."""
_OUTCOMES = {"pass": ("any answer right", "-", "o"), "majority": ("vote right", (0, (4, 1.5)), "s")}


def curves(table: pd.DataFrame, paired: pd.DataFrame, questions: int, of_loss: str) -> Figure:
    """Draw Pass@N of the methods in the paper's Figure 4, and SPRINT's paired difference from each.

    Differences are filled where Holm's correction over methods leaves them. Both sides give as many
    answers: methods with one answer are held against one.

    These are SPRINT, random heads, and samples at each temperature. On the right stand all methods
    but simpler ways to match questions with heads (`RIVALS`), which are in the data and in tables.
    The tables are `headsweep.files.tables.CURVES` and
    `headsweep.experiments.sprint.evaluation.PAIRED_COLUMNS`, of a number of test questions;
    `of_loss` says which reading of its loss SPRINT has. Methods that have only one answer are
    marked.
    """
    image = Image(figsize=(TWO_COLUMNS, 3.5))
    left, right = image.subplots(1, 2, width_ratios=(1.35, 1))
    limit = int(table.loc[table["method"] == SPRINT, "n"].max())
    within = table[table["n"] <= limit].sort_values("n", kind="stable")
    last = within.groupby("method", sort=False)[["pass_at_n", "n"]].last()
    ends = last["pass_at_n"]
    sampled = ends[ends.index.map(is_sampling)]
    best = [str(sampled.idxmax())] if len(sampled) else []
    drawn = ends.reindex([SPRINT, RANDOM, *sampled.index]).dropna()
    powers = sorted({*(2**power for power in range(limit.bit_length())), limit})
    for method in drawn.index:
        curve = within[within["method"] == method]
        _curve(left, curve, method, powers, banded=method in (SPRINT, *best))
    _log_axis(left, powers, (1, limit), "N, answers a question")
    left.set_ylabel("right among N, picked by an oracle (%)")
    left.set_title("Pass@N, 95% bands", pad=20)
    titles = {name: short(name, 26) for name in table["method"]}
    titles[SPRINT] = f"{SPRINT}: {of_loss}"
    titles |= {name: f"{name} (one answer)" for name in ONE_ANSWER}
    colors = {name: method_line(name).color for name in titles}
    _name_curves(left, drawn, last["n"].to_dict(), titles, colors, SPRINT)
    fewer = paired["method"].isin(ONE_ANSWER) & (paired["n"] > 1)
    shown = paired[~paired["method"].isin([*RIVALS, ORACLE]) & ~fewer]
    shown = shown.assign(name=shown["method"], series=shown["n"])
    compared = zip(sorted({1, 4, limit} & set(shown["n"])), "osD", strict=False)
    series = {n: (f"N = {n}", marker) for n, marker in compared}
    shown = shown.assign(filled=shown["adjusted"] < SIGNIFICANCE)
    _differences(right, shown, series, titles, colors, 0.24)
    right.set_xlabel("SPRINT − method (points)")
    right.set_title("Difference (95%)", pad=20)
    data = table.merge(paired, on=["method", "n"], how="left", suffixes=("", "_of_difference"))
    listed = []
    for name, value in drawn.sort_values(ascending=False).items():
        solved = f"{plain(str(name))} {percent(value)}"
        n = last["n"][str(name)]  # a short list of random heads ends before the others
        listed.append(solved if n == limit else f"{solved} with {n}")
    alt = f"Line plot of Pass@N against N. At N = {limit}: {', '.join(listed)}."
    return Figure(image, alt, data, {"n": questions, "covered": _covered(paired)})


def _covered(paired: pd.DataFrame) -> str:
    """Return what the intervals of differences cover, in words."""
    varied = [
        text for column, text in _COVERED.items() if column in paired and paired[column].any()
    ]
    *others, final = varied or ["test questions"]
    return f"{', '.join(others)} and {final}" if others else final


def _curve(
    axes: Axes, table: pd.DataFrame, method: str, marked: Sequence[int], *, banded: bool
) -> None:
    line = method_line(method)
    look: dict[str, Any] = {"color": line.color, "zorder": line.order}
    path = look | {"linestyle": line.dashes, "linewidth": line.width}
    n = table["n"].to_numpy()
    value = 100 * table["pass_at_n"].to_numpy()
    if banded:
        band = look | {"alpha": 0.14, "linewidth": 0, "zorder": line.order - 1}
        axes.fill_between(n, 100 * table["low"], 100 * table["high"], **band)
    places = np.flatnonzero(np.isin(n, marked)).tolist()
    axes.plot(n, value, marker=line.marker, markevery=places, clip_on=False, **path)


def frontier(table: pd.DataFrame, paired: pd.DataFrame, families: pd.DataFrame) -> Figure:
    """Draw Pass@N and votes of each family against tokens, and differences to sampling, filled
    where Holm's test of all families leaves them.

    The tables are those of `headsweep.experiments.sprint.frontier_job.compare`: the curves, of
    which members in the order that training questions chose are drawn; differences; and a row a
    family.
    """
    titles = dict(zip(families["family"], families["title"], strict=True))
    own_marks = cycle(_OWN_MARKS)
    looks = {
        family: _FAMILIES[family] if family in _FAMILIES else (INK, next(own_marks))
        for family in titles
    }
    colors = {family: color for family, (color, _) in looks.items()}
    ordered = table[table["order"] == "ordered"]
    against = paired.query(f"{TESTED_AT_BUDGET} and versus == 'sampling'")
    image = Image(figsize=(TWO_COLUMNS, 3.2))
    left, right = image.subplots(1, 2, width_ratios=(1.5, 1))
    for family, curve in ordered.groupby("family", sort=False):
        bold = family == "head"
        look: dict[str, Any] = {
            "color": colors[str(family)],
            "zorder": 4 if bold else 2,
            "linewidth": 1.8 if bold else 1.2,
            "marker": looks[str(family)][1],
            "markersize": 4.5,
            "clip_on": False,
            "markevery": max(1, len(curve) // _MARKS),
        }
        for outcome, (_, dashes, _) in _OUTCOMES.items():
            left.plot(curve["answers"], 100 * curve[outcome], linestyle=dashes, **look)
    for words, dashes, _ in _OUTCOMES.values():
        left.plot([], [], color=INK, linestyle=dashes, linewidth=1.2, label=words)
    left.legend(loc="lower left", bbox_to_anchor=(-0.02, 0.985), ncols=2)
    above = ordered["answers"][ordered["answers"] > 0]  # empty answers have no place on the axis
    low, high = (above.min(), above.max()) if len(above) else (1.0, 1.0)
    powers = 2.0 ** np.arange(np.ceil(np.log2(low) - 0.1), np.floor(np.log2(high)) + 1)
    _log_axis(left, powers.tolist(), (low, high), "tokens (1: one answer of the base model)")
    left.set_ylabel("questions (%)")
    left.set_title("Families of variants by tokens", pad=20)
    final = ordered.groupby("family")[["pass", "answers"]].last()
    ends = final["pass"].sort_values(ascending=False)
    _name_curves(left, ends, final["answers"].to_dict(), titles, colors, "head")
    shown = against.assign(name=against["family"], series=against["outcome"])
    series = {outcome: (words, marker) for outcome, (words, _, marker) in _OUTCOMES.items()}
    _differences(
        right, shown.assign(filled=shown["adjusted"] < SIGNIFICANCE), series, titles, colors, 0.3
    )
    right.set_xlabel("family − sampling (points)")
    if len(against):
        right.set_title(f"Minus sampling at {against['budget'].iloc[0]:g} (95%)", pad=20)
    last = ", ".join(f"{titles[str(family)]} {percent(value)}" for family, value in ends.items())
    alt = f"Line plot of solved questions against tokens. Most answers: {last}."
    leads = [
        f"{titles[row.family]} {points(row.difference)} ({points(row.low)} to {points(row.high)})"
        for row in rows_of(against[against["outcome"] == "pass"])
    ]
    if leads:
        alt += f" Minus sampling, in points: {'; '.join(leads)}."
    facts = {"members": int(families["members"].max())}
    if len(paired):  # nothing is paired where neither heads nor samples are
        facts["n"] = int(paired["n"].iloc[0])
    return Figure(image, alt, ordered.assign(title=ordered["family"].map(titles)), facts)


def _log_axis(axes: Axes, ticks: Sequence[float], ends: tuple[float, float], label: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    low, high = ends
    axes.set_xlim((low, high) if low < high else (low / 2, 2 * high))  # room for a single place
    axes.set_xlabel(label)


def _name_curves(
    axes: Axes,
    ends: pd.Series,
    at: Mapping[Any, float],
    titles: Mapping[str, str],
    colors: Mapping[str, str],
    bold: str,
) -> None:
    """Write titles to the right of all curves, moved apart where they overlap, with lines to their
    ends: values `ends`, as fractions, `at` places on the x axis.
    """
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    ends = 100 * ends.sort_values()
    places = spaced((ends.to_numpy() - low) / (high - low), 0.058)
    for (name, value), place in zip(ends.items(), places, strict=True):
        color = colors[str(name)]
        axes.annotate(
            titles[str(name)],
            (at[name], value),
            xytext=(1.06, place),
            textcoords="axes fraction",
            color=color,
            va="center",
            fontsize=7.2,
            fontweight="bold" if name == bold else "normal",
            arrowprops={"arrowstyle": "-", "color": color, "lw": 0.5, "shrinkA": 1, "shrinkB": 0},
        )


def spaced(wanted: np.ndarray, gap: float) -> np.ndarray:
    """Move ascending positions apart to at least a gap, with the least squared movement."""
    offsets = np.arange(len(wanted)) * gap
    return np.asarray(isotonic_regression(wanted - offsets).x + offsets)


def _differences(
    axes: Axes,
    table: pd.DataFrame,
    series: Mapping[Any, tuple[str, str]],
    titles: Mapping[str, str],
    colors: Mapping[str, str],
    apart: float,
) -> None:
    """Draw a row for each `name` of a table, titled and coloured, with a mark (`filled` or hollow)
    and its interval for each of its `series`, label and marker by name, some distance `apart`.
    """
    names = list(dict.fromkeys(table["name"]))
    for place, (key, (label, marker)) in enumerate(series.items()):
        shift = apart * (place - (len(series) - 1) / 2)
        for row in rows_of(table[table["series"] == key]):
            color = colors[row.name]
            y = names.index(row.name) + shift
            axes.plot([100 * row.low, 100 * row.high], [y, y], color=color, linewidth=1.1)
            fill = color if row.filled else SURFACE
            value = 100 * row.difference
            axes.plot(value, y, marker, color=color, markerfacecolor=fill, markersize=4)
        axes.plot([], [], marker, color=MUTED, markersize=4, label=label)
    look: dict[str, Any] = {"handletextpad": 0.1, "columnspacing": 0.8, "ncols": len(series)}
    axes.legend(loc="lower right", bbox_to_anchor=(1.03, 0.985), **look)
    axes.axvline(0, color=INK, linewidth=0.8, zorder=1)
    axes.set_yticks(range(len(names)), [titles[name] for name in names])
    for text, name in zip(axes.get_yticklabels(), names, strict=True):
        text.set_color(colors[name])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")


_LOOKS: dict[str, dict[str, Any]] = {
    "task": {"color": BLUE, "linestyle": "-", "marker": "o"},
    "response": {"color": ORANGE[1], "linestyle": (0, (4, 1.2)), "marker": "s"},
    "feature": {"color": PURPLE, "linestyle": (0, (1, 1)), "marker": "^"},
}


def losses(results: StudyResults) -> Figure:
    """Draw each part of the loss and the number of heads left over the steps of all rounds.

    The arm drawn is the method's, or else the first that was trained.
    """
    arms = sorted(results.settings, key=lambda arm: arm != METHOD)
    trained = [arm for arm in arms if results.first_history(arm)["rounds"]]
    if not trained:
        return empty(f"No arm of {short(results.name)} was trained.")
    arm = trained[0]
    data = pd.concat([_epochs(results, arm, seed) for seed in results.histories[arm]])
    steps, heads = _removals(results, arm)
    image = Image(figsize=(TWO_COLUMNS, 3.3))
    upper, lower = image.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
    first = data["seed"].iloc[0]
    described = []
    for part, look in _LOOKS.items():
        of_part = data[data["part"] == part]
        if of_part.empty:
            continue
        for (seed, _), run in of_part.groupby(["seed", "round"], sort=False):
            faint = {"linewidth": 0.7, "alpha": 0.5, "marker": ""} if seed != first else {}
            upper.plot(run["step"], run["loss"], **{**look, "markersize": 2.6, **faint})
        upper.plot([], [], **look, label=part)
        ends = of_part.loc[of_part["seed"] == first, "loss"].iloc[[0, -1]]
        described.append(f"{part} from {' to '.join(f'{loss:.3g}' for loss in ends)}")
    lower.step(steps, heads, where="post", color=INK, linewidth=1.4)
    for axes in (upper, lower):
        for step in steps[1:-1]:
            axes.axvline(step, color=GRID, linewidth=1, zorder=1)
    upper.set_yscale("log")
    upper.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    upper.yaxis.set_minor_formatter(NullFormatter())
    upper.set_ylabel("loss, mean of an epoch")
    upper.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2)
    lower.set_ylabel("heads left")
    lower.set_ylim(0, 1.1 * max(heads))
    lower.set_xlabel("optimiser steps, all rounds")
    left = ", ".join(map(str, dict.fromkeys(heads)))
    alt = f"Losses over {steps[-1]} optimiser steps: {'; '.join(described)}. Heads left: {left}."
    seeds = data["seed"].nunique()
    facts = {"arm": arm.replace("_", " "), "seeds": "one seed" if seeds == 1 else f"{seeds} seeds"}
    return Figure(image, alt, data, facts | {"n": len(data) // len(described)})


def _epochs(results: StudyResults, arm: str, seed: int) -> pd.DataFrame:
    """Return the losses of one seed, means over epochs, by optimiser step over all rounds."""
    rows = []
    done = 0
    for number, pruning_round in enumerate(results.histories[arm][seed]["rounds"], start=1):
        for epoch in pruning_round["epochs"]:
            step = done + epoch["steps"]
            for part, loss in epoch["losses"].items():
                rows.append((seed, number, step, part, loss, pruning_round["heads"]))
        done += pruning_round["epochs"][-1]["steps"]
    return pd.DataFrame(rows, columns=["seed", "round", "step", "part", "loss", "heads"])


def _removals(results: StudyResults, arm: str) -> tuple[list[int], list[int]]:
    """Return the steps at which heads were removed and the heads left from then on; first seed."""
    history = results.first_history(arm)
    rounds = history["rounds"]
    gone = [
        (removal["step"], len(removal["heads"]))
        for pruning_round in rounds
        for removal in pruning_round["removals"]
    ]
    left = history["heads"] - pd.Series([count for _, count in gone], dtype=int).cumsum()
    heads = [history["heads"], *left.tolist()]
    end = sum(pruning_round["epochs"][-1]["steps"] for pruning_round in rounds)
    return [0, *(step for step, _ in gone), end], [*heads, heads[-1]]
