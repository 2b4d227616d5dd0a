"""The SPRINT paper's claims on single heads (section 3), judged from accuracies.

Every judge takes cells in one form, whether printed in the paper or measured in a run: ``exhibit``
(the table or figure that shows them), ``model``, ``layer``, ``head`` (null for No Prune, which
stands in every layer), ``subject``, ``n``, ``correct``, ``accuracy``; the paper's also ``printed``.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from headroom.figures.judgement import Judgement, holds_if, unjudged
from headroom.figures.listing import rows_of
from headroom.figures.published import EXHIBITS, SIZES
from headroom.figures.text import percent, points
from headroom.statistics.proportion import wilson

LLAMA = "Meta-Llama-3-8B-Instruct"
MATH_1B, MATH_7B = "Qwen2.5-Math-1.5B-Instruct", "Qwen2.5-Math-7B-Instruct"
GENERAL_7B = "Qwen2.5-7B-Instruct"
MODELS = (LLAMA, MATH_1B, MATH_7B, GENERAL_7B)

NEAR_ZERO = 0.1
"""Largest accuracy that counts as near zero; the paper names no number."""

OFTEN, MANY = 0.5, 0.25
"""Least shares of cells that count as often and as many cases; the paper names no number."""

FIGURE = "Figure 5"
"""The exhibit that is no part of the head study's Tables 1-4 and Figure 2."""

_LEGIBLE = 0.5  # share of a pair's heads that a median over pairs needs

Judge = Callable[[pd.DataFrame], Judgement]


def pairs(cells: pd.DataFrame) -> pd.DataFrame:
    """Return each (model, layer, subject) pair of the tables: best gain, share of heads known."""
    cells = cells[cells["exhibit"] != FIGURE]
    base = cells[cells["head"].isna()].set_index(["model", "layer", "subject"])["accuracy"]
    heads = cells[cells["head"].notna()]
    most = heads.groupby("model")["head"].nunique()
    grouped = heads.groupby(["model", "layer", "subject"])["accuracy"].agg(["max", "size"])
    table = grouped.join(base, how="inner").reset_index()
    known = table["size"] / table["model"].map(most)
    return table.assign(gain=table["max"] - table["accuracy"], known=known)


def positive_gains(cells: pd.DataFrame) -> Judgement:
    """Judge: the best head gains over No Prune in every (subject, layer) pair."""
    found = pairs(cells)
    if found.empty:
        return _lacking(cells, MODELS) or unjudged("no head beside its base model")
    gained = int((found["gain"] > 1e-9).sum())
    none = found[(found["gain"] <= 1e-9) & (found["known"] == 1)]
    why = f"{gained} of {len(found)} pairs gain"
    if len(none):
        first = next(rows_of(none))
        at = f"{first.model}, {first.subject}, layer {first.layer}: {points(first.gain)}"
        return holds_if(False, f"{why}; not {at}")
    why += "; the best of many heads gains by selection alone, whatever pruning does"
    lacking = _lacking(cells, MODELS, why)
    if lacking or gained == len(found):
        return lacking or holds_if(True, why)
    return unjudged(f"{why}; of the others not all heads are known")


def median_order(cells: pd.DataFrame) -> Judgement:
    """Judge: median gains of the specialised math models exceed those of the general ones."""
    found = pairs(cells)
    medians = found[found["known"] >= _LEGIBLE].groupby("model")["gain"].median()
    why = "median gains: " + ", ".join(f"{m} {points(medians[m])}" for m in medians.index)
    lacking = _lacking(cells, MODELS, why if len(medians) else "")
    if lacking:
        return lacking
    ordered = medians[[MATH_1B, MATH_7B]].min() > medians[[LLAMA, GENERAL_7B]].max()
    return holds_if(bool(ordered), why)


def head_3_near_zero(cells: pd.DataFrame) -> Judgement:
    """Judge: without head 3 of layer 0 the three Qwen models are near zero."""
    wanted = (MATH_1B, MATH_7B, GENERAL_7B)
    parts, above = [], False
    for model in wanted:
        own = cells[(cells["model"] == model) & (cells["layer"] == 0) & (cells["head"] == 3)]
        if len(own):
            correct, n = own["correct"].sum(), own["n"].sum()
            low, high = map(float, wilson(np.array(correct), np.array(n)))
            above |= low > NEAR_ZERO
            parts.append(f"{model} {percent(correct / n)} ({percent(low)} to {percent(high)})")
    known = cells[(cells["layer"] == 0) & (cells["head"] == 3)]
    why = f"{', '.join(parts)}; near zero is taken as at most {NEAR_ZERO:.0%}"
    if above:
        return holds_if(False, why)
    return _lacking(known, wanted, why if parts else "") or holds_if(True, why)


def often_harmless(cells: pd.DataFrame) -> Judgement:
    """Judge: pruning a head often does not reduce accuracy, and in many cases increases it."""
    gain = _gains(cells)
    if gain.empty:
        return _lacking(cells, MODELS) or unjudged("no head beside its base model")
    kept, raised = float((gain > -1e-9).mean()), float((gain > 1e-9).mean())
    why = (
        f"not reduced in {percent(kept)}, increased in {percent(raised)} of {len(gain)} cells; "
        f"often is taken as {OFTEN:.0%}, many as {MANY:.0%}; noise alone does both"
    )
    return holds_if(kept >= OFTEN and raised >= MANY, why)


def mostly_improves(cells: pd.DataFrame) -> Judgement:
    """Judge: at layer 21 (Figure 5) pruning a head mostly improves accuracy."""
    own = cells[cells["exhibit"] == FIGURE]
    gain = _gains(own)
    if gain.empty:
        return unjudged(f"no layer 21 of {MATH_1B}")
    higher, lower = int((gain > 1e-9).sum()), int((gain < -1e-9).sum())
    why = f"{higher} cells higher, {len(gain) - higher - lower} equal, {lower} lower"
    return holds_if(higher > len(gain) / 2, why)


def no_prune(model: str, subject: str | None, value: float) -> Judge:
    """Return the judge of a stated accuracy of the base model, over all subjects if None.

    Several printed values fail it; of measured ones the 95% interval has to hold it.
    """

    def judge(cells: pd.DataFrame) -> Judgement:
        own = cells[(cells["model"] == model) & cells["head"].isna()]
        own = own[own["subject"] == subject] if subject else _whole(own, EXHIBITS[model])
        if own.empty:
            return unjudged(f"no {model}" + (f" on {subject}" if subject else " on all subjects"))
        if "printed" in own:
            values = own.groupby("exhibit")["printed"].unique()
            why = "; ".join(
                f"{exhibit} {', '.join(f'{v:.3g}' for v in sorted(found))}"
                for exhibit, found in values.items()
            )
            return holds_if(bool((own["printed"] - value).abs().max() < 0.0006), why)
        row = next(rows_of(own))
        low, high = map(float, wilson(np.array(row.correct), np.array(row.n)))
        why = f"{percent(row.accuracy)} of {row.n:.0f} ({percent(low)} to {percent(high)})"
        return holds_if(low <= value <= high, why)

    return judge


def _whole(own: pd.DataFrame, exhibit: str) -> pd.DataFrame:
    """Return No Prune over all subjects, if the model's table has them all; at most one row.

    Where layers print different numbers of the one model, their median counts.
    """
    own = own[own["exhibit"] == exhibit]
    if "printed" in own:
        own = own.assign(printed=own["printed"] * own["n"])
    counts = [name for name in ("n", "correct", "printed") if name in own]
    total = own.groupby("subject")[counts].median().sum()
    if total["n"] != sum(SIZES.values()):
        return own.iloc[:0]
    row = pd.DataFrame([total]).assign(exhibit=exhibit)
    row["accuracy"] = row["correct"] / row["n"]
    return row.assign(printed=row["printed"] / row["n"]) if "printed" in row else row


def _gains(cells: pd.DataFrame) -> pd.Series:
    keys = ["model", "layer", "subject"]
    base = cells[cells["head"].isna()].set_index(keys)["accuracy"].rename("base")
    heads = cells[cells["head"].notna()].join(base, on=keys, how="inner")
    return heads["accuracy"] - heads["base"]


def _lacking(cells: pd.DataFrame, wanted: Sequence[str], so_far: str = "") -> Judgement | None:
    """Say which models are not there, beginning with "no"; None if all are."""
    absent = [model for model in wanted if model not in set(cells["model"])]
    if not absent:
        return None
    return unjudged(f"no {' and no '.join(absent)}" + (f"; {so_far}" if so_far else ""))
