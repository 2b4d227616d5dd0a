"""How answers fail without the heads whose removal hurts, and how large those heads are."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from headroom.analysis.controls import hurting
from headroom.statistics.answers import loops
from headroom.tables import ANSWERS, read_table
from headroom.variants import BASE

_SHOWN = 20  # largest number of heads in the table

FAILURES = {
    "variant": "pruned",
    "accuracy": "accuracy",
    "gain": "gain",
    "no_answer": "no answer",
    "truncated": "truncated",
    "loops": "ends in a loop",
    "tokens": "tokens",
    "mode": "fails by",
    "mode_share": "of what it loses",
    "norm_share": "share of the norm",
    "norm_rank": "rank",
}
"""Columns of the table of heads whose removal hurts, with their titles; base comes first. `mode`:
how most of the answers fail that base had right (`MODES`). `norm_share`: the head's share of the
squared norm at the input of the output projection; `norm_rank`: its rank in the layer, 1 largest.
"""

MODES = ("loop", "truncated", "no answer", "wrong answer")
"""How an answer fails; the first that applies: it ends in a loop, is cut off at the limit, has
nothing to grade, or is wrong."""


def failures(
    heads: pd.DataFrame,
    graded: pd.DataFrame,
    answers: Mapping[str, Path],
    activations: pd.DataFrame,
) -> pd.DataFrame:
    """Return how answers fail without each head whose removal hurts, base model first.

    Args:
        heads: see `headroom.analysis.controls.HEADS`.
        graded: graded answers (`headroom.tables.GRADED`).
        answers: the store's file of each variant; cells are empty if a file is missing.
        activations: those of the model's heads (`headroom.tables.ACTIVATIONS`).

    Returns:
        Columns `FAILURES`, base first, then at most 20 heads, the worst first.
    """
    base = heads[heads["variant"] == str(BASE)]
    chosen = pd.concat([base, hurting(heads).head(_SHOWN)], ignore_index=True)
    measured = activations.assign(
        norm_rank=activations.groupby("layer")["share"]
        .rank(ascending=False, method="min")
        .astype("Int64")
    ).rename(columns={"share": "norm_share"})
    chosen = chosen.merge(
        measured[["layer", "head", "norm_share", "norm_rank"]], on=["layer", "head"], how="left"
    )
    right = graded[graded["variant"] == str(BASE)].set_index("question_id")["correct"]
    found = []
    for variant in chosen["variant"]:
        looping = _looping(answers[variant])
        own = graded[graded["variant"] == variant].set_index("question_id")
        lost = own[~own["correct"] & right.loc[own.index]]
        modes = _modes(lost, looping).value_counts(normalize=True, sort=True)
        found.append(
            {
                "loops": None if looping is None else float(looping.mean()),
                "mode": modes.index[0] if len(modes) else None,
                "mode_share": float(modes.iloc[0]) if len(modes) else None,
            }
        )
    shares = pd.DataFrame(found).astype({"loops": float, "mode_share": float})
    return pd.concat([chosen, shares], axis=1)[list(FAILURES)]


def _modes(lost: pd.DataFrame, looping: pd.Series | None) -> pd.Series:
    """Return how each answer fails, one of `MODES`; loops are not detected without tokens."""
    loop = np.zeros(len(lost), bool) if looping is None else looping.loc[lost.index].to_numpy()
    tests = [loop, lost["stop_reason"].eq("length").to_numpy(), lost["answer"].isna().to_numpy()]
    return pd.Series(np.select(tests, MODES[:-1], MODES[-1]))


def _looping(file: Path) -> pd.Series | None:
    """Return by question which of a variant's answers end in a loop; None if not stored."""
    if not file.exists():
        return None
    return read_table(file, ANSWERS).set_index("question_id")["token_ids"].map(loops)
