"""How the heads that hurt fail: what their answers lack, and how loud the heads were."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from headroom.analysis.controls import hurting
from headroom.statistics.answers import loops
from headroom.tables import ANSWERS, read_table
from headroom.variants import BASE

_SHOWN = 20  # heads that hurt

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
"""Columns of the table of heads that hurt, and how they are shown; base comes first. The mode is
how most answers fail that base had right (`MODES`); the share of the squared norm is the head's at
the input of the output projection, its rank that among the layer's heads, 1 for the largest."""

MODES = ("loop", "truncated", "no answer", "wrong answer")
"""How an answer fails, the first that applies: it ends in a loop, is cut at the token limit, has
nothing to grade, or is wrong."""


def failures(
    heads: pd.DataFrame,
    graded: pd.DataFrame,
    answers: Mapping[str, Path],
    activations: pd.DataFrame,
) -> pd.DataFrame:
    """Say how the heads that hurt fail, beside the base model.

    Args:
        heads: see `headroom.analysis.controls.HEADS`.
        graded: graded answers (`headroom.tables.GRADED`).
        answers: the store's file of each variant; what the store no longer holds is left empty.
        activations: of the model's heads (`headroom.tables.ACTIVATIONS`).

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
    told = pd.DataFrame(found).astype({"loops": float, "mode_share": float})
    return pd.concat([chosen, told], axis=1)[list(FAILURES)]


def _modes(lost: pd.DataFrame, looping: pd.Series | None) -> pd.Series:
    """Return how each answer fails, one of `MODES`; without its tokens, a loop is not seen."""
    loop = np.zeros(len(lost), bool) if looping is None else looping.loc[lost.index].to_numpy()
    tests = [loop, lost["stop_reason"].eq("length").to_numpy(), lost["answer"].isna().to_numpy()]
    return pd.Series(np.select(tests, MODES[:-1], MODES[-1]))


def _looping(file: Path) -> pd.Series | None:
    """Return which of a variant's answers end in a loop, by question; None without them."""
    if not file.exists():
        return None
    return read_table(file, ANSWERS).set_index("question_id")["token_ids"].map(loops)
