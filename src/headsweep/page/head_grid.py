"""Grids of heads on the page: rows are layers, columns heads, colours changes."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

STRONGEST = 0.16
"""The gain beyond which all have the strongest colour. Each colour before ends at half of the next
one's."""
STEPS = 5
"""How many colours there are on each side of zero."""
_LABELS = 14  # of columns, at most: in a narrow grid more would run into one another

Head = Mapping[Any, Any]
"""What is known of a head, its `layer` and `head` (a number) among it."""


@dataclass(frozen=True)
class HeadGrid:
    """Heads in their places."""

    labels: list[str]
    """A column's head; empty for some where there are many columns."""
    rows: list[tuple[int, list[Head | None]]]
    """A layer, and its heads by column; None where it lacks one that another layer has."""

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.labels)


def placed(heads: Iterable[Head]) -> HeadGrid:
    """Place heads by layer and number."""
    at = {(int(head["layer"]), int(head["head"])): head for head in heads}
    layers = sorted({layer for layer, _ in at})
    columns = sorted({number for _, number in at})
    step = math.ceil(len(columns) / _LABELS)
    labels = ["" if place % step else str(number) for place, number in enumerate(columns)]
    rows = [(layer, [at.get((layer, number)) for number in columns]) for layer in layers]
    return HeadGrid(labels, rows)


def colour(gain: float) -> str:
    """Return the colour class of a gain: u1 to u5 above zero, d1 to d5 below, none for zero."""
    if gain == 0:
        return ""
    step = STEPS - 1 + math.ceil(math.log2(abs(gain) / STRONGEST) - 1e-9)
    return f"{'u' if gain > 0 else 'd'}{min(max(step, 1), STEPS)}"
