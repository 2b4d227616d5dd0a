"""How much placebos change, beside what pruned heads change."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd

from headroom.analysis.sheet import Sheet, in_percent, in_points, number, rows_of
from headroom.analysis.text import percent, points
from headroom.tables import ANSWERS, read_table
from headroom.variants import BASE, Kind, Variant

PLACEBOS = ["kind", "layer", "variants", "answers", "changed", "final", "outcome", "gain", "best"]
"""Columns of the table. Of each kind of variant (`headroom.variants.Kind`) and layer, null for
numeric placebos: how many variants, how many answers they gave; shares of these that differ from
the base model's in any token, in the final answer, and in being right; the mean and the largest
gain in accuracy over the base model."""

_NAMES: dict[Kind, str] = {"head": "heads", "noise": "noise", "numeric": "numerics"}

CAPTION = (
    "What changes when a head is pruned, when noise of a head's norm is added in its place, and "
    "when nothing is changed but the batches in which the base model is decoded. Shares of all "
    "answers that differ from the base model's: in any token, in the final answer, in being right. "
    "Mean and best gain in percentage points."
)


def placebo_table(
    graded: pd.DataFrame, variants: Sequence[Variant], answers: Mapping[str, Path]
) -> pd.DataFrame:
    """Count what pruned heads and placebos change.

    Args:
        graded: graded answers (`headroom.tables.GRADED`), those of the base model among them.
        variants: heads and placebos, sorted.
        answers: the store's file of each variant, base included; where one is gone, `changed` is
            left empty.

    Returns:
        Columns `PLACEBOS`.
    """
    group, correct = (
        graded.pivot(index="question_id", columns="variant", values=values).astype(int)
        for values in ("group", "correct")
    )
    base = str(BASE)
    tokens = _tokens(answers[base])
    rows = []
    for (kind, layer), members in groupby(variants, key=lambda each: (each.kind, each.layer)):
        names = [str(variant) for variant in members]
        changed = [_changed(tokens, _tokens(answers[name])) for name in names]
        gains = correct[names].mean() - correct[base].mean()
        rows.append(
            {
                "kind": kind,
                "layer": layer,
                "variants": len(names),
                "answers": len(names) * len(group),
                "changed": float(np.mean(changed)),
                "final": float(np.mean(group[names].ne(group[base], axis=0))),
                "outcome": float(np.mean(correct[names].ne(correct[base], axis=0))),
                "gain": gains.mean(),
                "best": gains.max(),
            }
        )
    return pd.DataFrame(rows, columns=PLACEBOS).astype({"layer": "Int64"})


def placebo_sentences(table: pd.DataFrame, dtype: str) -> list[str]:
    """Say what placebos change; nothing where there are none.

    Args:
        table: columns `PLACEBOS`.
        dtype: in which the model ran.
    """
    said = []
    heads, noise = (table[table["kind"] == kind] for kind in ("head", "noise"))
    if len(noise):
        said.append(
            f"Noise as strong as a head, added in its place, changes {_share(noise)} of all "
            f"answers and gains {points(_mean(noise, 'gain'))} points on average; pruning a head "
            f"changes {_share(heads)} and gains {points(_mean(heads, 'gain'))}."
        )
    for row in rows_of(table[table["kind"] == "numeric"]):
        count = row.answers * (row.final if pd.isna(row.changed) else row.changed)
        expected = "none is expected to" if dtype == "float32" else "some are expected to"
        said.append(
            f"Decoded {row.variants} times more in other batches, the base model changes "
            f"{round(count) or 'none'} of {row.answers} answers; in {dtype} {expected}."
        )
    return said


def placebo_sheet(table: pd.DataFrame, sweep: str, dtype: str) -> Sheet:
    """Return the table as text, under its sentences."""
    columns = (
        ("variants", lambda row: _NAMES[row.kind]),
        ("layer", lambda row: "all" if pd.isna(row.layer) else f"{row.layer:.0f}"),
        ("number", number("variants")),
        ("answers", number("answers")),
        ("other tokens (%)", in_percent("changed")),
        ("other answer (%)", in_percent("final")),
        ("other outcome (%)", in_percent("outcome")),
        ("mean gain", in_points("gain")),
        ("best gain", in_points("best")),
    )
    lead = "\n\n".join(placebo_sentences(table, dtype))
    return Sheet.of(table, columns, f"{sweep}: {CAPTION}", lead=lead)


def _tokens(file: Path) -> pd.Series | None:
    if not file.exists():
        return None
    return read_table(file, ANSWERS).set_index("question_id")["token_ids"]


def _changed(base: pd.Series | None, other: pd.Series | None) -> float:
    if base is None or other is None:
        return np.nan
    pairs = zip(base, other.loc[base.index], strict=True)
    return float(np.mean([not np.array_equal(before, after) for before, after in pairs]))


def _share(table: pd.DataFrame) -> str:
    column = "final" if table["changed"].isna().any() else "changed"
    return percent(_mean(table, column))


def _mean(table: pd.DataFrame, column: str) -> float:
    return float(np.average(table[column], weights=table["answers"]))
