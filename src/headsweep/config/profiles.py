"""Small solvers from scratch, by the names of their profiles."""

from typing import Any


def _profile(
    *,
    width: int,
    layers: int,
    heads: int,
    intermediate: int,
    dropout: float,
    epochs: int,
    learning_rate: float,
    batch_size: int,
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
    "fixture": _profile(
        width=64,
        layers=2,
        heads=4,
        intermediate=128,
        dropout=0.0,
        epochs=7,
        learning_rate=2e-3,
        batch_size=16,
    ),
    "tiny": _profile(
        width=128,
        layers=3,
        heads=8,
        intermediate=256,
        dropout=0.2,
        epochs=50,
        learning_rate=1e-3,
        batch_size=32,
    ),
    "small": _profile(
        width=256,
        layers=4,
        heads=8,
        intermediate=512,
        dropout=0.2,
        epochs=30,
        learning_rate=1e-3,
        batch_size=32,
    ),
    "medium": _profile(
        width=512,
        layers=6,
        heads=8,
        intermediate=1024,
        dropout=0.3,
        epochs=40,
        learning_rate=5e-4,
        batch_size=32,
    ),
}
