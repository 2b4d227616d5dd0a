"""How a compression went: the parts of the loss, and the heads that were left, step by step."""

import pandas as pd
from matplotlib.figure import Figure as Image
from matplotlib.ticker import FuncFormatter, NullFormatter

from headroom.analysis.compression.trial import METHOD, Trial, label
from headroom.analysis.text import short
from headroom.figures.drawing import Figure, empty
from headroom.figures.style import TWO_COLUMNS, Theme

COLUMNS = ["seed", "round", "step", "part", "loss", "heads"]
"""Columns of the numbers: ``step``, optimiser steps over all rounds at the end of an epoch;
``loss``, mean over the epoch; ``heads`` left at that step."""

_REMOVALS = ["step", "heads"]


def losses(trial: Trial, colors: Theme) -> Figure:
    """Draw each part of the loss over the steps of all rounds, and how many heads are left.

    Args:
        trial: a compression; of its arms the method's is drawn, or the first that was trained.
        colors: the theme to draw in.
    """
    title = f"{short(trial.name)}: losses and heads"
    arm = next((arm for arm in (METHOD, *trial.settings) if _trained(trial, arm)), None)
    if arm is None:
        return empty(title, f"No arm of {short(trial.name)} was trained.", COLUMNS)
    data = pd.concat([_epochs(trial, arm, seed) for seed in trial.histories[arm]])
    removals = _removals(trial, arm)
    image = Image(figsize=(TWO_COLUMNS, 3.3))
    upper, lower = image.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
    looks = {
        "task": (colors.blue, "-", "o"),
        "response": (colors.orange[1], (0, (4, 1.2)), "s"),
        "feature": (colors.purple, (0, (1, 1)), "^"),
    }
    parts = [part for part in looks if part in set(data["part"])]
    for part in parts:
        color, dashes, marker = looks[part]
        own = data[data["part"] == part]
        for number, (_, run) in enumerate(own.groupby(["seed", "round"], sort=False)):
            first = run["seed"].iloc[0] == own["seed"].iloc[0]
            upper.plot(
                run["step"],
                run["loss"],
                color=color,
                linestyle=dashes,
                marker=marker if first else "",
                markersize=2.6,
                linewidth=1.2 if first else 0.7,
                alpha=1 if first else 0.5,
                label=part if number == 0 else None,
            )
    lower.step(removals["step"], removals["heads"], where="post", color=colors.ink, linewidth=1.4)
    for axes in (upper, lower):
        for step in removals["step"].iloc[1:-1]:
            axes.axvline(step, color=colors.grid, linewidth=1, zorder=1)
    upper.set_yscale("log")
    upper.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    upper.yaxis.set_minor_formatter(NullFormatter())
    upper.set_ylabel("loss, mean of an epoch")
    upper.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2)
    lower.set_ylabel("heads left")
    lower.set_ylim(0, 1.1 * removals["heads"].max())
    lower.set_xlabel("optimiser steps, all rounds")
    return Figure(image, title, _caption(trial, arm, data), _alt(trial, arm, data, removals), data)


def _trained(trial: Trial, arm: str) -> bool:
    return arm in trial.settings and bool(trial.first_history(arm)["rounds"])


def _epochs(trial: Trial, arm: str, seed: int) -> pd.DataFrame:
    """Return `COLUMNS` of one seed; steps of a round start where those of the last one ended."""
    rows, done = [], 0
    for number, each in enumerate(trial.histories[arm][seed]["rounds"], start=1):
        for epoch in each["epochs"]:
            step = done + epoch["steps"]
            for part, loss in epoch["losses"].items():
                rows.append((seed, number, step, part, loss, each["heads"]))
        done = done + each["epochs"][-1]["steps"]
    return pd.DataFrame(rows, columns=COLUMNS)


def _removals(trial: Trial, arm: str) -> pd.DataFrame:
    """Return how many heads are left from which step on, under the first seed."""
    history = trial.first_history(arm)
    heads, done = history["heads"], 0
    rows = [(0, heads)]
    for each in history["rounds"]:
        for removal in each["removals"]:
            heads -= len(removal["heads"])
            rows.append((removal["step"], heads))  # of all rounds
        done += each["epochs"][-1]["steps"]
    return pd.DataFrame([*rows, (done, heads)], columns=_REMOVALS)


def _caption(trial: Trial, arm: str, data: pd.DataFrame) -> str:
    seeds = data["seed"].nunique()
    of = f"{seeds} seeds, the first drawn heavier" if seeds > 1 else "one seed"
    return (
        f"{trial.title}, arm {label(arm)}, {of}. Above: parts of the loss, each a "
        "mean over the steps of an epoch, as they are added, with their weights (task: the "
        "solver's own objective; response: what the teacher says; feature: where it looks). Lines "
        "break between rounds, which have another teacher. Below: heads left, of the first seed; "
        f"vertical lines are removals. n = {len(data) // data['part'].nunique()} epochs; no "
        "interval and no test is shown."
    )


def _alt(trial: Trial, arm: str, data: pd.DataFrame, removals: pd.DataFrame) -> str:
    first = data[data["seed"] == data["seed"].iloc[0]]
    parts = "; ".join(
        f"{part} from {own['loss'].iloc[0]:.3g} to {own['loss'].iloc[-1]:.3g}"
        for part, own in first.groupby("part", sort=False)
    )
    heads = ", ".join(map(str, dict.fromkeys(removals["heads"])))
    return (
        f"Losses over {first['step'].max()} optimiser steps for {trial.title}, "
        f"arm {label(arm)}: {parts}. Heads left: {heads}."
    )
