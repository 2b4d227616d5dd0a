"""Writes config/architectures.md: what is tested, and how far masked heads are from zeroed weights.

python tests/models/architectures.py
"""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import tiny_models
import torch
from tiny_models import DECODERS, ENCODERS, HYBRIDS, VOCABULARY, Architecture

from headroom.generation.weights import serves
from headroom.models.geometry import find_heads
from headroom.models.masks import edited_weights, pruned
from headroom.variants import Variant

PAGE = Path(__file__).parents[2] / "config" / "architectures.md"
TESTED = {"decoder": DECODERS, "hybrid decoder": HYBRIDS, "encoder": ENCODERS}
_TOKENS = 11
_HEAD = """# Tested architectures

`transformers` builds each of these in small, with random float32 weights. Every one of its heads
is masked in turn, and the outputs are compared with those of the same model with that head's
weights zeroed. *Deviation* is the largest difference of an output, *effect* the smallest change
that losing a head makes, both as shares of the largest output. *Answers by*: headroom's own forward
(*packed*), or `transformers`' modules. Heads are found by watching data flow, not by name, so other
architectures usually work; what cannot be pruned is refused. Made by `make architectures`.

"""
_COLUMNS = (
    *("architecture", "kind", "layers with heads", "query heads", "key/value heads"),
    *("answers by", "deviation", "effect"),
)


class Deviation(NamedTuple):
    """What losing each head does; shares of the largest output."""

    packed: bool  # whether headroom's own forward serves the model
    largest: float  # difference between masked head and zeroed weights
    effect: float  # smallest change of the outputs by a head


def deviation(architecture: Architecture) -> Deviation:
    """Return how far masked heads are from zeroed weights."""
    model = tiny_models.build(architecture)
    geometry = find_heads(model)
    ids = torch.randint(3, VOCABULARY, (1, _TOKENS), generator=torch.Generator().manual_seed(1))

    def outputs() -> torch.Tensor:
        with torch.no_grad():
            return model(input_ids=ids)[0].double()

    base = outputs()
    apart, effects = [], []
    for layer in geometry.layers:
        for head in range(layer.query_heads):
            variant = Variant(layer.index, head)
            with pruned(model, geometry, variant):
                masked = outputs()
            with edited_weights(model, geometry, variant):
                zeroed = outputs()
            apart.append(float((masked - zeroed).abs().max()))
            effects.append(float((zeroed - base).abs().max()))
    scale = float(base.abs().max())
    loaded: Any = SimpleNamespace(model=model, geometry=geometry)
    return Deviation(serves(loaded), max(apart) / scale, min(effects) / scale)


def row(architecture: Architecture, kind: str) -> str:
    found = deviation(architecture)
    cells = [
        *(f"`{architecture.name}`", kind, str(len(architecture.layers))),
        *(str(tiny_models.QUERY_HEADS), str(architecture.kv_heads)),
        "–" if kind == "encoder" else "packed" if found.packed else "modules",
        *(f"{found.largest:.0e}" if found.largest else "0", f"{found.effect:.2f}"),
    ]
    return _line(cells)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page() -> str:
    rows = [row(each, kind) for kind, tested in TESTED.items() for each in tested]
    sides = ["---"] * 2 + ["--:"] * 3 + ["---"] + ["--:"] * 2
    return _HEAD + "\n".join([_line(_COLUMNS), _line(sides), *rows]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
