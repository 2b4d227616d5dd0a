"""How much placebos change, compared with pruned heads."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd

from headroom.analysis.sheet import Columns, Sheet, sheet
from headroom.tables import ANSWERS, read_table
from headroom.variants import BASE, Variant

PLACEBOS = ["kind", "layer", "variants", "answers", "changed", "final", "outcome", "gain", "best"]
PLACEBOS += ["norm", "ratio_low", "ratio_high"]
"""Columns of the table: the kind of variant (`headroom.variants.Kind`) and the layer (null for
numeric placebos); the number of variants and of their answers; the shares of answers that differ
from the base model's in any token, in the final answer and in correctness; the mean and largest
gain in accuracy over the base model; the mean norm of the output of a head, or of the noise in its
place, after the output projection; the smallest and largest ratio of noise to head in the layer."""

_SHOWN: Columns = {
    "variants": "{kind}",
    "layer": "{layer}",
    "number": "{variants:int}",
    "answers": "{answers:int}",
    "other tokens (%)": "{changed:%}",
    "other answer (%)": "{final:%}",
    "other outcome (%)": "{outcome:%}",
    "mean gain": "{gain:pts}",
    "best gain": "{best:pts}",
    "norm": "{norm:.3g}",
    "ratio": "{ratio_low:.2f} to {ratio_high:.2f}",
}

CAPTION = (
    "What changes when a head is pruned, when noise of a head's norm is added in its place, and "
    "when nothing is changed but the batches in which the base model is decoded. Shares of all "
    "answers that differ from the base model's: in any token, in the final answer, in being right. "
    "Mean and best gain in percentage points. Norm: of what a head, or the noise in its place, "
    "adds behind the output projection, before which both are of one length; mean over tokens and "
    "heads. Ratio: of noise to its head, the smallest and the largest of the layer."
)


def placebo_table(
    graded: pd.DataFrame,
    variants: Sequence[Variant],
    answers: Mapping[str, Path],
    activations: pd.DataFrame,
) -> pd.DataFrame:
    """Count what pruned heads and placebos change.

    Args:
        graded: graded answers (`headroom.tables.GRADED`), including the base model's.
        variants: heads and placebos, sorted.
        answers: the store's file of each variant, base included; `changed` is empty if one is
            missing.
        activations: those of the model's heads (`headroom.tables.ACTIVATIONS`).

    Returns:
        Columns `PLACEBOS`.
    """
    group, correct = (
        graded.pivot(index="question_id", columns="variant", values=values).astype(int)
        for values in ("group", "correct")
    )
    base = str(BASE)
    tokens = _tokens(answers[base])
    norms = activations.set_index(["layer", "head"])
    rows = []
    for (kind, layer), each in groupby(variants, key=lambda each: (each.kind, each.layer)):
        members = list(each)
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
                **(_lengths(norms, members) if kind in ("head", "noise") else {}),
            }
        )
    return pd.DataFrame(rows, columns=PLACEBOS).astype({"layer": "Int64"})


def placebo_sheet(table: pd.DataFrame, sweep: str) -> Sheet:
    """Return the table as text."""
    words = {"head": "heads", "noise": "noise", "replay": "verification", "numeric": "numerics"}
    kinds = table["kind"].map(words)
    layers = table["layer"].map(str, na_action="ignore").fillna("all")
    return sheet(table.assign(kind=kinds, layer=layers), _SHOWN, f"{sweep}: {CAPTION}")


def _lengths(norms: pd.DataFrame, members: Sequence[Variant]) -> dict[str, float]:
    """Return the mean output norm of heads, or of their noise placebos with the ratios to heads."""
    own = norms.loc[[(each.layer, each.head) for each in members]]
    if members[0].kind == "head":
        return {"norm": own["output_norm"].mean()}
    ratio = own["noise_norm"] / own["output_norm"]
    return {"norm": own["noise_norm"].mean(), "ratio_low": ratio.min(), "ratio_high": ratio.max()}


def _tokens(file: Path) -> pd.Series | None:
    if not file.exists():
        return None
    return read_table(file, ANSWERS).set_index("question_id")["token_ids"]


def _changed(base: pd.Series | None, other: pd.Series | None) -> float:
    if base is None or other is None:
        return np.nan
    pairs = zip(base, other.loc[base.index], strict=True)
    return float(np.mean([not np.array_equal(before, after) for before, after in pairs]))
