"""The test and the band of a head's gain that hold for all heads of a sweep at once.

Gains and harms are corrected together, so that clear harm does not make a gain easier to show:
Holm's correction and the band keep the chance of any false *helps* or *hurts* at its level. A false
discovery rate (Benjamini and Hochberg) does not: beside many heads that hurt, it calls heads
different at a p-value near 0.05.
"""

import numpy as np
import pandas as pd
from jaxtyping import Int

from headsweep.statistics import SIGNIFICANCE
from headsweep.statistics.intervals import holm, mcnemar, paired_interval


def tested(differences: Int[np.ndarray, "questions heads"], wider: float) -> pd.DataFrame:
    """Return what holds for all heads at once, a row for each head.

    ``adjusted`` is the exact McNemar test's p after Holm's correction over all heads, ``band_low``
    to ``band_high`` the 95% interval of the gain that holds for all heads at once.

    Args:
        differences: of heads to base.
        wider: by which factor the interval of one head widens to hold for all
            (`headsweep.statistics.intervals.simultaneous`).
    """
    low, high = paired_interval(differences)
    middle = (low + high) / 2
    half = (high - low) / 2 * wider
    return pd.DataFrame(
        {
            "adjusted": holm(mcnemar(differences)),
            "band_low": np.maximum(middle - half, -1.0),
            "band_high": np.minimum(middle + half, 1),
        }
    )


def passes(heads: pd.DataFrame, sign: int) -> "pd.Series[bool]":
    """Return which heads, with the columns of `tested`, are shown to gain (1) or to lose (-1).

    The test and the band must both say so. The base model, without a test, does not pass.
    """
    beyond = heads["band_low"] > 0 if sign > 0 else heads["band_high"] < 0
    return (heads["adjusted"] < SIGNIFICANCE) & beyond
