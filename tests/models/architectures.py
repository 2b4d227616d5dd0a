"""Writes config/architectures.md: what is tested, and how far masked heads are from zeroed weights.

python tests/models/architectures.py
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tiny_models
from tiny_models import DECODERS, ENCODERS, HYBRIDS, Architecture, outputs

from headsweep.engine.weights import serves
from headsweep.models.geometry import find_heads
from headsweep.models.masks import edited_weights, pruned

PAGE = Path(__file__).parents[2] / "config" / "architectures.md"
TESTED = {"decoder": DECODERS, "hybrid decoder": HYBRIDS, "encoder": ENCODERS}
_HEAD = """# Tested architectures

`transformers` builds each of these in small, with random float32 weights. Every one of its heads
is masked in turn, and the outputs are compared with those of the same model with that head's
weights zeroed. *Deviation* is the largest difference of an output, *effect* the smallest change
that losing a head makes, both as shares of the largest output. *Answers by*: headsweep's own
forward (*packed*), or `transformers`' modules. Hybrid decoders keep more than keys and values: they
can be pruned, but not swept. Heads are found by watching data flow, not by name, so other
architectures usually work; what cannot be pruned is refused. Made by `make architectures`.

"""
_COLUMNS = (
    "| architecture | kind | layers with heads | query heads | key/value heads | answers by "
    "| deviation | effect |\n| --- | --- | --: | --: | --: | --- | --: | --: |\n"
)


def deviation(architecture: Architecture) -> tuple[bool, float, float]:
    """Return what losing each head does, as shares of the largest output.

    First whether headsweep's own forward serves the model; then the largest difference between
    masked head and zeroed weights, and the smallest change of the outputs by a head.
    """
    model = tiny_models.build(architecture)
    geometry = find_heads(model)
    base = outputs(model)
    apart, effects = [], []
    for variant in geometry.by_original_name().values():
        with pruned(model, geometry, variant):
            masked = outputs(model)
        with edited_weights(model, geometry, variant):
            zeroed = outputs(model)
        apart.append(float((masked - zeroed).abs().max()))
        effects.append(float((zeroed - base).abs().max()))
    scale = float(base.abs().max())
    loaded: Any = SimpleNamespace(model=model, geometry=geometry)
    return serves(loaded), max(apart) / scale, min(effects) / scale


def row(architecture: Architecture, kind: str) -> str:
    packed, largest, effect = deviation(architecture)
    answering = {"decoder": "packed" if packed else "modules", "hybrid decoder": "refused"}
    by = answering.get(kind, "–")
    heads = f"{len(architecture.layers)} | {tiny_models.QUERY_HEADS} | {architecture.kv_heads}"
    apart = f"{largest:.0e}" if largest else "0"
    return f"| `{architecture.name}` | {kind} | {heads} | {by} | {apart} | {effect:.2f} |\n"


def page() -> str:
    rows = (row(each, kind) for kind, tested in TESTED.items() for each in tested)
    return _HEAD + _COLUMNS + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
