"""What does a reasoning model gain by losing an attention head?

`sweep` answers a benchmark without each head in turn, `load` reads a finished run, `prune` removes
heads for good, `pruned` for the time of a block; `grade` and `compare` judge anyone's answers.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PLACES = {
    "Pruned": "experiments.compression.pruning.Pruned",
    "Run": "results.run.Run",
    "Solver": "cli.solve.Solver",
    "compare": "cli.compare_answers.compare",
    "export_gguf": "models.gguf_export.export_gguf",
    "grade": "grading.verdicts.grade",
    "load": "results.run.Run",
    "load_model": "models.load.load_checkpoint",
    "prune": "experiments.compression.pruning.prune",
    "prune_and_recover": "experiments.recovery.prune.prune_and_recover",
    "pruned": "models.masks.without_head",
    "sweep": "cli.sweep.sweep",
}
"""The public functions and classes, imported on first use: torch alone takes seconds."""

__all__ = tuple(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'headsweep' has no attribute {name!r}")
    module, _, attribute = _PLACES[name].rpartition(".")
    return getattr(import_module(f"headsweep.{module}"), attribute)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
