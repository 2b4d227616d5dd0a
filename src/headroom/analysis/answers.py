"""What answers say beyond right or wrong: how heads fail, what heads and placebos change."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd

from headroom.analysis.controls import hurting
from headroom.statistics.answers import loops
from headroom.tables import ANSWERS, read_table
from headroom.variants import BASE, Variant

FAILURES = ["variant", "accuracy", "gain", "no_answer", "truncated", "loops", "tokens"]
FAILURES += ["mode", "mode_share", "norm_share", "norm_rank"]
"""Columns of the table of heads whose removal hurts; base comes first. `loops`: share of answers
that end in a loop. `mode`: how most of the answers fail that base had right (`MODES`), and their
share. `norm_share`: the head's share of the squared norm at the input of the output projection;
`norm_rank`: its rank in the layer, 1 largest."""

MODES = ("loop", "truncated", "no answer", "wrong answer")
"""How an answer fails; the first that applies: it ends in a loop, is cut off at the limit, has
nothing to grade, or is wrong."""

PLACEBOS = ["kind", "layer", "variants", "answers", "changed", "final", "outcome", "gain", "best"]
PLACEBOS += ["norm", "ratio_low", "ratio_high"]
"""Columns of the table of changes: the kind of variant (`headroom.variants.Kind`) and the layer
(null for numeric placebos); the number of variants and of their answers; the shares of answers that
differ from the base model's in any token, in the final answer and in correctness; the mean and
largest gain in accuracy over the base model; the mean norm of the output of a head, or of the noise
in its place, after the output projection; the smallest and largest ratio of noise to head in the
layer."""

_SHOWN = 20  # largest number of heads in the table of failures


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
    ranks = activations.groupby("layer")["share"].rank(ascending=False, method="min")
    measured = activations.assign(norm_share=activations["share"], norm_rank=ranks.astype("Int64"))
    measured = measured[["layer", "head", "norm_share", "norm_rank"]]
    chosen = chosen.merge(measured, on=["layer", "head"], how="left")
    by_variant = dict(tuple(graded.set_index("question_id").groupby("variant")))
    right = by_variant[str(BASE)]["correct"]
    found = []
    for variant in chosen["variant"]:
        tokens, own = _tokens(answers[variant]), by_variant[variant]
        looping = None if tokens is None else tokens.map(loops)
        lost = own[~own["correct"] & right.loc[own.index]]
        loop = np.zeros(len(lost), bool) if looping is None else looping.loc[lost.index]
        tests = [loop, lost["stop_reason"] == "length", lost["answer"].isna()]
        modes = pd.Series(np.select(tests, MODES[:-1], MODES[-1])).value_counts(normalize=True)
        first = next(iter(modes.items()), (None, None))
        found.append((None if looping is None else looping.mean(), *first))
    shares = pd.DataFrame(found, columns=["loops", "mode", "mode_share"])
    shares = shares.astype({"loops": float, "mode_share": float})
    return pd.concat([chosen, shares], axis=1)[FAILURES]


def changes(
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
        gains = correct[names].mean() - correct[base].mean()
        row = {
            "kind": kind,
            "layer": layer,
            "variants": len(names),
            "answers": len(names) * len(group),
            "changed": np.mean([_changed(tokens, _tokens(answers[name])) for name in names]),
            "final": np.mean(group[names].ne(group[base], axis=0)),
            "outcome": np.mean(correct[names].ne(correct[base], axis=0)),
            "gain": gains.mean(),
            "best": gains.max(),
        }
        if kind in ("head", "noise"):
            own = norms.loc[[(each.layer, each.head) for each in members]]
            ratio = own["noise_norm"] / own["output_norm"]
            row["norm"] = own["output_norm" if kind == "head" else "noise_norm"].mean()
            if kind == "noise":
                row |= {"ratio_low": ratio.min(), "ratio_high": ratio.max()}
        rows.append(row)
    return pd.DataFrame(rows, columns=PLACEBOS).astype({"layer": "Int64"})


def _tokens(file: Path) -> pd.Series | None:
    """Return the tokens of a variant's answers by question; None if the store lacks them."""
    if not file.exists():
        return None
    return read_table(file, ANSWERS).set_index("question_id")["token_ids"]


def _changed(base: pd.Series | None, other: pd.Series | None) -> float:
    if base is None or other is None:
        return np.nan
    pairs = zip(base, other.loc[base.index], strict=True)
    return float(np.mean([not np.array_equal(before, after) for before, after in pairs]))
