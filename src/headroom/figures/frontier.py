"""Are heads special? Families of variants against tokens, and each one minus sampling."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Image

from headroom.analysis.text import percent, points
from headroom.figures.draw import Figure
from headroom.figures.pass_at_n import difference, finish_differences, name_curves
from headroom.figures.style import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    TWO_COLUMNS,
    VERMILLION,
)

_COLORS = {"head": BLUE, "noise": MUTED, "sampling": ORANGE[1]}
"""Matched noise is grey: it changes as much as a head does, at random."""

_OTHERS = (VERMILLION, GREEN, PURPLE, INK)

_OUTCOMES = {"pass": ("any answer right", "-", "o"), "majority": ("vote right", (0, (4, 1.5)), "s")}


def frontier(curves: pd.DataFrame, paired: pd.DataFrame, families: pd.DataFrame) -> Figure:
    """Draw Pass@N and votes of each family against tokens, and differences to sampling.

    Args:
        curves: a table of `headroom.frontier.compare`; members in the order that training
            questions chose are drawn.
        paired: likewise; drawn at the budget that is tested.
        families: likewise, a row a family.
    """
    titles = dict(zip(families["family"], families["title"], strict=True))
    rest = [family for family in titles if family not in _COLORS]
    colors = _COLORS | {each: _OTHERS[n % len(_OTHERS)] for n, each in enumerate(rest)}
    ordered = curves[curves["order"] == "ordered"]
    tested = paired[(paired["order"] == "ordered") & paired["adjusted"].notna()]
    against = tested[tested["versus"] == "sampling"]
    image = Image(figsize=(TWO_COLUMNS, 3.2))
    left, right = image.subplots(1, 2, width_ratios=(1.5, 1))
    _curves(left, ordered, colors)
    left.set_title("Families of variants by tokens", pad=20)
    final = ordered.groupby("family")[["pass", "answers"]].last()
    ends = final["pass"].sort_values(ascending=False)
    name_curves(left, ends, titles, colors, "head", final["answers"].to_dict())
    _differences(right, against, colors)
    last = ", ".join(f"{titles[str(family)]} {percent(value)}" for family, value in ends.items())
    told = "; ".join(
        f"{row['family_title']} {points(row['difference'])} ({points(row['low'])} to "
        f"{points(row['high'])})"
        for row in against[against["outcome"] == "pass"].to_dict("records")
    )
    alt = f"Line plot of solved questions against tokens. Most answers: {last}."
    alt += f" Minus sampling, in points: {told}." if told else ""
    facts = {"members": int(families["members"].max())}
    if len(paired):  # nothing is paired where neither heads nor samples are
        facts["n"] = int(paired["n"].iloc[0])
    return Figure(image, alt, ordered.assign(title=ordered["family"].map(titles)), facts)


def _curves(axes: Axes, table: pd.DataFrame, colors: dict[str, str]) -> None:
    for family, own in table.groupby("family", sort=False):
        order = 4 if family == "head" else 2
        for outcome, (_, dashes, _) in _OUTCOMES.items():
            look: dict[str, Any] = {"color": colors[str(family)], "linestyle": dashes}
            width = 1.8 if family == "head" else 1.2
            axes.plot(own["answers"], 100 * own[outcome], zorder=order, linewidth=width, **look)
    for words, dashes, _ in _OUTCOMES.values():
        axes.plot([], [], color=INK, linestyle=dashes, linewidth=1.2, label=words)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 0.985), ncols=2)
    axes.set_xscale("log", base=2)
    low, high = table["answers"].min(), table["answers"].max()
    powers = 2.0 ** np.arange(np.ceil(np.log2(low) - 0.1), np.floor(np.log2(high)) + 1)
    axes.set_xticks(powers, [f"{power:g}" for power in powers])
    axes.set_xticks([], minor=True)
    axes.set_xlim(low, high)
    axes.set_xlabel("tokens (1: one answer of the base model)")
    axes.set_ylabel("questions (%)")


def _differences(axes: Axes, against: pd.DataFrame, colors: dict[str, str]) -> None:
    """Draw dots with intervals; a filled dot is one that Holm's test of all families leaves."""
    families = dict(zip(against["family"], against["family_title"], strict=True))
    rows = list(families)
    for row in against.to_dict("records"):
        y = rows.index(row["family"]) + (0.15 if row["outcome"] == "majority" else -0.15)
        ends = row["difference"], row["low"], row["high"]
        marker, filled = _OUTCOMES[row["outcome"]][2], row["adjusted"] < 0.05
        difference(axes, y, ends, marker, colors[row["family"]], filled=filled)
    for words, _, marker in _OUTCOMES.values():
        axes.plot([], [], marker, color=MUTED, markersize=4, label=words)
    axes.legend(loc="lower right", bbox_to_anchor=(1.03, 0.985), ncols=2, handletextpad=0.1)
    axes.set_yticks(range(len(rows)), list(families.values()))
    finish_differences(axes, [colors[family] for family in rows])
    axes.set_xlabel("family − sampling (points)")
    if len(against):
        axes.set_title(f"Minus sampling at {against['budget'].iloc[0]:g} (95%)", pad=20)
