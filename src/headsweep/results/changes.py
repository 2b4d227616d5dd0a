"""What losing a head changes in answers, beside placebos, and how answers fail: two tables.

*Placebos*: what heads and placebos change. *Failures*: how heads that hurt fail.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd

from headsweep.files.safe_files import read_table
from headsweep.files.tables import ANSWERS
from headsweep.results.gains import shown
from headsweep.statistics.answers import loops
from headsweep.variants import BASE, Variant

FAILURES = [
    "variant",
    "accuracy",
    "gain",
    "no_answer",
    "truncated",
    "loops",  # share of answers that end in a loop
    "tokens",
    "mode",  # how most of the answers fail that base had right (`MODES`)
    "mode_share",
    "norm_share",  # of the squared norm at the input of the output projection
    "norm_rank",  # in the layer, 1 largest
]
"""Columns of the table of heads whose removal hurts; base comes first."""

MODES = ("loop", "truncated", "no answer", "wrong answer")
"""How an answer fails; the first that applies: it ends in a loop, is cut off at the limit, has
nothing to grade, or is wrong."""

PLACEBOS = [
    "kind",  # of variant (`headsweep.variants.FAMILIES`)
    "layer",  # null for numeric placebos
    "variants",
    "answers",
    "changed",  # share of answers that differ from the base model's in any token
    "final",  # in the final answer
    "outcome",  # in correctness
    "gain",  # in accuracy over the base model, mean
    "best",  # largest
    "norm",
]
"""Columns of the table of changes. ``norm``: the mean norm of the output of a head, or of the noise
in its place, after the output projection: equal where they stand for the same heads."""

_NORMS = {"head": "output_norm", "noise": "noise_norm"}
"""Columns of `headsweep.files.tables.ACTIVATIONS` by the kind of variants that have a norm."""

_SHOWN = 20  # largest number of heads in the table of failures


def failures(
    heads: pd.DataFrame,
    graded: pd.DataFrame,
    answers: Mapping[str, Path],
    activations: pd.DataFrame,
) -> pd.DataFrame:
    """Return how answers fail without each of the 20 heads that hurt most: columns `FAILURES`.

    Answers are files of the store, by variant; cells are empty where one is missing. The tables
    have columns `HEADS`, `headsweep.files.tables.GRADED` and `headsweep.files.tables.ACTIVATIONS`.
    """
    base = heads[heads["variant"] == str(BASE)]
    chosen = pd.concat([base, shown(heads, -1).head(_SHOWN)], ignore_index=True)
    ranks = activations.groupby("layer")["share"].rank(ascending=False, method="min")
    measured = activations.assign(norm_share=activations["share"], norm_rank=ranks.astype("Int64"))
    measured = measured[["layer", "head", "norm_share", "norm_rank"]]
    by_variant = dict(tuple(graded.set_index("question_id").groupby("variant")))
    right = by_variant[str(BASE)]["correct"]
    rows = []
    for variant in chosen["variant"]:
        graded_answers = by_variant[variant]
        looping = _tokens(answers[variant]).map(loops).reindex(graded_answers.index)
        lost = graded_answers[~graded_answers["correct"] & right.loc[graded_answers.index]]
        tests = [looping[lost.index] == 1, lost["stop_reason"] == "length", lost["answer"].isna()]
        modes = pd.Series(np.select(tests, MODES[:-1], MODES[-1])).value_counts(normalize=True)
        most_frequent, share = next(iter(modes.items()), (None, np.nan))
        if looping.isna().all():  # whether an answer loops is unknown
            most_frequent = None
            share = np.nan
        rows.append((looping.mean(), most_frequent, share))
    shares = pd.DataFrame(rows, columns=["loops", "mode", "mode_share"])
    return chosen.merge(measured, on=["layer", "head"], how="left").join(shares)[FAILURES]


def changes(
    graded: pd.DataFrame,
    variants: Sequence[Variant],
    answers: Mapping[str, Path],
    activations: pd.DataFrame,
) -> pd.DataFrame:
    """Count what heads and placebos, sorted, change: columns `PLACEBOS`; others as `failures`."""
    group, correct = (
        graded.pivot(index="question_id", columns="variant", values=values).astype(int)
        for values in ("group", "correct")
    )
    base = str(BASE)
    tokens = _tokens(answers[base]).map(tuple)
    norms = activations.set_index(["layer", "head"])
    rows = []
    by_place = groupby(variants, key=lambda variant: (variant.kind, variant.layer))
    for (kind, layer), grouped in by_place:
        members = list(grouped)
        names = list(map(str, members))
        gains = correct[names].mean() - correct[base].mean()
        changed_shares = []
        for name in names:
            before, after = tokens.align(_tokens(answers[name]).map(tuple), join="inner")
            changed_shares.append(before.ne(after).mean())
        row = {
            "kind": kind,
            "layer": layer,
            "variants": len(names),
            "answers": len(names) * len(group),
            "changed": np.mean(changed_shares),
            "final": np.mean(group[names].ne(group[base], axis=0)),
            "outcome": np.mean(correct[names].ne(correct[base], axis=0)),
            "gain": gains.mean(),
            "best": gains.max(),
        }
        if kind in _NORMS:
            places = [(member.layer, member.head) for member in members]
            row["norm"] = norms.loc[places][_NORMS[kind]].mean()
        rows.append(row)
    return pd.DataFrame(rows, columns=PLACEBOS).astype({"layer": "Int64"})


def _tokens(file: Path) -> pd.Series:
    """Return the tokens of a variant's answers by question; empty if the store lacks them."""
    if not file.exists():
        return pd.Series(dtype=object)
    return read_table(file, ANSWERS).set_index("question_id")["token_ids"]
