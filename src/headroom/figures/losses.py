"""Losses and heads of a compression over its steps."""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Image
from matplotlib.ticker import FuncFormatter, NullFormatter

from headroom.analysis.text import short
from headroom.analysis.trials import METHOD, Trial
from headroom.figures.draw import Figure, empty
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
    arms = sorted(trial.settings, key=lambda arm: arm != METHOD)
    trained = [arm for arm in arms if trial.first_history(arm)["rounds"]]
    if not trained:
        return empty(f"No arm of {short(trial.name)} was trained.")
    arm = trained[0]
    data = pd.concat([_epochs(trial, arm, seed) for seed in trial.histories[arm]])
    steps, heads = _removals(trial, arm)
    image = Image(figsize=(TWO_COLUMNS, 3.3))
    upper, lower = image.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
    first = data["seed"].iloc[0]
    described = []
    for part, look in _LOOKS.items():
        own = data[data["part"] == part]
        if own.empty:
            continue
        for (seed, _), run in own.groupby(["seed", "round"], sort=False):
            faint = {"linewidth": 0.7, "alpha": 0.5, "marker": ""} if seed != first else {}
            upper.plot(run["step"], run["loss"], **{**look, "markersize": 2.6, **faint})
        upper.plot([], [], **look, label=part)
        ends = own.loc[own["seed"] == first, "loss"].iloc[[0, -1]]
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
    rounds = history["rounds"]
    gone = [(each["step"], len(each["heads"])) for own in rounds for each in own["removals"]]
    left = history["heads"] - pd.Series([count for _, count in gone], dtype=int).cumsum()
    heads = [history["heads"], *left.tolist()]
    end = sum(own["epochs"][-1]["steps"] for own in rounds)
    return [0, *(step for step, _ in gone), end], [*heads, heads[-1]]
