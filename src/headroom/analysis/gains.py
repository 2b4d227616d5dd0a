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
from headroom.statistics.paired import false_discovery, mcnemar
from headroom.tables import ACCURACY, read_table
from headroom.variants import BASE, Variant

OVERALL = "Overall"
"""Name of the group of all questions."""


def accuracy_path(config: Config, sweep: str) -> Path:
    """Return the path of a sweep's accuracy matrix."""
    return Store(config).of_sweep(sweep)


def accuracy_paths(config: Config) -> list[Path]:
    """Return the paths of all sweeps' accuracy matrices, each once."""
    return list(dict.fromkeys(accuracy_path(config, sweep) for sweep in config.sweeps))


def read_z(config: Config, sweep: str) -> tuple[pd.DataFrame, list[Variant]]:
    """Return the accuracy matrix of a sweep, and its variants, base first, without placebos.

    Raises:
        TableError: the accuracy matrix is missing, damaged, empty, or lacks a variant.
    """
    path = accuracy_path(config, sweep)
    z = read_table(path, ACCURACY, exact=False)
    variants = [BASE, *pool(config, config.sweeps[sweep])]
    wanted = [*variants, *placebos(config, config.sweeps[sweep])]
    missing = [str(variant) for variant in wanted if str(variant) not in z.columns]
    if missing:
        raise TableError(f"{path}: variants {missing[:5]} are missing; remove the file and rerun")
    if z.empty:
        raise TableError(f"{path} has no questions; remove the file and rerun")
    return z, variants


def read_cells(config: Config, sweep: str) -> pd.DataFrame:
    """Return the cells of a sweep.

    Raises:
        TableError: as `read_z`.
    """
    return cells(*read_z(config, sweep))


def cells(z: pd.DataFrame, variants: Sequence[Variant]) -> pd.DataFrame:
    """Count right answers of every variant in every group of questions.

    Args:
        z: accuracy matrix, one row per question (see `headroom.tables.ACCURACY`).
        variants: the columns wanted; the base model must be one of them.

    Returns:
        One row per cell: ``by`` (overall, subject or level), ``group``, ``variant``, ``layer`` and
        ``head`` (null for base), ``n``, ``correct``, ``accuracy``, ``base`` (accuracy of the base
        model on the group) and ``gain`` over it.
    """
    rows = []
    for by, group, part in groups_of(z):
        n, base = len(part), part[str(BASE)].mean()
        correct = part[[str(variant) for variant in variants]].sum()
        for variant in variants:
            right = int(correct[str(variant)])
            place = (str(variant), variant.layer, variant.head)
            rows.append((by, group, *place, n, right, right / n, base, right / n - base))
    columns = ["by", "group", "variant", "layer", "head", "n", "correct", "accuracy", "base"]
    table = pd.DataFrame(rows, columns=[*columns, "gain"])
    return table.astype({"layer": "Int64", "head": "Int64"})


def against_base(z: pd.DataFrame, variants: Sequence[Variant]) -> pd.DataFrame:
    """Return the cells of a sweep, each pruned head tested against base on the same questions.

    Args:
        z: accuracy matrix, one row per question (see `headroom.tables.ACCURACY`).
        variants: base first, then the pruned variants.

    Returns:
        `cells` with a column ``q`` (null for base): p-values of the exact McNemar test, adjusted
        (Benjamini-Hochberg) over all heads and groups of a kind, so that overall q-values equal
        those of `headroom.analysis.controls.HEADS`.
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


def gains(table: pd.DataFrame) -> pd.DataFrame:
    """Return the gains over base of the best and the median head of each (group, layer).

    Args:
        table: as returned by `cells`.

    Returns:
        One row per (group, layer) pair: ``by``, ``group``, ``layer``, ``n``, ``heads`` (their
        number), ``base``, ``best_gain``, ``median_gain`` and ``best_heads``, including ties.
    """
    keys = ["by", "group", "layer"]
    pruned = table[table["variant"] != str(BASE)]
    cells = pruned.groupby(keys, sort=False)
    best = pruned[pruned["correct"] == cells["correct"].transform("max")]
    found = cells.agg(
        n=("n", "first"),
        heads=("n", "size"),
        base=("base", "first"),
        best_gain=("gain", "max"),
        median_gain=("gain", "median"),
    )
    names = best.groupby(keys)["variant"].agg(" ".join)
    return found.assign(best_heads=names).reset_index().astype({"layer": int})


def read_gained(config: Config, sweep: str) -> pd.DataFrame:
    """Return the gains of a sweep's heads beside those of its placebos.

    Raises:
        TableError: as `read_z`.
    """
    z, variants = read_z(config, sweep)
    return beside_placebos(gains(cells(z, variants)), z, placebos(config, config.sweeps[sweep]))


def beside_placebos(
    gained: pd.DataFrame, z: pd.DataFrame, others: Sequence[Variant]
) -> pd.DataFrame:
    """Add the gains of the best placebos of each (group, layer); NaN where there are none.

    Args:
        gained: as returned by `gains`.
        z: accuracy matrix.
        others: placebos; replays are ignored.

    Returns:
        The same rows with ``noise_gain`` (of the layer's best noise placebo) and ``numeric_gain``
        (of the best numeric placebo, which has no layer).
    """
    best: dict[tuple[str, str, int | None], float] = {}
    others = [variant for variant in others if variant.kind != "replay"]
    layers = {variant.layer for variant in others}
    for by, group, part in groups_of(z):
        for layer in layers:
            names = [str(variant) for variant in others if variant.layer == layer]
            best[by, group, layer] = part[names].mean().max() - part[str(BASE)].mean()
    keys = list(gained[["by", "group", "layer"]].itertuples(index=False, name=None))
    return gained.assign(
        noise_gain=[best.get(key, np.nan) for key in keys],
        numeric_gain=[best.get((*key[:2], None), np.nan) for key in keys],
    )


def pairs(gained: pd.DataFrame) -> pd.DataFrame:
    """Return the (subject, layer) pairs, or (all questions, layer) if there are no subjects."""
    subjects = gained[gained["by"] == "subject"]
    return subjects if len(subjects) else gained[gained["by"] == "overall"]


def groups_of(z: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield each group of questions: its kind, its name, its rows of Z."""
    yield "overall", OVERALL, z
    for subject, part in z.groupby("subject"):
        yield "subject", str(subject), part
    for level in sorted(z["level"].dropna().unique()):
        yield "level", f"Level {int(level)}", z[z["level"] == level]
