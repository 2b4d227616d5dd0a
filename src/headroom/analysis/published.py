"""The papers' own numbers, as transcribed in ``config/published``, and a sweep's beside them."""

from pathlib import Path

import numpy as np
import pandas as pd

from headroom.analysis.gains import OVERALL
from headroom.analysis.sheet import read_csv
from headroom.config import Config, Model
from headroom.errors import TableError
from headroom.statistics.proportion import unpaired_difference, wilson

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

_METHOD = (
    "Differences are reproduced − published, with 95% intervals as if the two were independent "
    "(Newcombe 1998, from the Wilson intervals of both). They are of the same questions, but no "
    "outcome of a single question is published: a paired interval would be narrower. {} Published "
    "numbers are counts printed with two decimals; for Algebra two counts may print alike."
)
_ALIKE = (
    "Prompt and grading rules are the paper's: a difference beyond its interval is real, and one "
    "within it may be."
)
_UNLIKE = (
    "The paper's numbers are under the authors' prompt and grading rules, these are not: a "
    "difference beyond its interval may come from that alone."
)

REPRODUCED = ["layer", "head", "by", "group", "n", "correct", "accuracy"]
REPRODUCED += ["published_n", "published_correct", "published", "exhibit"]
REPRODUCED += ["difference", "difference_low", "difference_high", "note"]
"""Columns: the cell (head null for No Prune), reproduced, published (null where it could not be
read, `note` says why), their difference and its interval."""

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


def method(prompt: str, grading: str) -> str:
    """Say how published numbers are held against those under a prompt and grading rules."""
    return _METHOD.format(_ALIKE if (prompt, grading) == ("authors", "authors") else _UNLIKE)


def reproduced(config: Config, sweep: str, cells: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Return the published cells of a sweep's model and layers beside the reproduced ones.

    Args:
        config: of the run.
        sweep: its name.
        cells: of the sweep, as `headroom.analysis.gains.cells` returns them.
        folder: where the published tables lie.

    Returns:
        `REPRODUCED`; no row where the paper has nothing on this model, these layers or questions.

    Raises:
        TableError: a published table is missing or damaged.
    """
    section = config.sweeps[sweep]
    model = published_name(config.models[section.model])
    if model is None or config.questions[section.questions].benchmark != "math500":
        return pd.DataFrame(columns=REPRODUCED)
    table = head_pruning(folder)
    reasons = illegible(folder)
    table, reasons = (part[part["model"] == model] for part in (table, reasons))
    own = cells[cells["by"].isin(["overall", "subject"])]
    layers = sorted(set(table["layer"]) & set(own["layer"].dropna()))
    parts = [_layer(own, table, reasons, layer) for layer in layers]
    found = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=REPRODUCED)
    return _with_difference(found)[REPRODUCED] if len(found) else found


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


def _checked(path: Path, columns: list[str]) -> pd.DataFrame:
    table = read_csv(path, columns)
    for column, known in (("subject", SIZES), ("model", EXHIBITS)):
        unknown = sorted(set(table[column]) - set(known))
        if unknown:
            raise TableError(f"{path}: {column}s {unknown} are not the paper's: {', '.join(known)}")
    head = pd.to_numeric(table["head"].replace(NO_PRUNE, pd.NA)).astype("Int64")
    return table.assign(head=head)
