"""The verdicts on compressions, from which test answers of each arm are right.

A time is what it was when it was measured: no file lets it be computed again.
"""

import json

import numpy as np
import pandas as pd

from recomputed.chance import LEVEL, Difference, resampled, sign
from recomputed.run import Fact

METHOD, CONTROL = "full", "trained_on"
_RESAMPLES = 2000


def facts(run):
    """Return the numbers of the verdicts, by topic and name; the topic has the verdict's place."""
    found = {}
    for place, (name, section) in enumerate(run.config["compressions"].items(), 1):
        own = _facts(run.folder / "compression" / name, section)
        found |= {(f"compression {place}", key): fact for key, fact in own.items()}
    return found


def _facts(folder, section):
    answers = pd.read_parquet(folder / "outcomes.parquet")
    answers = answers[~answers["quantised"]]
    if answers["seed"].nunique() > 1:
        raise ValueError(f"{folder} has several seeds; their chance is not recomputed here")
    right = answers.pivot(index="example_id", columns="arm", values="strict").astype(float)
    changes = right.sub(right[CONTROL], axis=0)
    (low, high), (luck_low, luck_high) = _interval(changes[METHOD])
    history = json.loads((folder / "histories.json").read_text())[METHOD]
    (of_seed,) = history.values()
    change = Difference(changes[METHOD].mean(), low, high, np.nan)
    found = {
        "ratio": Fact(100 * section["method"]["ratio"]),
        "sign": Fact(sign(change)),
        "difference": Fact(100 * change.mean),
        "low": Fact(100 * low, 100 * luck_low),
        "high": Fact(100 * high, 100 * luck_high),
        "questions": Fact(len(right)),
        "fewer": Fact(100 * (1 - of_seed["rounds"][-1]["parameters"] / of_seed["parameters"])),
    }
    if "pruning_only" in changes:
        found["alone"] = Fact(100 * changes["pruning_only"].mean())
    if "causal" in changes:
        found["causal"] = Fact(100 * changes["causal"].mean())
    return found


def _interval(change):
    """Return the ends of a mean's interval over questions, and the luck of either."""
    return resampled(
        change.to_numpy()[:, np.newaxis],
        lambda means: np.quantile(means[:, 0], (LEVEL / 2, 1 - LEVEL / 2)),
        _RESAMPLES,
        step=1 / len(change),
    )
