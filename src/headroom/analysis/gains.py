"""Pass@1 of every variant and gains over base, computed from the accuracy matrix Z.

Pass@1 under greedy decoding is plain accuracy. A *cell* is one variant on one group of questions:
all of them, a subject, or a MATH level.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headroom.config import Config
from headroom.errors import TableError
from headroom.planning.batches import placebos, pool
from headroom.planning.store import Store
from headroom.statistics.intervals import false_discovery, mcnemar, paired_interval, wilson
from headroom.tables import ACCURACY, read_table
from headroom.variants import BASE, Variant

OVERALL = "Overall"
"""Name of the group of all questions."""


def accuracy_paths(config: Config) -> list[Path]:
    """Return the paths of all sweeps' accuracy matrices, each once."""
    return list(dict.fromkeys(map(Store(config).of_sweep, config.sweeps)))


def read_z(config: Config, sweep: str) -> tuple[pd.DataFrame, list[Variant]]:
    """Return the accuracy matrix of a sweep, and its variants, base first, without placebos.

    Raises:
        TableError: the accuracy matrix is missing, damaged, empty, or lacks a variant.
    """
    path = Store(config).of_sweep(sweep)
    z = read_table(path, ACCURACY, exact=False)
    variants = [BASE, *pool(config, config.sweeps[sweep])]
    wanted = map(str, [*variants, *placebos(config, config.sweeps[sweep])])
    missing = [name for name in wanted if name not in z.columns]
    if missing:
        raise TableError(f"{path}: variants {missing[:5]} are missing; remove the file and rerun")
    if z.empty:
        raise TableError(f"{path} has no questions; remove the file and rerun")
    return z, variants


def differences(z: pd.DataFrame, names: Sequence[object]) -> np.ndarray:
    """Return the paired differences of variants to base, [questions, variants]."""
    return z[list(map(str, names))].to_numpy() - z[[str(BASE)]].to_numpy()


def cells(z: pd.DataFrame, variants: Sequence[Variant]) -> pd.DataFrame:
    """Count right answers of every variant, base first, in every group of questions, from Z.

    Returns:
        One row per cell: ``by`` (overall, subject or level), ``group``, ``variant``, ``layer`` and
        ``head`` (null for base), ``n``, ``correct``, ``accuracy`` with Wilson's interval ``low`` to
        ``high``; ``base`` (the base model's accuracy on the group), the questions ``gained`` and
        ``lost``, the ``gain``; and of pruned heads its paired interval ``gain_low`` to
        ``gain_high``, the exact McNemar ``p``, and ``q``, adjusted for all heads and groups of a
        kind (Benjamini-Hochberg).
    """
    names = list(map(str, variants))
    places = [(str(each), each.layer, each.head) for each in variants]
    frame = pd.DataFrame(places, columns=["variant", "layer", "head"])
    frame = frame.astype({"layer": "Int64", "head": "Int64"})
    tables = []
    for by, group, part in groups_of(z):
        paired = differences(part, names)
        found: dict[str, Any] = {"by": by, "group": group, "n": len(part)}
        found["correct"] = part[names].sum().to_numpy()
        found |= {"gained": (paired > 0).sum(axis=0), "lost": (paired < 0).sum(axis=0)}
        found["gain_low"], found["gain_high"] = paired_interval(paired)
        found["p"] = mcnemar(paired)
        tables.append(frame.assign(**found))
    table = pd.concat(tables, ignore_index=True)
    base = table["variant"] == str(BASE)
    table.loc[base, ["gain_low", "gain_high", "p"]] = np.nan
    accuracy = table["correct"] / table["n"]
    right = accuracy.where(base).ffill()
    low, high = wilson(table["correct"].to_numpy(), table["n"].to_numpy())
    table = table.assign(accuracy=accuracy, base=right, gain=accuracy - right, low=low, high=high)
    return table.assign(q=adjusted(table))


def adjusted(table: pd.DataFrame, p: str = "p") -> pd.Series:
    """Return the p-values of a column, adjusted for all of a kind of group (Benjamini-Hochberg)."""
    known = table[table[p].notna()].groupby("by")[p]
    return known.transform(lambda p: false_discovery(p.to_numpy()))


def groups_of(z: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield each group of questions: its kind, its name, its rows of Z."""
    yield "overall", OVERALL, z
    for subject, part in z.groupby("subject"):
        yield "subject", str(subject), part
    for level in sorted(z["level"].dropna().unique()):
        yield "level", f"Level {int(level)}", z[z["level"] == level]
