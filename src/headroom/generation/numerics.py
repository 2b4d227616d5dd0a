"""Other numerics for the base model: what a numeric placebo changes, and all that it changes.

The order in which questions are decoded and the number of rows decoded together decide who shares
a batch with whom: shapes, padding and with them kernels and rounding. In float32 no token depends
on them, unless two logits are nearly equal; in half precision some do.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

_Item = TypeVar("_Item")


def reordered(items: Sequence[_Item], placebo: int) -> list[_Item]:
    """Return items in the placebo's own random order."""
    order = np.random.default_rng(placebo).permutation(len(items))
    return [items[place] for place in order]


def rows_together(batch_size: int, placebo: int) -> int:
    """Return how many rows the placebo decodes together: 1, 2, ... fewer than other variants."""
    return max(1, batch_size - 1 - (placebo - 1) % max(1, batch_size // 2))
