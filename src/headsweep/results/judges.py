"""Judges of the SPRINT paper's claims that more than one number decides, by the claim's words.

A claim about gains holds only beyond what placebos, or else chance, give: a rule that noise
satisfies is no judge (`headsweep.results.excess`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from headsweep.results.excess import Excess, interval_around
from headsweep.results.published import EXHIBITS
from headsweep.text import percent, points

OPEN = "cannot be judged"

HARMLESS, INCREASED, BEST, MEDIAN = "harmless", "increased", "best", "median"
CONTRAST, SUBJECTS, FIGURE = "contrast", "subjects", "figure"
"""What is counted of a model's heads: see `headsweep.results.excess`; the last is `INCREASED` of
the layer of Figure 5."""

_OVERHEAD = 0.01  # share of a sampled answer's cost that still counts as none


class Judgement(NamedTuple):
    """What is said of a claim, why, and the number that decides it, with its interval."""

    word: str
    why: str
    value: float = np.nan
    low: float = np.nan
    high: float = np.nan

    @classmethod
    def by(cls, word: str, why: str, number: tuple[float, float, float] | None) -> "Judgement":
        """Return a judgement with its number (value, low, high), if one decides it."""
        if number is None:
            return cls(word, why)
        value, low, high = number
        return cls(word, why, value, low, high)

    def columns(self, prefix: str) -> dict[str, Any]:
        """Return it as columns of a table: the word, and the others with their name behind."""
        return {
            prefix: self.word,
            f"{prefix}_why": self.why,
            f"{prefix}_value": self.value,
            f"{prefix}_low": self.low,
            f"{prefix}_high": self.high,
        }


@dataclass(frozen=True)
class Evidence:
    """What is known under one prompt and one set of grading rules."""

    excesses: Mapping[str, Mapping[str, Excess]] = field(default_factory=dict)
    """By model, as the paper calls it, and by what is counted."""
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    """Those that `headsweep.results.claims.judge` is given rows of, and ``overhead``."""
    printed: bool = False
    """Whether these are the paper's own numbers."""

    def of(self, counted: str) -> dict[str, Excess]:
        """Return what is counted, by model, where it is known."""
        counted_of_model = {
            model: excesses.get(counted) for model, excesses in self.excesses.items()
        }
        return {model: excess for model, excess in counted_of_model.items() if excess is not None}


Judge = Callable[[Evidence], Judgement | None]
"""Returns None where nothing was measured of the claim."""


def sign_of(low: float, high: float) -> str:
    """Return whether a claim that a number is above zero holds, by its interval."""
    return "holds" if low > 0 else "fails" if high < 0 else OPEN


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


def _more_often(counted: str, told: str, stated: float) -> Judge:
    """Return the judge of a claim that something is true of a share of the heads and subjects.

    It holds where the share is as large as stated, and larger than without an effect; it fails
    where the share is smaller.
    """

    def judge(evidence: Evidence) -> Judgement | None:
        if not (excess_of_model := evidence.of(counted)):
            return None
        whole = _pooled(excess_of_model)
        why = f"{percent(whole.of_heads)} {told}; taken: at least {percent(stated)}, and more than "
        why += f"{whole.against}, which it exceeds by {_shown(whole)}"
        # A measured share varies by as much as without an effect.
        certain = whole.of_heads - (0 if evidence.printed else whole.value - whole.low)
        possible = whole.of_heads + (0 if evidence.printed else whole.high - whole.value)
        holds = certain >= stated and whole.low > 0
        word = "holds" if holds else "fails" if possible < stated else OPEN
        return Judgement(word, why, whole.value, whole.low, whole.high)

    return judge


def _contrasts(counted: str, told: str) -> Judge:
    """Return the judge of a claim that some questions gain more than others, beyond chance."""

    def judge(evidence: Evidence) -> Judgement | None:
        if not (excess_of_model := evidence.of(counted)):
            return None
        whole = _pooled(excess_of_model)
        why = f"the best head of a layer gains {points(whole.of_heads)} points more {told}; beyond "
        why += f"{whole.against} {_shown(whole)}"
        word = sign_of(whole.low, whole.high)
        return Judgement(word, why, whole.value, whole.low, whole.high)

    return judge


def _shown(excess: Excess) -> str:
    return f"{points(excess.value)} points ({points(excess.low)} to {points(excess.high)})"


def _consistently(evidence: Evidence) -> Judgement | None:
    pairs = evidence.tables.get("pairs")
    excess_of_model = evidence.of(BEST)
    if pairs is None:
        return None
    most = pairs["gain_high"].fillna(pairs["gain"])
    without = int((most <= 0).sum())
    whole = _pooled(excess_of_model) if excess_of_model else None
    number = (whole.value, whole.low, whole.high) if whole else None
    why = f"{without} of {len(pairs)} pairs have no head with a gain"
    why += f"; beyond {whole.against} {_shown(whole)}" if whole else ""
    lacking = ", ".join(sorted(set(EXHIBITS) - set(excess_of_model)))
    if without:
        return Judgement.by("fails", why, number)
    beyond = all(excess.low > 0 for excess in excess_of_model.values())
    complete = not pairs["gain_high"].notna().any() and not lacking
    why = f"nothing on {lacking}; {why}" if lacking else why
    return Judgement.by("holds" if beyond and complete else OPEN, why, number)


def _medians(evidence: Evidence) -> Judgement | None:
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
    least = leads[int(np.argmin(low))][1:]
    why = f"the least of {len(leads)} leads, beyond {excess_of_model[math].against}, "
    why += f"{points(least[0])} points ({points(least[1])} to {points(least[2])})"
    refuted = (plain <= 0).any() if evidence.printed else (high < 0).any()
    word = "fails" if refuted else "holds" if (low > 0).all() else OPEN
    return Judgement.by(word, why, least)


def _overhead(evidence: Evidence) -> Judgement | None:
    table = evidence.tables.get("overhead")
    if table is None:
        return None
    most = table.iloc[int(table["overhead"].argmax())]
    share = float(most["overhead"])
    why = f"{percent(share)} more computed at most, N = {most['n']:g}, against {most['method']}"
    why += "; to embed a question and to rank heads is not counted"
    return Judgement("holds" if share <= _OVERHEAD else "fails", why, share)


JUDGES: Mapping[str, Judge] = {
    "gains arise particularly on challenging tasks": _contrasts(
        CONTRAST, "at levels 4 and 5 than at 1 and 2"
    ),
    "gains are large particularly in Counting & Probability and Geometry": _contrasts(
        SUBJECTS, "in these subjects than in the others"
    ),
    "head pruning consistently produces positive gains for all evaluated models": _consistently,
    "specialised math models show higher median gains, general-purpose models more modest gains": (
        _medians
    ),
    "pruning individual heads often does not reduce accuracy": _more_often(
        HARMLESS, "of heads and subjects lose nothing", 0.5
    ),
    "pruning individual heads in many cases increases accuracy": _more_often(
        INCREASED, "of heads and subjects gain", 0.25
    ),
    "Figure 5: pruning a head mostly leads to improvement in accuracy at 1": _more_often(
        FIGURE, "of the heads and subjects of layer 21 gain", 0.501
    ),
    "inference-time overhead": _overhead,
}
