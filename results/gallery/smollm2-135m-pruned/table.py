"""Write table.csv and figure.png of all finished runs of make.sh."""

import json
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from headsweep.recovery.evaluation import Losses, perplexity

ARMS = ("mixed", "norm", "random", "causal", "trained_on")
KEPT = ("parameters", "weight_bytes", "cache_bytes_per_token")


def losses(facts: dict, model: str) -> Losses:
    """Return a model's loss on each held-out text of a run."""
    texts = facts["measured"][model]["texts"]
    return Losses(np.array(texts["nats"]), np.array(texts["tokens"]))


runs = {}
for file in Path(sys.argv[1]).glob("*-[0-9]/recovery.json"):
    arm, _, seed = file.parent.name.rpartition("-")
    runs[arm, int(seed)] = json.loads(file.read_text())
rows = []
for arm, seed in sorted(runs, key=lambda run: (ARMS.index(run[0]), run[1])):
    facts = runs[arm, seed]
    columns = {name: perplexity(losses(facts, name)) for name in facts["measured"]}
    recovered = losses(facts, "recovered")
    columns["recovered / before"] = perplexity(recovered, losses(facts, "before"))
    for other in ("trained_on", "random"):
        if (other, seed) in runs:
            beside = losses(runs[other, seed], "recovered")
            columns[f"recovered / {other}"] = perplexity(recovered, beside)
    row = {
        "arm": arm,
        "seed": seed,
        "heads removed": sum(len(each["heads"]) for each in facts["removals"]),
    }
    for name, each in columns.items():
        row |= {name: each.value, f"{name}, low": each.low, f"{name}, high": each.high}
    rows.append(row | {key: facts["measured"]["recovered"][key] for key in KEPT})
table = pd.DataFrame(rows)
here = Path(__file__).parent
table.to_csv(here / "table.csv", index=False, float_format="%.5g")

matplotlib.rcParams |= {"font.size": 9}
figure, axes = plt.subplots(figsize=(6.5, 0.5 + 0.27 * len(table)), layout="constrained")
for place, (name, marker) in enumerate([("pruned", "s"), ("recovered", "o")]):
    ends = [table[name] - table[f"{name}, low"], table[f"{name}, high"] - table[name]]
    y = np.arange(len(table)) + 0.2 * place - 0.1
    axes.errorbar(table[name], y, xerr=ends, fmt=marker, ms=4, lw=1, label=name)
axes.axvline(table["before"].iloc[0], color="0.4", lw=1, ls="--", label="before")
axes.set_yticks(range(len(table)), table["arm"] + ", seed " + table["seed"].astype(str))
axes.invert_yaxis()
axes.set_xscale("log")
axes.set_xticks([4, 5, 6, 8, 10, 15, 20, 30, 50, 100], minor=False)
axes.xaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
axes.minorticks_off()
axes.set_xlabel("perplexity of 48 held-out solutions, 95% intervals over texts")
axes.legend(frameon=False)
figure.savefig(here / "figure.png", dpi=120)
