"""The papers' numbers (``config/published``), and a sweep's cells beside them."""

from pathlib import Path

import numpy as np
import pandas as pd

from headroom.analysis.files import read_csv
from headroom.analysis.gains import OVERALL
from headroom.config import Config, Model
from headroom.errors import TableError
from headroom.statistics.proportion import unpaired_difference, wilson

HEAD_PRUNING = "sprint_head_pruning.csv"
FIGURE_5 = "sprint_figure5.csv"
CONDITIONS = tuple(f"compression_table{number}.csv" for number in (1, 2, 3, 4))
CLAIMS = {"SPRINT": "sprint_claims.csv", "compression": "compression_claims.csv"}
"""File of the claims of each paper."""
FILES = (HEAD_PRUNING, FIGURE_5, *CONDITIONS, *CLAIMS.values())
"""The files of published numbers that are read."""

NO_PRUNE = "none"
"""The head in rows of the base model."""

EXHIBITS = {
    "Meta-Llama-3-8B-Instruct": "Table 1",
    "Qwen2.5-Math-1.5B-Instruct": "Table 2",
    "Qwen2.5-Math-7B-Instruct": "Table 3",
    "Qwen2.5-7B-Instruct": "Table 4",
}
"""The table of each model in the SPRINT paper, by the model's name on the hub."""

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

REPRODUCED = ["layer", "head", "by", "group", "n", "correct", "accuracy"]
REPRODUCED += ["published_n", "published_correct", "published", "exhibit"]
REPRODUCED += ["difference", "difference_low", "difference_high"]
"""Columns: the cell (head null for No Prune); the reproduced number; the published one, null if it
is not legible; their difference and its interval."""


def head_pruning(folder: Path) -> pd.DataFrame:
    """Read Tables 1-4 and Figure 5 of the SPRINT paper.

    Args:
        folder: folder of the published tables.

    Returns:
        One row per legible cell: ``exhibit`` (such as "Table 2"), ``model``, ``layer``, ``head``
        (null for No Prune), ``subject``, ``n``, ``correct`` and ``accuracy`` = correct / n. Above
        100 questions two counts may be printed alike; the nearest is taken.

    Raises:
        TableError: a file is missing, damaged, or has a subject or model that is not in the paper.
    """
    tables, figure = (_checked(folder / name) for name in (HEAD_PRUNING, FIGURE_5))
    tables = tables.assign(exhibit=tables["model"].map(EXHIBITS))
    table = pd.concat([tables, figure.dropna(subset="accuracy").assign(exhibit="Figure 5")])
    n = table["subject"].map(SIZES)
    correct = (table["accuracy"] * n).round().astype(int)
    table = table.assign(n=n, correct=correct, accuracy=correct / n).reset_index(drop=True)
    keys = ["exhibit", "model", "layer", "head", "subject"]
    return table[[*keys, "n", "correct", "accuracy"]]


def _checked(path: Path) -> pd.DataFrame:
    table = read_csv(path, ["model", "layer", "head", "subject", "accuracy"])
    for column, known in (("subject", SIZES), ("model", EXHIBITS)):
        unknown = sorted(set(table[column]) - set(known))
        if unknown:
            raise TableError(f"{path}: {column}s {unknown} are not the paper's: {', '.join(known)}")
    head = pd.to_numeric(table["head"].replace(NO_PRUNE, pd.NA)).astype("Int64")
    return table.assign(head=head)


def published_name(model: Model) -> str | None:
    """Return a model's name in the SPRINT paper, or None.

    The last part of its hub id or folder decides, so that a local copy counts as the same model.
    """
    name = Path(model.source).name if model.source else ""
    return name if name in EXHIBITS else None


def reproduced(config: Config, sweep: str, cells: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Return the published cells of a sweep's model and layers beside the reproduced ones.

    Args:
        config: the run's config.
        sweep: name of the sweep.
        cells: its cells, as returned by `headroom.analysis.gains.cells`.
        folder: folder of the published tables.

    Returns:
        `REPRODUCED`; no rows if the paper does not have this model, these layers or questions.

    Raises:
        TableError: a published table is missing or damaged.
    """
    section = config.sweeps[sweep]
    model = published_name(config.models[section.model])
    if model is None or config.questions[section.questions].benchmark != "math500":
        return pd.DataFrame(columns=REPRODUCED)
    keys = ["layer", "head", "group"]
    table = head_pruning(folder).query("model == @model").rename(columns={"subject": "group"})
    total = table.groupby(["layer", "head", "exhibit"], dropna=False)
    whole = total[["n", "correct"]].sum()[total.size() == len(SIZES)].reset_index()
    table = pd.concat(
        [table, whole.assign(group=OVERALL, accuracy=whole["correct"] / whole["n"])]
    ).rename(columns={"n": "published_n", "correct": "published_correct", "accuracy": "published"})
    own = cells[cells["by"] != "level"]
    layers = pd.DataFrame({"layer": sorted(set(table["layer"]) & set(own["layer"].dropna()))})
    layers = layers.astype({"layer": "Int64"})
    base = own[own["head"].isna()].drop(columns="layer").merge(layers, how="cross")
    own = pd.concat([base, own.merge(layers, on="layer")])
    found = own.merge(table.astype({"layer": "Int64"}), on=keys, how="left")
    first, n, right, *mine = (
        found[name].to_numpy(float)
        for name in ("published", "published_n", "published_correct", "accuracy", "correct", "n")
    )
    with np.errstate(invalid="ignore"):
        low, high = unpaired_difference(first, wilson(right, n), mine[0], wilson(*mine[1:]))
    counts = {name: found[name].astype("Int64") for name in ("published_n", "published_correct")}
    found = found.assign(**counts, difference=mine[0] - first)
    return found.assign(difference_low=low, difference_high=high)[REPRODUCED]


def beside_cells(cells: pd.DataFrame, beside: pd.DataFrame) -> pd.DataFrame:
    """Return the cells, with intervals, and the published numbers.

    The paper prints No Prune for each layer; its number is given only if all layers agree.
    """
    keys = ["layer", "head", "by", "group"]
    right = beside.drop(columns=["n", "correct", "accuracy"])
    base = right[right["head"].isna()].assign(layer=None)
    base = base[base.groupby("group")["published"].transform("nunique") == 1]
    base = base.dropna(subset="published").drop_duplicates("group")
    right = pd.concat([right[right["head"].notna()], base])
    right = right.astype({"layer": "Int64", "head": "Int64"})
    return cells.merge(right, on=keys, how="left", validate="one_to_one")
