"""How large and how fast the arms of a compression are: one table, all arms side by side.

Arms take turns at every pass, so that whatever else the machine does falls on all of them alike.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch

from headroom import paths
from headroom.compression import arm_inputs
from headroom.compression.footprint import (
    Timing,
    latencies,
    model_latencies,
    parameters,
    peak_bytes,
    size,
    weight_bytes,
)
from headroom.config import Config
from headroom.models.geometry import find_heads
from headroom.models.learner import Example, Learner
from headroom.planning.arms import Arm, arms
from headroom.record import Stopwatch, write_record
from headroom.tables import atomic

_ENCODER = "encoder"


class _Measured(NamedTuple):
    """A learner under measurement: an arm's, or its copy with weights of eight bits."""

    arm: str
    quantised: bool
    learner: Learner
    folder: Path

    @property
    def timed(self) -> bool:
        """Whether it is where the others are: weights of eight bits are for the CPU only."""
        return not (self.quantised and torch.cuda.is_available())


def measure(config: Config, compression: str) -> None:
    """Measure the arms of a compression under its first seed, on the GPU if there is one.

    Writes a row for each arm, quantised or not, text length and batch size. A row of one text
    length and batch size also has the peak of memory and the seconds that the whole test part
    takes, answered in one go.
    """
    stopwatch = Stopwatch()
    study = config.compressions[compression]
    wanted = study.settings if study.measured is None else study.measured
    chosen = [arm for arm in arms(config, compression) if arm.name in wanted]
    test = arm_inputs.tested_on(config, chosen[0])
    measured = [one for arm in chosen for one in _load(config, arm, study.seeds[0])]
    examples = measured[0].learner.prepare(test)
    peaks = _peaks(measured, max(study.batches), study.tokens[0])
    rows = []
    for tokens in study.tokens:
        encoders = {
            str(place): one.learner.encoder for place, one in enumerate(measured) if one.timed
        }
        times = model_latencies(
            encoders,
            tokens,
            threads=torch.get_num_threads(),
            batches=study.batches,
            repeats=study.repeats,
        )
        for place, one in enumerate(measured):
            facts = _size(measured, one, tokens)
            for batch in study.batches:
                once = tokens == study.tokens[0] and batch == max(study.batches)
                rows.append(
                    {
                        "arm": one.arm,
                        "quantised": one.quantised,
                        "tokens": tokens,
                        "batch": batch,
                        **_seconds(times[batch].get(str(place))),
                        **facts,
                        "peak_bytes": peaks.get(one.arm) if once and not one.quantised else None,
                        "end_to_end_seconds": _end_to_end(one, examples) if once else None,
                    }
                )
    output = Path(paths.MEASUREMENTS.format(run=config.run, compression=compression))
    table = pd.DataFrame(rows).astype({"peak_bytes": "Int64"})
    with atomic(output) as temporary:
        table.to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    facts = {"device": device, "threads": torch.get_num_threads(), "seed": study.seeds[0]}
    write_record(output, stopwatch, {"compression": compression, **facts})


def _load(config: Config, arm: Arm, seed: int) -> list[_Measured]:
    folder = arm_inputs.folder(config, arm, seed)
    learner = arm_inputs.left(config, arm, seed)
    found = [_Measured(arm.name, False, learner, folder)]
    if arm.name in arm.study.int8:
        found.append(_Measured(arm.name, True, learner.quantised(), folder))
    if torch.cuda.is_available():
        learner.network.to("cuda")
    return found


def _size(measured: list[_Measured], one: _Measured, tokens: int) -> dict[str, Any]:
    """Return sizes; eight bits change the bytes of weights, and nothing else that is counted."""
    whole = next(
        other.learner for other in measured if other.arm == one.arm and not other.quantised
    )
    geometry = find_heads(whole.encoder)
    found = size(whole.encoder, geometry, tokens)
    return {
        "heads": sum(layer.query_heads for layer in geometry.layers),
        "parameters": found.parameters,
        "layer_parameters": found.layer_parameters,
        "whole_parameters": parameters(whole.network),
        "flops": found.flops,
        "flops_counted": found.flops_counted,
        "weight_bytes": weight_bytes(one.learner.encoder),
    }


def _seconds(timing: Timing | None) -> dict[str, float | None]:
    if timing is None:
        return dict.fromkeys(("seconds", "seconds_low", "seconds_high"))
    return {"seconds": timing.median, "seconds_low": timing.low, "seconds_high": timing.high}


def _peaks(measured: Sequence[_Measured], batch: int, tokens: int) -> dict[str, int]:
    """Return the peak of memory of each arm.

    Weights of eight bits are made after loading: their peak is that of the whole ones.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    folders = {
        one.arm: one.folder / _ENCODER if (one.folder / _ENCODER).is_dir() else one.folder
        for one in measured
        if not one.quantised
    }
    return dict(
        zip(folders, peak_bytes(list(folders.values()), batch, tokens, device), strict=True)
    )


def _end_to_end(one: _Measured, examples: Sequence[Example]) -> float | None:
    if not one.timed:
        return None
    call = {"": lambda: one.learner.verdicts(examples)}
    threads = torch.get_num_threads()
    return latencies(call, threads=threads, repeats=1, warm_ups=0)[""].median
