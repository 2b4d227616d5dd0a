"""Pass@1 of every variant and gains over base, computed from the accuracy matrix Z.

Pass@1 under greedy decoding is plain accuracy. A *cell* is one variant on one group of questions:
all of them, a subject, or a MATH level.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from headroom.config import Config
from headroom.errors import TableError
from headroom.planning.batches import placebos, pool
from headroom.planning.store import Store
from headroom.statistics.paired import false_discovery, mcnemar, paired_interval
from headroom.statistics.proportion import wilson
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
    wanted = [*variants, *placebos(config, config.sweeps[sweep])]
    missing = [str(variant) for variant in wanted if str(variant) not in z.columns]
    if missing:
        raise TableError(f"{path}: variants {missing[:5]} are missing; remove the file and rerun")
    if z.empty:
        raise TableError(f"{path} has no questions; remove the file and rerun")
    return z, variants


def differences(z: pd.DataFrame, names: Sequence[object]) -> np.ndarray:
    """Return the paired differences of variants to base, [questions, variants]."""
    return z[list(map(str, names))].to_numpy() - z[[str(BASE)]].to_numpy()


def cells(z: pd.DataFrame, variants: Sequence[Variant]) -> pd.DataFrame:
    """Count right answers of every variant in every group of questions.

    Args:
        z: accuracy matrix, one row per question (see `headroom.tables.ACCURACY`).
        variants: base first, then the pruned variants.

    Returns:
        One row per cell: ``by`` (overall, subject or level), ``group``, ``variant``, ``layer`` and
        ``head`` (null for base), ``n``, ``correct``, ``accuracy``, ``base`` (accuracy of the base
        model on the group), ``gain`` over it, ``low`` and ``high`` (Wilson's interval of the
        accuracy); and of pruned heads ``gain_low`` and ``gain_high`` (paired interval) and ``q``:
        p-values of the exact McNemar test against base, adjusted (Benjamini-Hochberg) over all
        heads and groups of a kind, so that overall q-values are those of
        `headroom.analysis.controls.HEADS`.
    """
    names = [str(variant) for variant in variants]
    tables = []
    for by, group, part in groups_of(z):
        paired = differences(part, names[1:])
        ends = paired_interval(paired)
        table = pd.DataFrame(
            {
                "by": by,
                "group": group,
                "variant": names,
                "layer": pd.array([variant.layer for variant in variants], dtype="Int64"),
                "head": pd.array([variant.head for variant in variants], dtype="Int64"),
                "n": len(part),
                "correct": part[names].sum().to_numpy(),
            }
        )
        for column, values in zip(
            ("gain_low", "gain_high", "q"), (*ends, mcnemar(paired)), strict=True
        ):
            table[column] = [np.nan, *values]
        tables.append(table)
    table = pd.concat(tables, ignore_index=True)
    accuracy = table["correct"] / table["n"]
    base = accuracy.where(table["variant"] == str(BASE)).ffill()
    low, high = wilson(table["correct"].to_numpy(), table["n"].to_numpy())
    tested = table.dropna(subset="q").groupby("by")["q"]
    return table.assign(
        accuracy=accuracy,
        base=base,
        gain=accuracy - base,
        low=low,
        high=high,
        q=tested.transform(lambda p: false_discovery(p.to_numpy())),
    )


def groups_of(z: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield each group of questions: its kind, its name, its rows of Z."""
    yield "overall", OVERALL, z
    for subject, part in z.groupby("subject"):
        yield "subject", str(subject), part
    for level in sorted(z["level"].dropna().unique()):
        yield "level", f"Level {int(level)}", z[z["level"] == level]
