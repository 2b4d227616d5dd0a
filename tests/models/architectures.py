"""Writes config/architectures.md: what was tried with each architecture, and what is refused.

python tests/models/architectures.py
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import tiny_models
from tiny_models import DECODERS, ENCODERS, HYBRIDS, Architecture, outputs
from trials import TRIALS, save, tried

from headsweep.models.geometry import find_heads
from headsweep.models.masks import edited_weights, pruned

PAGE = Path(__file__).parents[2] / "config" / "architectures.md"
TESTED = {"decoder": DECODERS, "hybrid decoder": HYBRIDS, "encoder": ENCODERS}
_HEAD = """# Tested architectures

`transformers` builds each of these in small, with random float32 weights. Every one of its heads
is masked in turn, and the outputs are compared with those of the same model with that head's
weights zeroed. *Deviation* is the largest difference of an output, *effect* the smallest change
that losing a head makes, both as shares of the largest output. Heads are found by watching data
flow, not by name, so other architectures usually work. Made by `make architectures`.

The other columns are tried to the end, from a folder in the hub's format. *Sweep*: answers with and
without heads are those of `generate` on zeroed weights, by headsweep's own forward (*packed*) or by
`transformers`' modules. *Map*: so are a text's log-probabilities. *Prune*: heads are *cut* out, or
only *zeroed*, and what is loaded again computes as with zeroed weights. *Recover*: by
`prune --recover` in two rounds, then loaded and measured again. *Export*: the graph of llama.cpp in
a GGUF file whose logits, read back, are the model's. What is *refused*, and why, stands below.

"""
_COLUMNS = ("architecture", "kind", "layers", "query heads", "key/value heads", *TRIALS)
_NUMBERS = ("deviation", "effect")
_RIGHT = (*_COLUMNS[2:5], *_NUMBERS)


def deviation(architecture: Architecture) -> tuple[float, float]:
    """Return what losing each head does, as shares of the largest output.

    The largest difference between masked head and zeroed weights, and the smallest change of the
    outputs by a head.
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
    return max(apart) / scale, min(effects) / scale


def cells(architecture: Architecture, kind: str) -> tuple[list[str], dict[str, str]]:
    """Return the cells of an architecture's row, and by trial why headsweep refused it."""
    row = [f"`{architecture.name}`", kind, str(len(architecture.layers))]
    row += [str(tiny_models.QUERY_HEADS), str(architecture.kv_heads)]
    reasons = {}
    with TemporaryDirectory() as place:
        folder = save(architecture, Path(place, "whole"))
        for name in TRIALS:
            out = Path(place, name)
            out.mkdir()
            word, reason = tried(name, folder, out)
            row.append(word)
            if reason:
                reasons[name] = reason
    apart, effect = deviation(architecture)
    return [*row, f"{apart:.0e}" if apart else "0", f"{effect:.2f}"], reasons


def _line(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |\n"


def page(tried: Iterable[tuple[list[str], dict[str, str]]]) -> str:
    """Return the page, from the cells of each architecture."""
    columns = (*_COLUMNS, *_NUMBERS)
    rows = _line(columns) + _line(["--:" if name in _RIGHT else "---" for name in columns])
    refusals: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row, reasons in tried:
        rows += _line(row)
        trials = defaultdict(list)
        for trial, reason in reasons.items():
            trials[reason].append(trial)
        for reason, names in trials.items():
            refusals[", ".join(names), reason].append(row[0])
    told = [f"- {trial} of {', '.join(of)}: {reason}\n" for (trial, reason), of in refusals.items()]
    return f"{_HEAD}{rows}\n## Refused\n\n{''.join(told)}"


if __name__ == "__main__":
    of_all = (cells(each, kind) for kind, tested in TESTED.items() for each in tested)
    PAGE.write_text(page(of_all), encoding="utf-8")
