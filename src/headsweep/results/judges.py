"""Judges of the SPRINT paper's claims that more than one number decides, by kind.

A claim about gains holds only beyond what placebos, or else chance, give: a rule that noise
satisfies is no judge (`headsweep.results.excess`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from headsweep.results.compression_evidence import Compressed
from headsweep.results.excess import Excess, interval_around
from headsweep.results.published import EXHIBITS
from headsweep.statistics.intervals import Estimate
from headsweep.text import percent, points

OPEN = "cannot be judged"

HARMLESS, INCREASED, BEST, MEDIAN = "harmless", "increased", "best", "median"
CONTRAST, SUBJECTS, FIGURE = "contrast", "subjects", "figure"
"""What is counted of a model's heads: see `headsweep.results.excess`; the last is `INCREASED` of
the layer of Figure 5."""

_TOLD = {
    HARMLESS: "of heads and subjects lose nothing",
    INCREASED: "of heads and subjects gain",
    FIGURE: "of the heads and subjects of layer 21 gain",
    CONTRAST: "at levels 4 and 5 than at 1 and 2",
    SUBJECTS: "in these subjects than in the others",
}


class Judgement(NamedTuple):
    """What is said of a claim, why, and the number that decides it, if one does."""

    word: str
    why: str
    number: Estimate | None = None

    def columns(self, prefix: str) -> dict[str, Any]:
        """Return it as columns of a table: the word, and the others with their name behind."""
        value, low, high = self.number or (np.nan, np.nan, np.nan)
        return {
            prefix: self.word,
            f"{prefix}_why": self.why,
            f"{prefix}_value": value,
            f"{prefix}_low": low,
            f"{prefix}_high": high,
        }


@dataclass(frozen=True)
class Evidence:
    """What is known under one prompt and one set of grading rules."""

    excesses: Mapping[str, Mapping[str, Excess]] = field(default_factory=dict)
    """By model, as the paper calls it, and by what is counted."""
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    """Those that `headsweep.results.claims.judge` is given rows of, and ``overhead``."""
    compressions: Sequence[Compressed] = ()
    printed: bool = False
    """Whether these are the paper's own numbers."""
    beside: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    """The paper's own tables, beside a run's: what a claim is about stands in them."""

    def of(self, counted: str) -> dict[str, Excess]:
        """Return what is counted, by model, where it is known."""
        counted_of_model = {
            model: excesses.get(counted) for model, excesses in self.excesses.items()
        }
        return {model: excess for model, excess in counted_of_model.items() if excess is not None}


Judge = Callable[[Any, Evidence], Judgement | None]
"""Judges a claim, a row of the papers' tables of claims; returns None where nothing was measured of
it."""


def sign_of(number: Estimate) -> str:
    """Return whether a claim that a number is above zero holds, by its interval."""
    return "holds" if number.low > 0 else "fails" if number.high < 0 else OPEN


def _pooled(excess_of_model: Mapping[str, Excess]) -> Excess:
    """Return the mean over models."""
    parts = list(excess_of_model.values())
    of_heads, value = (
        float(np.mean([getattr(excess, part) for excess in parts]))
        for part in ("of_heads", "value")
    )
    highest = np.mean([excess.highest for excess in parts], axis=0)
    lowest = np.mean([excess.lowest for excess in parts], axis=0)
    against = " and ".join(dict.fromkeys(excess.against for excess in parts))
    low, high = interval_around(value, highest, lowest)
    return Excess(of_heads, value, low, high, against, highest, lowest)


def _more_often(claim: Any, evidence: Evidence) -> Judgement | None:
    """Judge: something is true of a share of the heads and subjects.

    It holds where the share is as large as stated, and larger than without an effect; it fails
    where the share is smaller.
    """
    excess_of_model = evidence.of(claim.column)
    if not excess_of_model:
        return None
    stated = float(claim.stated) / 100
    whole = _pooled(excess_of_model)
    why = f"{percent(whole.of_heads)} {_TOLD[claim.column]}; taken: at least {percent(stated)}, "
    why += f"and more than {whole.against}, which it exceeds by {_shown(whole)}"
    # A measured share varies by as much as without an effect.
    certain = whole.of_heads - (0 if evidence.printed else whole.value - whole.low)
    possible = whole.of_heads + (0 if evidence.printed else whole.high - whole.value)
    holds = certain >= stated and whole.low > 0
    word = "holds" if holds else "fails" if possible < stated else OPEN
    return Judgement(word, why, whole.estimate)


def _particularly(claim: Any, evidence: Evidence) -> Judgement | None:
    """Judge: some questions gain more than others, beyond chance."""
    excess_of_model = evidence.of(claim.column)
    if not excess_of_model:
        return None
    whole = _pooled(excess_of_model)
    why = f"the best head of a layer gains {points(whole.of_heads)} points more "
    why += f"{_TOLD[claim.column]}; beyond {whole.against} {_shown(whole)}"
    return Judgement(sign_of(whole.estimate), why, whole.estimate)


def _shown(number: Excess | Estimate) -> str:
    return f"{points(number.value)} points ({points(number.low)} to {points(number.high)})"


def _consistently(_: Any, evidence: Evidence) -> Judgement | None:
    pairs = evidence.tables.get("pairs")
    excess_of_model = evidence.of(BEST)
    if pairs is None:
        return None
    most = pairs["gain_high"].fillna(pairs["gain"])
    without = int((most <= 0).sum())
    whole = _pooled(excess_of_model) if excess_of_model else None
    number = whole.estimate if whole else None
    why = f"{without} of {len(pairs)} pairs have no head with a gain"
    why += f"; beyond {whole.against} {_shown(whole)}" if whole else ""
    lacking = ", ".join(sorted(set(EXHIBITS) - set(excess_of_model)))
    if without:
        return Judgement("fails", why, number)
    beyond = all(excess.low > 0 for excess in excess_of_model.values())
    complete = not pairs["gain_high"].notna().any() and not lacking
    why = f"nothing on {lacking}; {why}" if lacking else why
    return Judgement("holds" if beyond and complete else OPEN, why, number)


def _medians(_: Any, evidence: Evidence) -> Judgement | None:
    excess_of_model = evidence.of(MEDIAN)
    if not excess_of_model:
        return None
    if lacking := ", ".join(sorted(set(EXHIBITS) - set(excess_of_model))):
        return Judgement(OPEN, f"nothing on {lacking}")
    leads = []
    for math in (model for model in EXHIBITS if "Math" in model):
        for general in (model for model in EXHIBITS if "Math" not in model):
            of_math, of_general = excess_of_model[math], excess_of_model[general]
            lead = of_math.value - of_general.value
            plain = of_math.of_heads - of_general.of_heads
            ends = interval_around(
                lead, of_math.highest - of_general.lowest, of_math.lowest - of_general.highest
            )
            leads.append((plain, lead, *ends))
    plain, _, low, high = np.transpose(leads)
    least = Estimate(*leads[int(np.argmin(low))][1:])
    why = f"the least of {len(leads)} leads, beyond {excess_of_model[math].against}, "
    why += _shown(least)
    refuted = (plain <= 0).any() if evidence.printed else (high < 0).any()
    word = "fails" if refuted else "holds" if (low > 0).all() else OPEN
    return Judgement(word, why, least)


def _overhead(claim: Any, evidence: Evidence) -> Judgement | None:
    table = evidence.tables.get("overhead")
    if table is None:
        return None
    most = table.iloc[int(table["overhead"].argmax())]
    share = float(most["overhead"])
    why = f"{percent(share)} more computed at most, N = {most['n']:g}, against {most['method']}"
    why += "; to embed a question and to rank heads is not counted"
    return Judgement(
        "holds" if share <= float(claim.stated) / 100 else "fails",
        why,
        Estimate(share, np.nan, np.nan),
    )


JUDGES: Mapping[str, Judge] = {
    "more often": _more_often,
    "particularly": _particularly,
    "consistently": _consistently,
    "medians": _medians,
    "overhead": _overhead,
}
"""By kind."""
