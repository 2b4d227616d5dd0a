"""Tables 1-4 of the SPRINT paper: Pass@1 of every pruned head, the base model (No Prune) first.

A table a layer: rows are heads, columns are all questions, subjects, then MATH levels. The best of
each column is bold, ties included, the base model among them. Accuracy is in percent with one
decimal, so that different counts never look equal below 1,000 questions, beside it Wilson's 95%
interval. What the paper has of a layer follows, beside the reproduced numbers.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from headroom.analysis.gains import OVERALL
from headroom.analysis.published import method
from headroom.analysis.sheet import Cell, Sheet, in_percent, interval, joined, rows_of
from headroom.statistics.proportion import wilson

_KINDS = (("subject", ("overall", "subject")), ("MATH level", ("level",)))
_INTERVAL = (
    "Rows are heads; No Prune is the base model. Beside each accuracy is its 95% interval "
    "(Wilson); n is the number of questions. The best of each column is bold, ties included; it is "
    "a maximum, raised by selection."
)
_ACCURACY = joined(
    in_percent("accuracy"), " (", joined(in_percent("low"), "–", in_percent("high")), ")"
)
_REPRODUCED = joined(
    joined(in_percent("accuracy"), " − ", in_percent("published")), " = ", interval("difference")
)


def sweep_sheets(
    cells: pd.DataFrame, beside: pd.DataFrame, sweep: str, prompt: str, grading: str
) -> dict[str, Sheet]:
    """Return the tables of a sweep as text, by heading.

    Args:
        cells: as `headroom.analysis.gains.cells` returns them.
        beside: published numbers, as `headroom.analysis.published.reproduced` returns them.
        sweep: its name.
        prompt: under which its answers were given.
        grading: rules that graded them.
    """
    how = f"Prompt: {prompt}; grading: {grading}."
    found = {}
    for layer, kind, block in _blocks(_with_intervals(cells)):
        title = f"Pass@1 (%) without one head of layer {layer}, by {kind}: {sweep}"
        best = block["correct"] == block.groupby("group")["correct"].transform("max")
        sheet = _grid(block.assign(bold=best), _ACCURACY, f"{title}. {how} {_INTERVAL}")
        found[f"Layer {layer}, by {kind}"] = sheet
        own = beside[beside["layer"] == layer]
        if kind == "subject" and len(own):
            title = f"Layer {layer}, reproduced − published Pass@1 (%): {sweep}"
            apart = (own["difference_low"] > 0) | (own["difference_high"] < 0)
            compared = _beside_caption(own, int(apart.sum()), method(prompt, grading))
            caption = f"{title}. {how} {compared}"
            sheet = _grid(own.assign(bold=apart), _REPRODUCED, caption)
            found[f"Layer {layer}, reproduced − published"] = sheet
    return found


def sweep_csv(cells: pd.DataFrame, beside: pd.DataFrame) -> pd.DataFrame:
    """Return the cells with their intervals and what is published of them.

    No Prune, which the paper prints for each layer, has it where all layers agree.
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


def _blocks(cells: pd.DataFrame) -> Iterator[tuple[int, str, pd.DataFrame]]:
    """Yield each layer's cells by kind of group, No Prune among them, all questions first."""
    for layer in sorted(cells["layer"].dropna().unique()):
        own = cells[cells["layer"].isna() | (cells["layer"] == layer)]
        for kind, by in _KINDS:
            block = own[own["by"].isin(by)]
            if len(block):
                yield int(layer), kind, block


def _grid(block: pd.DataFrame, cell: Cell, caption: str) -> Sheet:
    """Return a table of heads by groups of questions; `bold` marks cells."""
    sizes = block.drop_duplicates("group").sort_values(
        "group", key=lambda group: group != OVERALL, kind="stable"
    )
    groups = sizes["group"].tolist()
    rows, bold = [], []
    for head, part in block.groupby(block["head"].fillna(-1), sort=True):
        by_group = {row.group: row for row in rows_of(part)}
        label = "No Prune" if int(str(head)) < 0 else str(head)
        rows.append([label, *(cell(by_group[group]) for group in groups)])
        bold.append([False, *(by_group[group].bold for group in groups)])
    titles = [f"{group} (n = {n})" for group, n in zip(groups, sizes["n"], strict=True)]
    return Sheet(["head", *titles], rows, caption, bold=np.array(bold, dtype=bool))


def _beside_caption(own: pd.DataFrame, apart: int, method: str) -> str:
    known = own[own["published"].notna()]
    blank = own.loc[own["published"].isna(), "note"].value_counts()
    reasons = "; ".join(f"{reason} ({count})" for reason, count in blank.items())
    missing = (
        f" Without a published number are {blank.sum()} cells: {reasons}." if len(blank) else ""
    )
    source = ", ".join(sorted(known["exhibit"].unique()))
    return (
        f"Published: {source} of arXiv 2506.03978. {method} {apart} of {len(known)} differences "
        f"(bold) are beyond their interval.{missing}"
    )
