"""What the figures for print and those of the page have in common. It imports little."""

import numpy as np
from numpy.typing import ArrayLike

_STRONGEST = 0.9
"""The share of a map's heads within its colours: a few change nearly all."""


def strongest(changes: ArrayLike) -> float:
    """Return the change that has a map's strongest colour; NaN is left out."""
    return float(np.nanquantile(np.abs(changes), _STRONGEST)) or 1.0
