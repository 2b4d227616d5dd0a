"""Write the table of all finished runs of make.sh."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from headroom.recovery.evaluation import Losses, perplexity

ARMS = ("mixed", "norm", "random", "causal", "trained_on")
runs = {}
for file in Path(sys.argv[1]).glob("*-[0-9]/recovery.json"):
    arm, _, seed = file.parent.name.rpartition("-")
    runs[ARMS.index(arm), int(seed)] = json.loads(file.read_text())
rows = []
for (arm, seed), facts in sorted(runs.items()):
    losses = {
        name: Losses(*(np.array(result["texts"][key]) for key in ("nats", "tokens")))
        for name, result in facts["measured"].items()
    }
    row = {
        "arm": ARMS[arm],
        "seed": seed,
        "removed": sum(len(r["heads"]) for r in facts["removals"]),
    }
    columns = {name: perplexity(each) for name, each in losses.items()}
    columns["recovered / before"] = perplexity(losses["recovered"], losses["before"])
    if (control := runs.get((len(ARMS) - 1, seed))) is not None:
        texts = control["measured"]["recovered"]["texts"]
        beside = Losses(np.array(texts["nats"]), np.array(texts["tokens"]))
        columns["recovered / trained_on"] = perplexity(losses["recovered"], beside)
    for name, each in columns.items():
        row |= {name: each.value, f"{name}, low": each.low, f"{name}, high": each.high}
    last = facts["measured"]["recovered"]
    rows.append(
        row | {key: last[key] for key in ("parameters", "weight_bytes", "cache_bytes_per_token")}
    )
pd.DataFrame(rows).to_csv(Path(__file__).with_name("table.csv"), index=False, float_format="%.5g")
