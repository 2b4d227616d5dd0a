"""Published beside reproduced: the paper's cells of a sweep's model, layers and questions."""

from pathlib import Path

import numpy as np
import pandas as pd

from headroom.config import Config
from headroom.figures.gains import OVERALL
from headroom.figures.published import SIZES, head_pruning, illegible, published_name
from headroom.statistics.proportion import unpaired_difference, wilson

METHOD = (
    "Differences are reproduced − published, with 95% intervals as if the two were independent "
    "(Newcombe 1998, from the Wilson intervals of both). They are of the same questions, but no "
    "outcome of a single question is published: a paired interval would be narrower, so a "
    "difference beyond this one is real, and one within it may be. Published numbers are counts "
    "printed with two decimals; for Algebra two counts may print alike."
)
"""How a published number is held against a reproduced one."""

COLUMNS = ["layer", "head", "by", "group", "n", "correct", "accuracy"]
COLUMNS += ["published_n", "published_correct", "published", "exhibit"]
COLUMNS += ["difference", "difference_low", "difference_high", "note"]
"""Columns: the cell (head null for No Prune), reproduced, published (null where it could not be
read, `note` says why), their difference and its interval."""


def beside(config: Config, sweep: str, cells: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Return the published cells of a sweep's model and layers beside the reproduced ones.

    Args:
        config: of the run.
        sweep: its name.
        cells: of the sweep, as `headroom.figures.gains.cells` returns them.
        folder: where the published tables lie.

    Returns:
        `COLUMNS`; no row where the paper has nothing on this model, these layers or questions.

    Raises:
        TableError: a published table is missing or damaged.
    """
    section = config.sweeps[sweep]
    model = published_name(config.models[section.model])
    if model is None or config.questions[section.questions].benchmark != "math500":
        return pd.DataFrame(columns=COLUMNS)
    table = head_pruning(folder)
    reasons = illegible(folder)
    table, reasons = (part[part["model"] == model] for part in (table, reasons))
    own = cells[cells["by"].isin(["overall", "subject"])]
    layers = sorted(set(table["layer"]) & set(own["layer"].dropna()))
    parts = [_layer(own, table, reasons, layer) for layer in layers]
    found = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)
    return _with_difference(found)[COLUMNS] if len(found) else found


def _layer(
    own: pd.DataFrame, table: pd.DataFrame, reasons: pd.DataFrame, layer: int
) -> pd.DataFrame:
    """Return one layer's reproduced cells, No Prune among them, with what is published."""
    cells = own[own["layer"].isna() | (own["layer"] == layer)]
    printed = table[table["layer"] == layer]
    printed = pd.concat([printed, _overall(printed)], ignore_index=True)
    blank = reasons[reasons["layer"] == layer]
    right = printed.rename(
        columns={
            "subject": "group",
            "n": "published_n",
            "correct": "published_correct",
            "accuracy": "published",
            "reason": "note",
        }
    )
    blank = blank.rename(columns={"subject": "group", "reason": "note"})
    right = pd.concat([right, blank], ignore_index=True)[
        ["head", "group", "published_n", "published_correct", "published", "exhibit", "note"]
    ]
    joined = cells.drop(columns="layer").merge(right, on=["head", "group"], how="left")
    absent = joined["published"].isna() & joined["note"].isna()
    joined.loc[absent, "note"] = "not in the paper"
    return joined.assign(layer=layer)


def _overall(printed: pd.DataFrame) -> pd.DataFrame:
    """Return each row's accuracy over all 500 questions, or why it has none."""
    rows = printed.groupby("head", dropna=False)
    total = rows.agg(
        n=("n", "sum"),
        correct=("correct", "sum"),
        read=("subject", "size"),
        exhibit=("exhibit", "first"),
    ).reset_index()
    whole = total["read"] == len(SIZES)
    reason = total["read"].map(lambda read: f"{read} of {len(SIZES)} subjects legible")
    total = total.assign(
        subject=OVERALL, accuracy=total["correct"] / total["n"], reason=reason.where(~whole)
    )
    total.loc[~whole, ["n", "correct", "accuracy"]] = np.nan
    return total.drop(columns="read")


def _with_difference(found: pd.DataFrame) -> pd.DataFrame:
    names = ["published_n", "published_correct", "published"]
    known = found[names].astype(float)
    first = known["published"].to_numpy()
    second = found["accuracy"].to_numpy(float)
    with np.errstate(invalid="ignore"):
        low, high = unpaired_difference(
            first,
            wilson(known["published_correct"].to_numpy(), known["published_n"].to_numpy()),
            second,
            wilson(found["correct"].to_numpy(float), found["n"].to_numpy(float)),
        )
    counts = {name: found[name].astype("Int64") for name in names[:2]}
    return found.assign(
        **counts, difference=second - first, difference_low=low, difference_high=high
    )
