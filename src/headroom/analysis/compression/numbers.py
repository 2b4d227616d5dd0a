"""The numbers of an arm: accuracy over seeds against the baseline's, and what the arm saves.

All are parts of 1, so that 0.25 is 25%, and differences 0.01 to a percentage point.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

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
SAVINGS += ["test_time"]
"""Columns: heads; parameters of the encoder, removed, and what the removed heads held by
arithmetic; of the whole solver, and removed of it; arithmetic removed, and the speed-up if time
followed it; seconds of a pass, t0 / t1 - 1 and 1 - t1 / t0 at the smallest and the largest batch,
and whether the middle halves of the timings lie apart; bytes of weights; bytes that a fresh process
grows by; seconds for the whole test part, and t0 / t1 - 1 of that."""

RESAMPLES = 2000


@dataclass(frozen=True)
class Difference:
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
    found = {
        "n": values.shape[1],
        "seeds": values.shape[0],
        "accuracy": values.mean(),
        "sd": spread(values),
        "low": float(low),
        "high": float(high),
        "lenient": lenient.to_numpy().mean(),
    }
    base = trial.right(BASELINE, stratum=stratum)
    change = (np.nan, np.nan, np.nan)
    if not base.empty and (arm != BASELINE or quantised):
        against = compared(own, base, trial.seed)
        change = (against.value, against.low, against.high)
    return found | dict(zip(("change", "change_low", "change_high"), change, strict=True))


def difference(trial: Trial, arm: str, other: str) -> Difference:
    """Return the accuracy of an arm minus that of another."""
    return compared(trial.right(arm), trial.right(other), trial.seed)


def difference_of_changes(first: Trial, second: Trial, arm: str) -> Difference:
    """Return an arm's change against the baseline in one trial minus that in another.

    Both are tested on the same data; their seeds are paired by number, which costs nothing, as
    trainings of different solvers share nothing.

    Args:
        first: what is subtracted.
        second: what it is subtracted from.
        arm: its name in both.
    """
    changes = [
        trial.right(arm).sub(trial.right(BASELINE)).dropna(how="all").dropna(axis=1)
        for trial in (second, first)
    ]
    return compared(changes[0], changes[1], first.seed)


def compared(own: pd.DataFrame, other: pd.DataFrame, seed: int) -> Difference:
    """Return the mean difference of two tables of seeds by examples, over what both have."""
    values = paired(own, other)
    low, high = bootstrap(*values.shape, seed).interval(values)
    return Difference(float(values.mean()), float(low), float(high), *values.shape)


def paired(own: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    """Return the differences of two tables, [seeds, examples], over what both have."""
    seeds = own.index.intersection(other.index)
    examples = own.columns.intersection(other.columns)
    first, second = (table.loc[seeds, examples].to_numpy() for table in (own, other))
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
    first, before = own.iloc[0], base.iloc[0]
    peak, peak_before, end, end_before = (
        float(rows[column].max())
        for column in ("peak_bytes", "end_to_end_seconds")
        for rows in (own, base)
    )
    flops = first["flops"] / before["flops"]
    held = np.nan
    if trial.encoder is not None:
        held = removed * trial.encoder.head_parameters / before["parameters"]
    return found | {
        "parameters": first["parameters"],
        "parameters_removed": 1 - first["parameters"] / before["parameters"],
        "parameters_at_most": held,
        "whole": first["whole_parameters"],
        "whole_removed": 1 - first["whole_parameters"] / before["whole_parameters"],
        "flops_removed": 1 - flops,
        "speedup_at_most": 1 / flops - 1,
        **_speed("small", before, first),
        **_speed("large", base.iloc[-1], own.iloc[-1]),
        "weight_bytes": first["weight_bytes"],
        "weight_removed": 1 - first["weight_bytes"] / before["weight_bytes"],
        "peak_bytes": peak,
        "peak_removed": 1 - peak / peak_before,
        "end_to_end": end,
        "end_to_end_faster": end_before / end - 1,
        "test_time": end / end_before,
    }


def _speed(size: str, base: pd.Series, own: pd.Series) -> dict[str, Any]:
    """Return a speed-up at one batch size, stated both ways."""
    before, after = base["seconds"], own["seconds"]
    apart = own["seconds_high"] < base["seconds_low"] or own["seconds_low"] > base["seconds_high"]
    return {
        f"{size}_batch": int(own["batch"]),
        f"seconds_{size}": after,
        f"faster_{size}": before / after - 1,
        f"saved_{size}": 1 - after / before,
        f"apart_{size}": bool(apart),  # the middle halves of the timings do not overlap
    }


def _measured(trial: Trial, arm: str, quantised: bool) -> pd.DataFrame:
    """Return an arm's measurements at the first length, by rising batch size."""
    rows = trial.measurements
    own = rows[(rows["arm"] == arm) & (rows["quantised"] == quantised)]
    return own[own["tokens"] == rows["tokens"].iloc[0]].sort_values("batch") if len(own) else own
