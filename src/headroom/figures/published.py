"""The papers' own numbers, as transcribed in ``config/published``."""

from pathlib import Path

import pandas as pd

from headroom.errors import TableError
from headroom.figures.tables import read_csv

HEAD_PRUNING = "sprint_head_pruning.csv"
MISSING = "sprint_head_pruning_missing.csv"
SPRINT_CLAIMS = "sprint_claims.csv"
COMPRESSION = "compression_table1.csv"
COMPRESSION_SIZES = "compression_table2.csv"

NO_PRUNE = "none"
"""The head of a row of the base model."""

SIZES = {
    "Algebra": 124,
    "Counting & Probability": 38,
    "Geometry": 41,
    "Intermediate Algebra": 97,
    "Number Theory": 62,
    "Prealgebra": 82,
    "Precalculus": 56,
}
"""Questions of MATH-500 by subject; every published accuracy is a count over these."""


def head_pruning(folder: Path) -> pd.DataFrame:
    """Read Tables 1-4 of the SPRINT paper.

    Args:
        folder: where the published tables lie.

    Returns:
        One row a legible cell: ``model``, ``layer``, ``head`` (null for No Prune), ``subject``,
        ``n``, ``correct`` and ``accuracy``, the count that was printed with two decimals.

    Raises:
        TableError: the file is missing, damaged, or has a subject that MATH-500 has not.
    """
    path = folder / HEAD_PRUNING
    table = read_csv(path, ["model", "layer", "head", "subject", "accuracy"])
    unknown = sorted(set(table["subject"]) - set(SIZES))
    if unknown:
        raise TableError(f"{path}: subjects {unknown} are not MATH's: {', '.join(SIZES)}")
    n = table["subject"].map(SIZES)
    correct = (table["accuracy"] * n).round().astype(int)
    head = pd.to_numeric(table["head"].replace(NO_PRUNE, pd.NA)).astype("Int64")
    table = table.assign(head=head, n=n, correct=correct, accuracy=correct / n)
    return table[["model", "layer", "head", "subject", "n", "correct", "accuracy"]]
