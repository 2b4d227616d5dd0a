"""Small solvers from scratch, by the names of their profiles."""

from typing import Any


def _profile(
    width: int,
    layers: int,
    heads: int,
    intermediate: int,
    dropout: float,
    *,
    epochs: int,
    learning_rate: float,
    batch_size: int = 32,
) -> dict[str, Any]:
    """Return the settings of a solver: its shape, and how it is trained."""
    shape = {"width": width, "layers": layers, "heads": heads, "intermediate": intermediate}
    training = {"epochs": epochs, "learning_rate": learning_rate, "batch_size": batch_size}
    return {
        "encoder": {**shape, "dropout": dropout},
        "training": {**training, "patience": None},
        "dropout": dropout,
    }


PROFILES = {
    "fixture": _profile(64, 2, 4, 128, 0.0, epochs=7, learning_rate=2e-3, batch_size=16),
    "tiny": _profile(128, 3, 8, 256, 0.2, epochs=50, learning_rate=1e-3),
    "small": _profile(256, 4, 8, 512, 0.2, epochs=30, learning_rate=1e-3),
    "medium": _profile(512, 6, 8, 1024, 0.3, epochs=40, learning_rate=5e-4),
}
