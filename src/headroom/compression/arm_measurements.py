"""How large and how fast the arms of a compression are: one table, all arms side by side.

Arms take turns at every pass, so that whatever else the machine does falls on all of them alike.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch

from headroom import paths
from headroom.compression.arm_jobs import folder_of, left, tested_on
from headroom.compression.footprint import (
    Timing,
    dummy_texts,
    latencies,
    parameters,
    peak_bytes,
    size,
    weight_bytes,
)
from headroom.config import Config
from headroom.models.geometry import find_heads
from headroom.models.learner import Learner
from headroom.planning.batches import arms
from headroom.record import Stopwatch, write_record
from headroom.tables import atomic

_ENCODER = "encoder"
_SECONDS = ("seconds", "seconds_low", "seconds_high")


class _Measured(NamedTuple):
    """A learner under measurement: an arm's, or its copy with weights of eight bits."""

    arm: str
    quantised: bool
    learner: Learner
    whole: Learner
    """The same without eight bits."""

    @property
    def timed(self) -> bool:
        """Whether it is where the others are: weights of eight bits are for the CPU only."""
        return not (self.quantised and torch.cuda.is_available())


def measure(config: Config, compression: str) -> None:
    """Measure the arms of a compression under its first seed, on the GPU if there is one.

    Writes a row for each arm, quantised or not, text length and batch size. A row of one text
    length and batch size also has the peak of memory and the seconds that the whole test part
    takes, answered in one go. Weights of eight bits are made after loading: their peak is that of
    the whole ones.
    """
    stopwatch = Stopwatch()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    study = config.compressions[compression]
    wanted = study.settings if study.measured is None else study.measured
    chosen = [arm for arm in arms(config, compression) if arm.name in wanted]
    folders: dict[str, Path] = {}
    measured: list[_Measured] = []
    for arm in chosen:
        folder = folder_of(config, arm, study.seeds[0])
        folders[arm.name] = folder / _ENCODER if (folder / _ENCODER).is_dir() else folder
        whole = left(config, arm, study.seeds[0])
        measured.append(_Measured(arm.name, False, whole, whole))
        if arm.name in study.int8:
            measured.append(_Measured(arm.name, True, whole.quantised(), whole))
        whole.network.to(device)
    examples = measured[0].learner.prepare(tested_on(config, chosen[0]))
    most = max(study.batches)
    peaks = peak_bytes(list(folders.values()), most, study.tokens[0], device)
    peak_of = dict(zip(folders, peaks, strict=True))
    rows = []
    for tokens in study.tokens:
        times = {batch: _passes(measured, batch, tokens, study.repeats) for batch in study.batches}
        for place, one in enumerate(measured):
            sizes = _sizes(one, tokens)
            for batch in study.batches:
                once = tokens == study.tokens[0] and batch == most
                spent = None
                if once and one.timed:
                    calls = {"": lambda one=one: one.learner.verdicts(examples)}
                    spent = latencies(calls, repeats=1, warm_ups=0)[""].median
                rows.append(
                    {
                        "arm": one.arm,
                        "quantised": one.quantised,
                        "tokens": tokens,
                        "batch": batch,
                        **dict(zip(_SECONDS, times[batch].get(place, (None,) * 3), strict=True)),
                        **sizes,
                        "peak_bytes": peak_of[one.arm] if once and not one.quantised else None,
                        "end_to_end_seconds": spent,
                    }
                )
    output = Path(paths.MEASUREMENTS.format(run=config.run, compression=compression))
    table = pd.DataFrame(rows).astype({"peak_bytes": "Int64"})
    with atomic(output) as temporary:
        table.to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")
    name = torch.cuda.get_device_name() if device == "cuda" else device
    facts = {"device": name, "threads": torch.get_num_threads(), "seed": study.seeds[0]}
    write_record(output, stopwatch, {"compression": compression, **facts})


def _passes(
    measured: Sequence[_Measured], batch: int, tokens: int, repeats: int
) -> dict[int, Timing]:
    """Return the seconds of a pass over texts, by place among what is measured."""
    texts = dummy_texts(measured[0].learner.encoder, batch, tokens)
    calls = {
        place: partial(one.learner.encoder, **texts)
        for place, one in enumerate(measured)
        if one.timed
    }
    return latencies(calls, repeats=repeats)


def _sizes(one: _Measured, tokens: int) -> dict[str, Any]:
    """Return sizes; eight bits change the bytes of weights, and nothing else that is counted."""
    encoder = one.whole.encoder
    geometry = find_heads(encoder)
    found = size(encoder, geometry, tokens)
    return {
        "heads": sum(layer.query_heads for layer in geometry.layers),
        "parameters": found.parameters,
        "layer_parameters": found.layer_parameters,
        "whole_parameters": parameters(one.whole.network),
        "flops": found.flops,
        "flops_counted": found.flops_counted,
        "weight_bytes": weight_bytes(one.learner.encoder),
    }
