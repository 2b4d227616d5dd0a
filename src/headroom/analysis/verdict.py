"""What the controls of a sweep say: sentences, a table, and how the heads that hurt fail."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headroom import paths
from headroom.analysis.controls import GAINS, HARMLESS, HEADS, LEVEL, SPREAD, helping, hurting
from headroom.analysis.placebos import PLACEBOS
from headroom.analysis.sheet import (
    NONE,
    Sheet,
    in_percent,
    in_points,
    joined,
    name,
    number,
    read_csv,
    rows_of,
)
from headroom.analysis.text import percent, points, short
from headroom.config import Config
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

SPREAD_CAPTION = (
    "Standard deviations of accuracy between heads, in percentage points: observed, what equal "
    "heads would show on as many questions, and what is left. Share: of the variance, more than "
    "noise. p: Cochran's Q, all heads equal. Heads that surely hurt: one-sided exact test at 5%, "
    "Bonferroni over the heads of a layer."
)
"""What the table of spread shows."""

FAILURES_CAPTION = (
    "The base model, then at most 20 heads that hurt (exact McNemar test, q < 0.05), the worst "
    "first. In percent of all answers: without an answer to grade, cut at the token limit, and "
    "ending in one phrase over and over; mean tokens of an answer. Fails by: how most answers fail "
    "that the base model had right, and what share of them. Share of the norm: of the squared norm "
    "at the input of the output projection, on the base model's own answers, and its rank among "
    "the layer's heads."
)
"""What the table of failures shows."""


def read_controls(config: Config, sweep: str, table: str) -> pd.DataFrame:
    """Read a table of a sweep's controls: gains, heads, spread, placebos or failures.

    Raises:
        TableError: the file is missing or lacks columns.
    """
    file = paths.CONTROLS.format(run=config.run, sweep=sweep, table=table, suffix="csv")
    found = read_csv(Path(file), _COLUMNS[table])
    return found.astype({"layer": "Int64", "head": "Int64"}) if table == "heads" else found


_COLUMNS = {
    "gains": GAINS,
    "heads": HEADS,
    "spread": SPREAD,
    "placebos": PLACEBOS,
    "failures": list(FAILURES),
}


def verdict(gains: pd.DataFrame, heads: pd.DataFrame, spread: pd.DataFrame) -> list[str]:
    """Answer in plain sentences whether the gains of a sweep are real.

    Args:
        gains: see `headroom.analysis.controls.GAINS`.
        heads: see `headroom.analysis.controls.HEADS`.
        spread: see `headroom.analysis.controls.SPREAD`.
    """
    overall = gains[gains["by"] == "overall"]
    ruined = overall.loc[overall["by_chance"].isna(), "layer"].tolist()
    subjects = gains[gains["by"] == "subject"]
    kind = "(subject, layer) pairs" if len(subjects) else "layers"
    pairs = (subjects if len(subjects) else overall).dropna(subset="by_chance")
    sentences = []
    if ruined:
        layers = ", ".join(str(layer) for layer in ruined)
        sentences.append(f"Every head of layer {layers} surely hurts when pruned.")
    if len(pairs):
        real = int((pairs["q"] < LEVEL).sum())
        sentences.append(
            f"Over {len(pairs)} {kind} the best head gains {points(pairs['gain'].mean())} points "
            f"on average; chance alone gives {points(pairs['by_chance'].mean())}. {real or 'None'} "
            f"of these gains {'is' if real < 2 else 'are'} beyond chance (sign flips, q < {LEVEL})."
        )
    for column, what in (
        ("placebo", "placebos, noise of a head's norm with no head pruned, gains"),
        ("numeric", "base models decoded again in other batches gains"),
    ):
        against = (subjects if len(subjects) else overall).dropna(subset=column)
        if len(against):
            real = int((against[f"{column}_q"] < LEVEL).sum())
            sentences.append(
                f"The best of as many {what} {points(against[column].mean())} points on average "
                f"over {len(against)} {kind}; in {real or 'none'} of them the best head is beyond "
                f"these (swaps by question, q < {LEVEL})."
            )
    held_out = overall.dropna(subset="held_out")
    for row in rows_of(held_out):
        shown = "no gain is shown"
        if row.low > 0 or row.high < 0:
            shown = "a gain" if row.low > 0 else "a loss"
        sentences.append(
            f"Layer {row.layer}: the head that looks best gains {points(row.gain)} points in "
            f"sample; chosen on half of the questions and measured on the other half it gains "
            f"{points(row.held_out)} (95% interval {points(row.low)} to {points(row.high)}): "
            f"{shown}. The winner's curse is {points(row.curse)} points."
        )
    tested = heads[heads["variant"] != str(BASE)]
    helps, hurts = helping(heads), hurting(heads)
    sentences.append(
        f"Of {len(tested)} heads {len(helps) or 'none'} can be shown to help when pruned and "
        f"{len(hurts) or 'none'} to hurt (exact McNemar test, q < {LEVEL}); the median head is "
        f"{points(float(tested['gain'].median()))} points from base."
    )
    sentences += [
        f"Among the {row.heads} {HARMLESS}, accuracy differs by {100 * row.spread:.1f} points "
        f"(standard deviation) where noise alone gives {100 * row.noise:.1f}: "
        f"{percent(row.share)} of the variance is more than noise (Cochran's Q, {_p(row.p)})."
        for row in rows_of(spread[spread["of"] == HARMLESS])
    ]
    sentences.append(
        f"{percent(float(tested['fragile'].mean()))} of all outcomes hang on a logit margin that "
        "numerics alone can turn."
    )
    return sentences


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


def spread_sheet(spread: pd.DataFrame) -> Sheet:
    """Return the spread between heads as text."""
    columns = (
        ("heads of", name("of")),
        ("heads", number("heads")),
        *((title, number(column, ".1f", 0.01)) for title, column in _SPREADS.items()),
        ("share (%)", in_percent("share")),
        ("p", number("p", ".3f")),
    )
    return Sheet.of(spread, columns, SPREAD_CAPTION)


_SPREADS = {"observed": "spread", "noise": "noise", "left": "component"}


def failures_sheet(table: pd.DataFrame) -> Sheet:
    """Return how heads that hurt fail as text; without rows where none does.

    Args:
        table: columns `FAILURES`, base first.
    """
    table = table if len(table) > 1 else table.head(0)
    cells = {"mode": _mode, "gain": in_points("gain")}
    cells |= {column: number(column, ".0f") for column in ("tokens", "norm_rank")}
    columns = [
        (title, cells.get(column) or in_percent(column))
        for column, title in FAILURES.items()
        if column != "variant"
    ]
    return Sheet.of(table, [("pruned", _pruned), *columns], FAILURES_CAPTION)


def _pruned(row: Any) -> str:
    return "No Prune" if row.variant == str(BASE) else str(row.variant)


def _mode(row: Any) -> str:
    return NONE if pd.isna(row.mode) else str(row.mode)


def _looping(file: Path) -> pd.Series | None:
    """Return which of a variant's answers end in a loop, by question; None without them."""
    if not file.exists():
        return None
    return read_table(file, ANSWERS).set_index("question_id")["token_ids"].map(loops)


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"
