"""The papers' numbers (``config/published``), and a sweep's Tables 1-4 beside them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headroom.analysis.gains import OVERALL
from headroom.analysis.sheet import Sheet, cell, interval, read_csv
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

_METHOD = (
    "Differences are reproduced − published, with 95% intervals as if the two were independent "
    "(Newcombe 1998, from the Wilson intervals of both). They are of the same questions, but no "
    "outcome of a single question is published: a paired interval would be narrower. {} Published "
    "numbers are counts printed with two decimals; for Algebra two counts may print alike."
)
_INTERVAL = (
    "Rows are heads; No Prune is the base model. Beside each accuracy is its 95% interval "
    "(Wilson); n is the number of questions. The best of each column is bold, ties included; it is "
    "a maximum, raised by selection."
)
_ACCURACY = "{accuracy:%} ({low:%}–{high:%})"
_REPRODUCED = f"{{accuracy:%}} − {{published:%}} = {interval('difference')}"
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
"""Columns: the cell (head null for No Prune); the reproduced number; the published one (null if it
could not be read; `note` says why); their difference and its interval."""

_CELL = ["model", "layer", "head", "subject"]


def head_pruning(folder: Path) -> pd.DataFrame:
    """Read Tables 1-4 and Figure 5 of the SPRINT paper.

    Args:
        folder: folder of the published tables.

    Returns:
        One row per legible cell: ``exhibit`` (such as "Table 2"), ``model``, ``layer``, ``head``
        (null for No Prune), ``subject``, ``n``, ``correct``, ``accuracy`` = correct / n, and
        ``printed``, the accuracy as printed with two decimals. Above 100 questions two counts may
        be printed alike; the nearest is taken.

    Raises:
        TableError: a file is missing, damaged, or has a subject or model that is not in the paper.
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
    """Return which cells of Tables 1-4 and Figure 5 are not legible, and why.

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
    table, blank = (
        part[part["model"] == model].rename(columns={"subject": "group", "reason": "note"})
        for part in (head_pruning(folder), illegible(folder))
    )
    table = pd.concat([table, _overall(table), blank], ignore_index=True)
    table = table.rename(columns={"n": "published_n", "correct": "published_correct"})
    table = table.rename(columns={"accuracy": "published"}).drop(columns=["model", "printed"])
    own = cells[cells["by"].isin(["overall", "subject"])]
    layers = pd.DataFrame({"layer": sorted(set(table["layer"]) & set(own["layer"].dropna()))})
    base = own[own["head"].isna()].drop(columns="layer").merge(layers, how="cross")
    own = pd.concat([base, own.merge(layers.astype({"layer": "Int64"}), on="layer")])
    if own.empty:
        return pd.DataFrame(columns=REPRODUCED)
    keys = ["layer", "head", "group"]
    found = own.merge(table.astype({"layer": "Int64"}), on=keys, how="left")
    absent = found["published"].isna() & found["note"].isna()
    found.loc[absent, "note"] = "not in the paper"
    first, n, right, *mine = (
        found[name].to_numpy(float)
        for name in ("published", "published_n", "published_correct", "accuracy", "correct", "n")
    )
    with np.errstate(invalid="ignore"):
        low, high = unpaired_difference(first, wilson(right, n), mine[0], wilson(*mine[1:]))
    counts = {name: found[name].astype("Int64") for name in ("published_n", "published_correct")}
    found = found.assign(**counts, difference=mine[0] - first)
    return found.assign(difference_low=low, difference_high=high)[REPRODUCED]


def _overall(table: pd.DataFrame) -> pd.DataFrame:
    """Return each head's accuracy over all 500 questions, or a note why it is unknown."""
    total = table.groupby(["layer", "head"], dropna=False).agg(
        n=("n", "sum"),
        correct=("correct", "sum"),
        read=("group", "size"),
        exhibit=("exhibit", "first"),
    )
    total = total.reset_index().assign(group=OVERALL)
    parts = total["read"] < len(SIZES)
    total = total.assign(accuracy=total["correct"] / total["n"])
    total.loc[parts, ["n", "correct", "accuracy"]] = np.nan
    note = total["read"].map(lambda read: f"{read} of {len(SIZES)} subjects legible")
    return total.assign(note=note.where(parts)).drop(columns="read")


def _checked(path: Path, columns: list[str]) -> pd.DataFrame:
    table = read_csv(path, columns)
    for column, known in (("subject", SIZES), ("model", EXHIBITS)):
        unknown = sorted(set(table[column]) - set(known))
        if unknown:
            raise TableError(f"{path}: {column}s {unknown} are not the paper's: {', '.join(known)}")
    head = pd.to_numeric(table["head"].replace(NO_PRUNE, pd.NA)).astype("Int64")
    return table.assign(head=head)


def sweep_sheets(
    cells: pd.DataFrame, beside: pd.DataFrame, sweep: str, prompt: str, grading: str
) -> dict[str, Sheet]:
    """Return Tables 1-4 of a sweep as text: Pass@1 of every pruned head, No Prune first.

    One table per layer: rows are heads, columns are all questions and subjects, or MATH levels. If
    the paper has the layer, a table with its numbers beside the reproduced ones follows.

    Args:
        cells: as returned by `headroom.analysis.gains.cells`.
        beside: published numbers, as returned by `reproduced`.
        sweep: name of the sweep.
        prompt: the prompt of its answers.
        grading: the rules that graded them.
    """
    how = f"Prompt: {prompt}; grading: {grading}."
    cells = _with_intervals(cells)
    found = {}
    for layer in sorted(cells["layer"].dropna().unique()):
        own = cells[cells["layer"].isna() | (cells["layer"] == layer)]
        for kind, levels in (("subject", False), ("MATH level", True)):
            block = own[(own["by"] == "level") == levels]
            if len(block):
                title = f"Pass@1 (%) without one head of layer {layer}, by {kind}: {sweep}"
                best = block["correct"] == block.groupby("group")["correct"].transform("max")
                grid = _grid(block.assign(bold=best), _ACCURACY, f"{title}. {how} {_INTERVAL}")
                found[f"Layer {layer}, by {kind}"] = grid
            block = beside[beside["layer"] == layer]
            if not levels and len(block):
                title = f"Layer {layer}, reproduced − published Pass@1 (%): {sweep}"
                apart = (block["difference_low"] > 0) | (block["difference_high"] < 0)
                said = _beside_caption(block, int(apart.sum()), prompt, grading)
                grid = _grid(block.assign(bold=apart), _REPRODUCED, f"{title}. {how} {said}")
                found[f"Layer {layer}, reproduced − published"] = grid
    return found


def sweep_csv(cells: pd.DataFrame, beside: pd.DataFrame) -> pd.DataFrame:
    """Return the cells with their intervals and the published numbers.

    The paper prints No Prune for each layer; its number is given only if all layers agree.
    """
    keys = ["layer", "head", "by", "group"]
    right = beside.drop(columns=["n", "correct", "accuracy"])
    base = right[right["head"].isna()].assign(layer=None)
    several = base.groupby("group")["published"].transform("nunique") > 1
    base.loc[several, [name for name in base.columns if name not in keys]] = None
    base.loc[several, "note"] = "the paper prints several values"
    right = pd.concat([right[right["head"].notna()], base.drop_duplicates("group")])
    right = right.astype({"layer": "Int64", "head": "Int64"})
    return _with_intervals(cells).merge(right, on=keys, how="left", validate="one_to_one")


def _with_intervals(cells: pd.DataFrame) -> pd.DataFrame:
    low, high = wilson(cells["correct"].to_numpy(), cells["n"].to_numpy())
    return cells.assign(low=low, high=high)


def _grid(block: pd.DataFrame, template: str, caption: str) -> Sheet:
    """Return a table of heads by groups of questions, all questions first; `bold` marks cells."""
    rows: list[dict[str, Any]] = block.to_dict("records")  # type: ignore[assignment]
    table = block.assign(
        cell=[cell(template, row) for row in rows],
        head=block["head"].map(str, na_action="ignore").fillna("No Prune"),
        order=block["head"].fillna(-1),
    )
    heads = table.sort_values("order", kind="stable")["head"].unique()
    sizes = table.drop_duplicates("group").set_index("group")["n"]
    groups = sorted(sizes.index, key=lambda group: group != OVERALL)
    cells, bold = (
        table.pivot(index="head", columns="group", values=values).loc[heads, groups].to_numpy()
        for values in ("cell", "bold")
    )
    titles = [f"{group} (n = {sizes[group]})" for group in groups]
    marks = np.hstack([np.zeros((len(heads), 1), bool), bold.astype(bool)])
    lines = [[str(head), *row] for head, row in zip(heads, cells.tolist(), strict=True)]
    return Sheet(["head", *titles], lines, caption, bold=marks)


def _beside_caption(own: pd.DataFrame, apart: int, prompt: str, grading: str) -> str:
    """Return the caption of a comparison with published numbers."""
    method = _METHOD.format(_ALIKE if (prompt, grading) == ("authors", "authors") else _UNLIKE)
    known = own[own["published"].notna()]
    blank = own.loc[own["published"].isna(), "note"].value_counts()
    reasons = "; ".join(f"{reason} ({count})" for reason, count in blank.items())
    missing = f" Without a published number are {blank.sum()} cells: {reasons}." * bool(len(blank))
    return (
        f"Published: {', '.join(sorted(known['exhibit'].unique()))} of arXiv 2506.03978. {method} "
        f"{apart} of {len(known)} differences (bold) are beyond their interval.{missing}"
    )
