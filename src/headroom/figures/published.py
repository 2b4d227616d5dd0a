"""The papers' own numbers, as transcribed in ``config/published``."""

from pathlib import Path

import pandas as pd

from headroom.config import Model
from headroom.errors import TableError
from headroom.figures.tables import read_csv

HEAD_PRUNING = "sprint_head_pruning.csv"
MISSING = "sprint_head_pruning_missing.csv"
FIGURE_5 = "sprint_figure5.csv"
SPRINT_CLAIMS = "sprint_claims.csv"
COMPRESSION = "compression_table1.csv"
COMPRESSION_SIZES = "compression_table2.csv"
COMPRESSION_FACTORS = "compression_table3.csv"
COMPRESSION_STRATEGIES = "compression_table4.csv"
COMPRESSION_CLAIMS = "compression_claims.csv"

NO_PRUNE = "none"
"""The head of a row of the base model."""

EXHIBITS = {
    "Meta-Llama-3-8B-Instruct": "Table 1",
    "Qwen2.5-Math-1.5B-Instruct": "Table 2",
    "Qwen2.5-Math-7B-Instruct": "Table 3",
    "Qwen2.5-7B-Instruct": "Table 4",
}
"""The table of each model in the SPRINT paper; a model is named as the hub names it."""

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

_CELL = ["model", "layer", "head", "subject"]


def head_pruning(folder: Path) -> pd.DataFrame:
    """Read Tables 1-4 and Figure 5 of the SPRINT paper.

    Args:
        folder: where the published tables lie.

    Returns:
        One row a legible cell: ``exhibit`` (as in "Table 2"), ``model``, ``layer``, ``head`` (null
        for No Prune), ``subject``, ``n``, ``correct``, ``accuracy`` = correct / n, and what was
        ``printed`` of it: two decimals. Above 100 questions two counts may print alike: the nearest
        is taken.

    Raises:
        TableError: a file is missing, damaged, or has a subject or model that the paper has not.
    """
    tables, figure = (
        _checked(folder / name, [*_CELL, "accuracy"]) for name in (HEAD_PRUNING, FIGURE_5)
    )
    tables = tables.assign(exhibit=tables["model"].map(EXHIBITS))
    table = pd.concat([tables, figure.dropna(subset="accuracy").assign(exhibit="Figure 5")])
    n = table["subject"].map(SIZES)
    correct = (table["accuracy"] * n).round().astype(int)
    table = table.assign(n=n, correct=correct, printed=table["accuracy"], accuracy=correct / n)
    return table[["exhibit", *_CELL, "n", "correct", "accuracy", "printed"]].reset_index(drop=True)


def illegible(folder: Path) -> pd.DataFrame:
    """Read which cells of Tables 1-4 and Figure 5 could not be read, and why.

    Returns:
        Columns ``model``, ``layer``, ``head`` (null for No Prune), ``subject``, ``reason``.

    Raises:
        TableError: as `head_pruning`.
    """
    tables = _checked(folder / MISSING, [*_CELL, "reason"])
    figure = _checked(folder / FIGURE_5, [*_CELL, "accuracy", "notes"])
    blank = figure[figure["accuracy"].isna()].rename(columns={"notes": "reason"})
    table = pd.concat([tables, blank], ignore_index=True)[[*_CELL, "reason"]]
    return table.assign(reason=table["reason"].fillna("not legible"))


def published_name(model: Model) -> str | None:
    """Return the name under which a model stands in the SPRINT paper, or None.

    The last part of its hub id or folder decides: a local copy is the same model.
    """
    name = Path(model.source).name if model.source else ""
    return name if name in EXHIBITS else None


def _checked(path: Path, columns: list[str]) -> pd.DataFrame:
    table = read_csv(path, columns)
    for column, known in (("subject", SIZES), ("model", EXHIBITS)):
        unknown = sorted(set(table[column]) - set(known))
        if unknown:
            raise TableError(f"{path}: {column}s {unknown} are not the paper's: {', '.join(known)}")
    head = pd.to_numeric(table["head"].replace(NO_PRUNE, pd.NA)).astype("Int64")
    return table.assign(head=head)
