"""Figures of a compression: accuracy against time; losses and heads over its steps."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Image
from matplotlib.ticker import FuncFormatter, NullFormatter

from headroom.analysis.compression.findings import NOTABLE
from headroom.analysis.compression.trial import METHOD, Trial, accuracy, label, mixtures_of, savings
from headroom.analysis.sheet import rows_of
from headroom.analysis.text import percent, points, short
from headroom.figures.drawing import Figure, empty
from headroom.figures.pass_at_n import label_right
from headroom.figures.style import BLUE, GRID, INK, MUTED, ORANGE, PURPLE, SURFACE, TWO_COLUMNS

_LOOKS: dict[str, dict[str, Any]] = {
    "task": {"color": BLUE, "linestyle": "-", "marker": "o"},
    "response": {"color": ORANGE[1], "linestyle": (0, (4, 1.2)), "marker": "s"},
    "feature": {"color": PURPLE, "linestyle": (0, (1, 1)), "marker": "^"},
}


def pareto(trial: Trial) -> Figure:
    """Draw each arm's change of accuracy, with its interval, against the time of its test.

    Arms that differ from another only in the mixture of their score are left out.
    """
    mixtures = {
        arm
        for distilled in (True, False)
        for arm in mixtures_of(trial, distilled=distilled).values()
        if arm in trial.study.variations
    }
    rows = [
        {"arm": arm, "quantised": bits, **accuracy(trial, arm, quantised=bits), **saved}
        for arm in trial.settings
        for bits in (False, True)
        if arm not in mixtures and not trial.right(arm, quantised=bits).empty
        if not np.isnan((saved := savings(trial, arm, quantised=bits))["test_time"])
    ]
    names = ["arm", "quantised", "n", "seeds", "accuracy", "change", "change_low", "change_high"]
    data = pd.DataFrame(rows).reindex(columns=[*names, "test_time", "parameters_removed"])
    shown = data.dropna(subset="change")
    if shown.empty:
        return empty(f"No arm of {short(trial.name)} was timed beside its baseline.")
    image = Image(figsize=(TWO_COLUMNS, 3.6))
    axes = image.add_subplot()
    axes.axhline(0, color=INK, linewidth=0.8, zorder=1)
    axes.axhline(-100 * NOTABLE, color=MUTED, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
    axes.plot(100, 0, "s", color=INK, markersize=5)
    marks = [("unpruned", 100.0, 0.0, INK)]
    for row in rows_of(shown):
        x, y, color = 100 * row.test_time, 100 * row.change, BLUE if row.arm == METHOD else MUTED
        axes.plot([x, x], [100 * row.change_low, 100 * row.change_high], color=color, lw=0.9)
        axes.plot(x, y, "o", color=color, mfc=SURFACE if row.quantised else color, zorder=3)
        marks.append((label(row.arm) + (", int8" if row.quantised else ""), x, y, color))
    axes.margins(x=0.06, y=0.08)
    label_right(axes, marks)
    axes.set_xlabel("time of the whole test (% of the unpruned)")
    axes.set_ylabel("change of accuracy (points)")
    best, worst = (of(marks[1:], key=lambda mark: mark[2]) for of in (max, min))
    described = "; ".join(
        f"{name} {points(y / 100)} points at {percent(x / 100)}"
        for name, x, y, _ in dict.fromkeys([*(m for m in marks if m[0] == METHOD), best, worst])
    )
    alt = (
        f"{len(marks) - 1} arms by change of accuracy and time of the whole test. Of the method, "
        f"the best and the worst: {described}."
    )
    facts = {"n": int(data["n"].iloc[0]), "seeds": _seeds(int(data["seeds"].max()))}
    return Figure(image, alt, data, facts)


def losses(trial: Trial) -> Figure:
    """Draw each part of the loss and the number of heads left over the steps of all rounds.

    The arm drawn is the method's, or else the first that was trained.
    """
    trained = [
        arm
        for arm in dict.fromkeys([METHOD, *trial.settings])
        if arm in trial.settings and trial.first_history(arm)["rounds"]
    ]
    if not trained:
        return empty(f"No arm of {short(trial.name)} was trained.")
    arm = trained[0]
    data = pd.concat([_epochs(trial, arm, seed) for seed in trial.histories[arm]])
    steps, heads = _removals(trial, arm)
    image = Image(figsize=(TWO_COLUMNS, 3.3))
    upper, lower = image.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
    first = data["seed"].iloc[0]
    parts = [part for part in _LOOKS if part in set(data["part"])]
    described = []
    for part in parts:
        own = data[data["part"] == part]
        values = own.loc[own["seed"] == first, "loss"]
        described.append(f"{part} from {values.iloc[0]:.3g} to {values.iloc[-1]:.3g}")
        for number, (_, run) in enumerate(own.groupby(["seed", "round"], sort=False)):
            look = {**_LOOKS[part], "markersize": 2.6, "label": None if number else part}
            if run["seed"].iloc[0] != first:
                look |= {"linewidth": 0.7, "alpha": 0.5, "marker": ""}
            upper.plot(run["step"], run["loss"], **look)
    lower.step(steps, heads, where="post", color=INK, linewidth=1.4)
    for step in steps[1:-1]:
        for axes in (upper, lower):
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
    facts = {"arm": label(arm), "seeds": _seeds(data["seed"].nunique())}
    return Figure(image, alt, data, facts | {"n": len(data) // len(parts)})


def _seeds(count: int) -> str:
    return "one seed" if count == 1 else f"{count} seeds"


def _epochs(trial: Trial, arm: str, seed: int) -> pd.DataFrame:
    """Return the losses of one seed, means over epochs, by optimiser step over all rounds."""
    rows, done = [], 0
    for number, each in enumerate(trial.histories[arm][seed]["rounds"], start=1):
        for epoch in each["epochs"]:
            step = done + epoch["steps"]
            for part, loss in epoch["losses"].items():
                rows.append((seed, number, step, part, loss, each["heads"]))
        done += each["epochs"][-1]["steps"]
    return pd.DataFrame(rows, columns=["seed", "round", "step", "part", "loss", "heads"])


def _removals(trial: Trial, arm: str) -> tuple[list[int], list[int]]:
    """Return the steps at which heads were removed and the heads left from then on; first seed."""
    history = trial.first_history(arm)
    steps, heads, done = [0], [history["heads"]], 0
    for each in history["rounds"]:
        for removal in each["removals"]:
            steps.append(removal["step"])  # counted over all rounds
            heads.append(heads[-1] - len(removal["heads"]))
        done += each["epochs"][-1]["steps"]
    return [*steps, done], [*heads, heads[-1]]
