"""Losses and heads of a compression over its steps."""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Image
from matplotlib.ticker import FuncFormatter, NullFormatter

from headroom.analysis.compression.trial import METHOD, Trial, label
from headroom.analysis.text import short
from headroom.figures.drawing import Figure, empty
from headroom.figures.style import BLUE, GRID, INK, ORANGE, PURPLE, TWO_COLUMNS

_LOOKS: dict[str, dict[str, Any]] = {
    "task": {"color": BLUE, "linestyle": "-", "marker": "o"},
    "response": {"color": ORANGE[1], "linestyle": (0, (4, 1.2)), "marker": "s"},
    "feature": {"color": PURPLE, "linestyle": (0, (1, 1)), "marker": "^"},
}


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
    seeds = data["seed"].nunique()
    told = "one seed" if seeds == 1 else f"{seeds} seeds"
    facts = {"arm": label(arm), "seeds": told, "n": len(data) // len(parts)}
    return Figure(image, alt, data, facts)


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
