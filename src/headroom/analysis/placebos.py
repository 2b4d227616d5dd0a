"""How much placebos change, beside what pruned heads change."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd

from headroom.analysis.sheet import Sheet, in_percent, in_points, joined, number, rows_of
from headroom.analysis.text import percent, points, short
from headroom.tables import ANSWERS, OUTPUT_NORMS, read_table
from headroom.variants import BASE, Kind, Variant

PLACEBOS = ["kind", "layer", "variants", "answers", "changed", "final", "outcome", "gain", "best"]
PLACEBOS += ["norm", "ratio_low", "ratio_high"]
"""Columns of the table. Of each kind of variant (`headroom.variants.Kind`) and layer, null for
numeric placebos: how many variants, how many answers they gave; shares of these that differ from
the base model's in any token, in the final answer, and in being right; the mean and the largest
gain in accuracy over the base model; the mean length of what a head, or the noise in its place,
adds behind the output projection, and the smallest and largest ratio of a layer's noise to its
head."""

_NAMES: dict[Kind, str] = {"head": "heads", "noise": "noise", "numeric": "numerics"}

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
        graded: graded answers (`headroom.tables.GRADED`), those of the base model among them.
        variants: heads and placebos, sorted.
        answers: the store's file of each variant, base included; where one is gone, `changed` is
            left empty.
        activations: of the model's heads (`headroom.tables.ACTIVATIONS`); without `OUTPUT_NORMS`
            norms are left empty.

    Returns:
        Columns `PLACEBOS`.
    """
    group, correct = (
        graded.pivot(index="question_id", columns="variant", values=values).astype(int)
        for values in ("group", "correct")
    )
    base = str(BASE)
    tokens = _tokens(answers[base])
    norms = activations.set_index(["layer", "head"]).reindex(columns=list(OUTPUT_NORMS))
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
                **(_lengths(norms, members) if layer is not None else {}),
            }
        )
    return pd.DataFrame(rows, columns=PLACEBOS).astype({"layer": "Int64"})


def placebo_sentences(table: pd.DataFrame, dtype: str) -> list[str]:
    """Say what placebos change, and that numeric ones lack in half precision.

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
        if noise["norm"].notna().all():
            said.append(
                f"Behind the output projection the noise is {noise['ratio_low'].min():.2f} to "
                f"{noise['ratio_high'].max():.2f} times as long as what the head adds for which it "
                f"stands."
            )
    numeric = table[table["kind"] == "numeric"]
    if numeric.empty and dtype != "float32":
        said.append(
            f"There are no numeric placebos: what {dtype} alone changes when the base model is "
            f"decoded again is not known, and gains may come of it."
        )
    for row in rows_of(numeric):
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
        ("norm", number("norm", ".3g")),
        ("ratio", joined(number("ratio_low", ".2f"), " to ", number("ratio_high", ".2f"))),
    )
    lead = "\n\n".join(placebo_sentences(table, dtype))
    return Sheet.of(table, columns, f"{sweep}: {CAPTION}", lead=lead)


def _lengths(norms: pd.DataFrame, members: Sequence[Variant]) -> dict[str, float]:
    """Return how long what heads or their noise placebos add is, and the latter's ratios."""
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


def _share(table: pd.DataFrame) -> str:
    column = "final" if table["changed"].isna().any() else "changed"
    return percent(_mean(table, column))


def _mean(table: pd.DataFrame, column: str) -> float:
    return float(np.average(table[column], weights=table["answers"]))


GAINS_CAPTION = (
    "The best head of each layer on each group of questions, in percentage points. By chance: its "
    "expected gain where pruning does nothing, from joint sign flips of all heads on a question; "
    "p: of the largest studentised gain over heads (10,000 flips, standard error at most .005); "
    "q: after Benjamini and Hochberg over groups of a kind. Placebo: the best of as many variants "
    "with noise of a head's norm and no head pruned; numerics: the best of as many base models "
    "decoded again in other batches; their p and q: heads and placebos swapped "
    "question by question (10,000 times). Held out: chosen on one half of the "
    "questions, measured on the other, over 100 stratified splits; curse: best head in sample "
    "minus held out. Of errors: held out, as a share of the base model's errors, which no gain "
    "can pass; both intervals as if independent."
)
"""What the table of gains shows."""


def gains_sheet(gains: pd.DataFrame, sweep: str) -> Sheet:
    """Return the gains as text."""
    columns = (
        ("questions", lambda row: short(row.group, 24)),
        ("layer", number("layer")),
        ("n", number("n")),
        ("best head", in_points("gain")),
        ("median head", in_points("median")),
        ("by chance", in_points("by_chance")),
        ("p", number("p", ".3f")),
        ("q", number("q", ".3f")),
        ("placebo", in_points("placebo")),
        ("p", number("placebo_p", ".3f")),
        ("q", number("placebo_q", ".3f")),
        ("numerics", in_points("numeric")),
        ("p", number("numeric_p", ".3f")),
        ("q", number("numeric_q", ".3f")),
        ("held out", in_points("held_out")),
        ("95% interval", joined(in_points("low"), " to ", in_points("high"))),
        ("curse", in_points("curse")),
        ("of errors (%)", in_percent("of_errors")),
        (
            "95% interval",
            joined(in_percent("of_errors_low"), " to ", in_percent("of_errors_high")),
        ),
    )
    return Sheet.of(gains, columns, f"{sweep}: {GAINS_CAPTION}")
