"""Write table.csv and figure.png of all finished runs of a make.sh: table.py RUNS OUT."""

import json
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from headsweep.experiments.recovery.evaluation import Losses, perplexity

ARMS = ("mixed", "norm", "random", "causal", "trained_on")
SIZES = ("parameters", "weight_bytes", "cache_bytes_per_token")
SPEEDS = ("tokens_per_second_batch_1", "tokens_per_second_batch_8")


def losses(facts: dict, model: str) -> Losses:
    """Return a model's loss on each held-out text of a run."""
    texts = facts["measured"][model]["texts"]
    return Losses(np.array(texts["nats"]), np.array(texts["tokens"]))


def estimate(name: str, value: dict) -> dict:
    """Return the columns of a number and the ends of its interval."""
    return {name: value["value"], f"{name}, low": value["low"], f"{name}, high": value["high"]}


def as_run(facts: dict) -> dict:
    """Return a run's control as a run of its own, which removed nothing."""
    models = facts["measured"]
    measured = {"before": models["before"], "pruned": models["before"]}
    return {"removals": [], "measured": {**measured, "recovered": models["control"]}}


runs = {}
for file in Path(sys.argv[1]).glob("*-[0-9]/recovery.json"):
    arm, _, seed = file.parent.name.rpartition("-")
    runs[arm, int(seed)] = json.loads(file.read_text())
for (_, seed), facts in list(runs.items()):
    if "control" in facts["measured"]:
        runs["trained_on", seed] = as_run(facts)
rows = []
for arm, seed in sorted(runs, key=lambda run: (ARMS.index(run[0]), run[1])):
    facts = runs[arm, seed]
    models = {name: facts["measured"][name] for name in ("before", "pruned", "recovered")}
    removed = sum(len(removal["heads"]) for removal in facts["removals"])
    row = {"arm": arm, "seed": seed, "heads removed": removed}
    for name in models:
        row |= estimate(name, perplexity(losses(facts, name))._asdict())
    recovered = losses(facts, "recovered")
    beside = {"before": losses(facts, "before")}
    for other in ("trained_on", "random", "mixed"):
        if (other, seed) in runs:
            beside[other] = losses(runs[other, seed], "recovered")
    for other, its_losses in beside.items():
        row |= estimate(f"recovered / {other}", perplexity(recovered, its_losses)._asdict())
    for name, model in models.items():
        if "accuracy" in model:
            row |= estimate(f"right, {name}", model["accuracy"])
    if "gain" in models["recovered"]:
        row |= estimate("right, recovered - before", models["recovered"]["gain"])
    row |= {name: models["recovered"][name] for name in SIZES}
    if "accuracy" in models["recovered"]:  # all of one call, so that times can be compared
        for name in SPEEDS:
            row |= {f"{name}, before": models["before"][name], name: models["recovered"][name]}
    rows.append(row)
table = pd.DataFrame(rows)
out = Path(sys.argv[2])
table.to_csv(out / "table.csv", index=False, float_format="%.5g")

texts = len(recovered.nats)
matplotlib.rcParams |= {"font.size": 9}
figure, axes = plt.subplots(figsize=(6.5, 0.9 + 0.3 * len(table)), layout="constrained")
for place, (name, marker) in enumerate([("pruned", "s"), ("recovered", "o")]):
    ends = [table[name] - table[f"{name}, low"], table[f"{name}, high"] - table[name]]
    y = np.arange(len(table)) + 0.2 * place - 0.1
    axes.errorbar(table[name], y, xerr=ends, fmt=marker, ms=4, lw=1, label=name)
axes.axvline(table["before"].iloc[0], color="0.4", lw=1, ls="--", label="before")
axes.set_yticks(range(len(table)), table["arm"] + ", seed " + table["seed"].astype(str))
axes.set_ylim(len(table) - 0.5, -0.5)
axes.set_xscale("log")
ticks = np.array([2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100])
low, high = axes.get_xlim()
axes.set_xticks(ticks[(low < ticks) & (ticks < high)], minor=False)
axes.xaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:g}"))
axes.minorticks_off()
axes.set_xlabel(f"perplexity of {texts} held-out solutions, 95% intervals over texts")
figure.legend(loc="outside upper center", ncols=3, frameon=False)
figure.savefig(out / "figure.png", dpi=120)
