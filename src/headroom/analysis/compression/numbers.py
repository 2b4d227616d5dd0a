"""The numbers of an arm: accuracy over seeds against the baseline's, and what the arm saves.

All are parts of 1, so that 0.25 is 25%, and differences 0.01 to a percentage point.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from headroom.analysis.compression.trial import BASELINE, Trial
from headroom.statistics.bootstrap import SeedBootstrap, spread

ACCURACY = ["n", "seeds", "accuracy", "sd", "low", "high", "lenient"]
ACCURACY += ["change", "change_low", "change_high"]
"""Columns: examples, seeds, share of right answers (mean over seeds), its standard deviation over
seeds (empty for one), its 95% interval; with fewer digits compared; difference to the baseline of
the same seeds and examples, with its interval."""

SAVINGS = ["heads_removed", "heads", "parameters", "parameters_removed", "parameters_at_most"]
SAVINGS += ["whole", "whole_removed", "flops_removed", "speedup_at_most"]
SAVINGS += ["small_batch", "seconds_small", "faster_small", "saved_small"]
SAVINGS += ["large_batch", "seconds_large", "faster_large", "saved_large", "weight_bytes"]
SAVINGS += ["apart_small", "apart_large"]
SAVINGS += ["weight_removed", "peak_bytes", "peak_removed", "end_to_end", "end_to_end_faster"]
SAVINGS += ["test_time", "test_time_low", "test_time_high"]
"""Columns: heads; parameters of the encoder, removed, and what the removed heads held by
arithmetic; of the whole solver, and removed of it; arithmetic removed, and the speed-up if time
followed it; seconds of a pass, t0 / t1 - 1 and 1 - t1 / t0 at the smallest and the largest batch,
and whether the middle halves of the timings lie apart; bytes of weights; bytes that a fresh process
grows by; seconds for the whole test part, t0 / t1 - 1 of that; t1 / t0 with its interval, timed
in turns."""

RESAMPLES = 2000


class Difference(NamedTuple):
    """A difference of two accuracies on the same seeds and examples, and its 95% interval."""

    value: float
    low: float
    high: float
    seeds: int
    n: int


@lru_cache(maxsize=1024)
def accuracy(
    trial: Trial, arm: str, *, quantised: bool = False, stratum: str | None = None
) -> Mapping[str, Any]:
    """Return an arm's accuracy: `ACCURACY`; the baseline is never the quantised one."""
    own = trial.right(arm, quantised=quantised, stratum=stratum)
    values = own.to_numpy()
    low, high = bootstrap(*values.shape, trial.seed).interval(values)
    lenient = trial.right(arm, quantised=quantised, stratum=stratum, lenient=True)
    base = trial.right(BASELINE, stratum=stratum)
    change: tuple[float, ...] = (np.nan, np.nan, np.nan)
    if not base.empty and (arm != BASELINE or quantised):
        change = compared(own, base, trial.seed)[:3]
    mean, lenient_mean = values.mean(), lenient.to_numpy().mean()
    found = (*values.shape[::-1], mean, spread(values), float(low), float(high), lenient_mean)
    return dict(zip(ACCURACY, (*found, *change), strict=True))


def difference(trial: Trial, arm: str, other: str) -> Difference:
    """Return the accuracy of an arm minus that of another."""
    return compared(trial.right(arm), trial.right(other), trial.seed)


def difference_of_changes(first: Trial, second: Trial, arm: str) -> Difference:
    """Return an arm's change against the baseline in the second trial minus that in the first.

    Both are tested on the same data; their seeds are paired by number, which costs nothing, as
    trainings of different solvers share nothing.
    """
    own, other = (
        trial.right(arm).sub(trial.right(BASELINE)).dropna(how="all").dropna(axis=1)
        for trial in (second, first)
    )
    return compared(own, other, first.seed)


def compared(own: pd.DataFrame, other: pd.DataFrame, seed: int) -> Difference:
    """Return the mean difference of two tables of seeds by examples, over what both have."""
    values = paired(own, other)
    low, high = bootstrap(*values.shape, seed).interval(values)
    return Difference(float(values.mean()), float(low), float(high), *values.shape)


def paired(own: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    """Return the differences of two tables, [seeds, examples], over what both have."""
    first, second = own.align(other, join="inner")
    return np.asarray(first - second)


@lru_cache(maxsize=8)
def bootstrap(seeds: int, examples: int, seed: int) -> SeedBootstrap:
    """Return the resamples that all arms of a size share."""
    return SeedBootstrap(seeds, examples, RESAMPLES, seed)


def savings(trial: Trial, arm: str, *, quantised: bool = False) -> dict[str, Any]:
    """Return what an arm saves: `SAVINGS`, empty where it was not measured.

    Of the lengths that were measured the first counts.
    """
    removed, heads = trial.heads(arm)
    found: dict[str, Any] = dict.fromkeys(SAVINGS, np.nan)
    found |= {"heads_removed": removed, "heads": heads}
    own, base = (_measured(trial, *of) for of in ((arm, quantised), (BASELINE, False)))
    if own.empty or base.empty:
        return found
    most = pd.concat([own.max(numeric_only=True), base.max(numeric_only=True)], axis=1)
    left = (most[0] / most[1]).to_dict()
    for column, name in (
        ("parameters", "parameters"),
        ("whole_parameters", "whole"),
        ("weight_bytes", "weight"),
        ("peak_bytes", "peak"),
    ):
        found[f"{name}_removed"] = 1 - left[column]
        found[name if name in found else f"{name}_bytes"] = most[0][column]
    for size, row in (("small", 0), ("large", -1)):
        before, after = base.iloc[row], own.iloc[row]
        ratio = before["seconds"] / after["seconds"]
        found[f"{size}_batch"] = int(after["batch"])
        found[f"seconds_{size}"] = after["seconds"]
        found[f"faster_{size}"], found[f"saved_{size}"] = ratio - 1, 1 - 1 / ratio
        found[f"apart_{size}"] = bool(  # the middle halves of the timings do not overlap
            after["seconds_high"] < before["seconds_low"]
            or after["seconds_low"] > before["seconds_high"]
        )
    if trial.encoder is not None:
        held = removed * trial.encoder.head_parameters
        found["parameters_at_most"] = held / most[1]["parameters"]
    return found | {
        "flops_removed": 1 - own["flops"].iloc[0] / base["flops"].iloc[0],
        "speedup_at_most": base["flops"].iloc[0] / own["flops"].iloc[0] - 1,
        "end_to_end": most[0]["end_to_end_seconds"],
        "end_to_end_faster": 1 / left["end_to_end_seconds"] - 1,
        **most[0].reindex(["test_time", "test_time_low", "test_time_high"]),
    }


def _measured(trial: Trial, arm: str, quantised: bool) -> pd.DataFrame:
    """Return an arm's measurements at the first length, by rising batch size."""
    rows = trial.measurements
    own = rows[(rows["arm"] == arm) & (rows["quantised"] == quantised)]
    return own[own["tokens"] == rows["tokens"].iloc[0]].sort_values("batch") if len(own) else own
