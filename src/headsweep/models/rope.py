"""Rotary embeddings that a batch cannot share, refused by a config alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headsweep.errors import ModelError
from headsweep.models.guard import read_decoder_config

_CHANGING = {"dynamic", "longrope"}
"""Types whose frequencies follow the longest row of a batch."""


def check_rope(folder: Path) -> None:
    """Refuse a folder whose rotary embedding follows the length of what the model reads.

    Raises:
        ModelError: its config.json says so.
    """
    config = read_decoder_config(folder)
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    check_rope_types(rope if isinstance(rope, dict) else {})


def check_rope_types(rope: Mapping[str, Any]) -> None:
    """Refuse rotary embeddings, or those of kinds of layers, that follow the length.

    Raises:
        ModelError: one does.
    """
    parts = [rope, *(part for part in rope.values() if isinstance(part, dict))]
    types = {str(part.get("rope_type", part.get("type"))) for part in parts}
    if changing := sorted(types & _CHANGING):
        raise ModelError(
            f"rope_type {changing[0]!r} makes an answer depend on the other rows of its batch; set "
            f"rope_parameters in the model's config.json to a fixed type"
        )
