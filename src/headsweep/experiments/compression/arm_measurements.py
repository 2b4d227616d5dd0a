"""Measures the size and speed of the arms of a compression."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from headsweep.answers.exclusive import gpu_held
from headsweep.config.compression import is_narrow
from headsweep.config.experiments import BASELINE
from headsweep.experiments.compression import savings
from headsweep.experiments.compression.arm_jobs import learner_of, test_part
from headsweep.files import paths
from headsweep.files.record import Stopwatch, write_record
from headsweep.files.safe_files import write_csv
from headsweep.models.geometry import find_heads
from headsweep.models.learner import Learner, quantised
from headsweep.models.timing import seconds_of
from headsweep.statistics.intervals import half_width
from headsweep.store.batches import arms
from headsweep.store.layout import Store

_BASE = (BASELINE, False)  # to whose times the others are relative
_WARM_UPS = 3  # before a pass is timed
_FEWEST_TURNS, _TURNS = 2, 4  # two may agree by chance, but a test may take minutes
_MORE_SECONDS = 10.0  # for further turns
_TEST_TIME = ("end_to_end_seconds", "test_time", "test_time_low", "test_time_high")


class _Measured(NamedTuple):
    """A learner to measure: an arm's, or its copy with 8-bit weights."""

    arm: str
    quantised: bool
    learner: Learner
    whole: Learner  # the same with its original weights
    peak: int | None  # bytes, see `savings.peak_bytes`


@gpu_held()
def measure(store: Store, compression: str) -> None:
    """Measure the arms of a compression under its first seed, on the GPU if there is one.

    Writes one row per arm (quantised or not), text length and batch size, with the median and
    quartiles of the seconds of one forward pass of the encoder or decoder; for a decoder also the
    bytes of a token's keys and values. The row of the first length and the largest batch also has
    the peak memory (weights and what a pass holds, see `savings.peak_bytes`), the seconds to answer
    the whole test part (without grading) and these seconds relative to the arm `baseline` (see
    `_answering`). A CPU computes on one thread. 8-bit weights run on a CPU only, so they are not
    timed where there is a GPU; their peak is not counted.
    """
    stopwatch = Stopwatch()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    study = store.config.compressions[compression]
    wanted = study.settings if study.measured is None else study.measured
    chosen = [arm for arm in arms(store.config, compression) if arm.name in wanted]
    first = study.tokens[0]
    most = max(study.batches)
    measured: list[_Measured] = []
    for arm in chosen:
        whole = learner_of(store, arm, study.seeds[0])
        whole.network.to(device)
        whole = whole.finished()
        peak = savings.peak_bytes(whole.encoder, most, first)
        measured.append(_Measured(arm.name, False, whole, whole, peak))
        if arm.name in study.int8:
            small = whole.with_network(quantised(whole.network))
            measured.append(_Measured(arm.name, True, small, whole, None))

    examples = test_part(store, chosen[0], measured[0].learner)
    with torch.inference_mode(), _one_thread():
        _timed(measured, lambda entry: entry.answers(examples[: entry.at_once]), 1)  # a warm-up
        test = _answering(measured, lambda learner: learner.answers(examples))
        speeds = {
            (tokens, batch): _speeds(measured, batch, tokens, study.repeats)
            for tokens in study.tokens
            for batch in study.batches
        }

    rows = []
    for tokens in study.tokens:
        for place, entry in enumerate(measured):
            sizes = _sizes(entry, tokens)
            for batch in study.batches:
                row = {
                    "arm": entry.arm,
                    "quantised": entry.quantised,
                    "tokens": tokens,
                    "batch": batch,
                    **speeds[tokens, batch][place]._asdict(),
                    **sizes,
                }
                if tokens == first and batch == most:
                    row["peak_bytes"] = entry.peak
                    row |= dict(zip(_TEST_TIME, test[place], strict=True))
                rows.append(row)
    output = store.path(paths.MEASUREMENTS, compression=compression)
    table = pd.DataFrame(rows).astype({"peak_bytes": "Int64", "cache_bytes": "Int64"})
    write_csv(output, table, 6)
    name = torch.cuda.get_device_name() if device == "cuda" else device
    facts = {"device": name, "threads": 1, "seed": study.seeds[0]}
    write_record(output, stopwatch, {"compression": compression, **facts})


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread: several mostly wait for each other, the longer the busier it is."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Speed(NamedTuple):
    """The seconds of a learner's pass: median and quartiles."""

    seconds: float
    seconds_low: float
    seconds_high: float


def _speeds(measured: Sequence[_Measured], batch: int, tokens: int, repeats: int) -> list[_Speed]:
    """Return how fast each learner reads `batch` texts of `tokens` tokens."""
    texts = savings.dummy_texts(measured[0].learner.encoder, batch, tokens)
    turns = _timed(measured, lambda entry: entry.encoder(**texts), repeats, _WARM_UPS)
    return [_Speed(*numbers) for numbers in np.quantile(turns, (0.5, 0.25, 0.75), axis=0).T]


def _answering(
    measured: Sequence[_Measured], answer: Callable[[Learner], Any]
) -> Float[np.ndarray, "measured 4"]:
    """Return the seconds that each learner takes to answer the test, and these relative to the
    baseline's with a 95% interval (see `relative`).

    All answer it by turns: twice, and then until there are four and the intervals are narrow
    (`is_narrow`), or until another turn would take the added ones beyond `_MORE_SECONDS`.
    """
    names = [(entry.arm, entry.quantised) for entry in measured]
    base = names.index(_BASE) if _BASE in names else None
    turns = _timed(measured, answer, _FEWEST_TURNS)
    ratios = relative(turns, base)
    left = _MORE_SECONDS
    while np.nansum(turns[-1]) <= left and not (len(turns) >= _TURNS and _are_narrow(ratios)):
        turns = np.vstack([turns, _timed(measured, answer, 1)])
        ratios = relative(turns, base)
        left -= float(np.nansum(turns[-1]))
    return np.column_stack([np.exp(np.log(turns).mean(axis=0)), ratios])


def _are_narrow(ratios: Float[np.ndarray, "calls 3"]) -> bool:
    """Tell whether the intervals of all ratios that are known are narrow."""
    return all(is_narrow(ratio, high) for ratio, _, high in ratios if not np.isnan(ratio))


def _timed(
    measured: Sequence[_Measured], call: Callable[[Learner], Any], turns: int, warm_ups: int = 0
) -> Float[np.ndarray, "turns measured"]:
    """Return the seconds of a call on each learner; nan for 8-bit weights if there is a GPU.

    The learners take turns, so that other load on the machine affects all of them alike; turns to
    warm up do not count.
    """
    seconds = np.full((turns, len(measured)), np.nan)
    on_gpu = torch.cuda.is_available()
    timed = [not (on_gpu and entry.quantised) for entry in measured]
    calls = [
        partial(call, entry.learner)
        for entry, is_timed in zip(measured, timed, strict=True)
        if is_timed
    ]
    with torch.inference_mode():
        every = [[seconds_of(call) for call in calls] for _ in range(warm_ups + turns)]
    seconds[:, timed] = every[warm_ups:]
    return seconds


def relative(
    seconds: Float[np.ndarray, "turns calls"], base: int | None
) -> Float[np.ndarray, "calls 3"]:
    """Return the time of each call relative to one of them: ratio and 95% confidence interval.

    Two-way model without interaction: log seconds = call + turn + normal error of equal variance.
    The interval is Student's t with the pooled residual variance and (turns - 1) (calls - 1)
    degrees of freedom. It does not carry over to another machine or another test. There are at
    least two turns; calls that were not timed are nan, and without a `base` all results.
    """
    ratios = np.full((seconds.shape[1], 3), np.nan)
    timed = np.flatnonzero(~np.isnan(seconds).any(axis=0))
    if base is None:
        return ratios
    logs = np.log(seconds[:, timed])
    means = logs.mean(axis=0)
    rest = logs - means - logs.mean(axis=1, keepdims=True) + logs.mean()
    turns, calls = logs.shape
    freedom = max((turns - 1) * (calls - 1), 1)
    width = half_width(np.sqrt((rest**2).sum() / freedom * 2 / turns), freedom)
    ratio = (means - np.log(seconds[:, base]).mean())[:, None]
    ratios[timed] = np.exp(ratio + np.array([0, -width, width]))
    ratios[base] = 1
    return ratios


def _sizes(entry: _Measured, tokens: int) -> dict[str, Any]:
    """Return the sizes of a learner; of these, 8-bit weights change `weight_bytes` only."""
    encoder = entry.whole.encoder
    geometry = find_heads(encoder)
    return {
        "heads": geometry.heads,
        "whole_parameters": savings.parameters(entry.whole.network),
        "cache_bytes": savings.cache_bytes(encoder, geometry) if geometry.keeps_cache else None,
        **savings.size(encoder, geometry, tokens)._asdict(),
        "weight_bytes": savings.weight_bytes(entry.learner.encoder),
    }
