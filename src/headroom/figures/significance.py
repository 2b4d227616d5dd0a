"""Which cells differ from the base model: exact McNemar tests, false discoveries controlled."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from headroom.figures.gains import cells, groups_of
from headroom.statistics.paired import false_discovery, mcnemar
from headroom.variants import BASE, Variant


def against_base(z: pd.DataFrame, variants: Sequence[Variant]) -> pd.DataFrame:
    """Return the cells of a sweep, each pruned head tested against base on the same questions.

    Args:
        z: accuracy matrix, one row a question (see `headroom.tables.ACCURACY`).
        variants: base first, then the pruned variants.

    Returns:
        `headroom.figures.gains.cells` with a column ``q`` (null for base): p-values of the exact
        McNemar test, adjusted by Benjamini and Hochberg over all heads and groups of a kind, so
        that overall q-values are those of `headroom.figures.controls.HEADS`.
    """
    table = cells(z, variants)
    pruned = table["variant"] != str(BASE)
    names = [str(variant) for variant in variants[1:]]
    p = [
        mcnemar(part[names].to_numpy() - part[[str(BASE)]].to_numpy())
        for _, _, part in groups_of(z)
    ]
    table.loc[pruned, "q"] = np.concatenate(p)
    adjusted = table[pruned].groupby("by")["q"].transform(lambda q: false_discovery(q.to_numpy()))
    return table.assign(q=adjusted)
