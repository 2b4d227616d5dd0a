"""The SPRINT paper's claims on selection (section 5, Figure 4), judged from Pass@N curves."""

from collections.abc import Mapping

import pandas as pd

from headroom.figures.curves import SPRINT
from headroom.figures.judgement import Judgement, holds_if, unjudged
from headroom.figures.text import points

NEARLY_ALL = 0.9
"""Least share that counts as nearly all; the paper names no number."""

_EARLY = 4  # the N up to which the paper sees the greatest improvements

Curves = Mapping[str, tuple[pd.DataFrame, pd.DataFrame]]
"""Of each selector of the paper's model: rows of `headroom.tables.CURVES`, and of paired.csv."""


def ahead_of_baselines(found: Curves) -> Judgement:
    """Judge: SPRINT outperforms its baselines, sampling and random heads, at nearly all N.

    Ahead or behind is what the paired 95% interval shows; where it holds zero the claim is open.
    """
    ahead = behind = total = 0
    for _, paired in found.values():
        own = paired[_is_baseline(paired["method"])]
        ahead += int((own["low"] > 0).sum())
        behind += int((own["high"] < 0).sum())
        total += len(own)
    if not total:
        return unjudged("no baseline beside SPRINT")
    why = (
        f"ahead in {ahead}, behind in {behind} of {total} comparisons with sampling and random "
        f"heads (95% paired intervals, {', '.join(found)}); nearly all is taken as {NEARLY_ALL:.0%}"
    )
    if behind > (1 - NEARLY_ALL) * total:
        return holds_if(False, why)
    return holds_if(True, why) if ahead >= NEARLY_ALL * total else unjudged(why)


def greatest_early(found: Curves) -> Judgement:
    """Judge: SPRINT's lead over its best baseline is greatest at N = 1 to 4 (no interval)."""
    parts, holds = [], []
    for name, (curves, _) in found.items():
        own = curves[curves["method"] == SPRINT].set_index("n")["pass_at_n"]
        best = curves[_is_baseline(curves["method"])].groupby("n")["pass_at_n"].max()
        lead = (own - best).dropna()
        if lead.empty:
            return unjudged("no baseline beside SPRINT")
        parts.append(f"{name} {points(lead.max())} at N = {lead.idxmax()}")
        holds.append(bool(lead.max() > 0 and lead[lead == lead.max()].index.min() <= _EARLY))
    return holds_if(all(holds), f"largest lead over the best baseline: {', '.join(parts)}")


def gradual_later(found: Curves) -> Judgement:
    """Judge: SPRINT's Pass@N rises more slowly after N = 4 (no interval)."""
    parts, holds = [], []
    for name, (curves, _) in found.items():
        own = curves[curves["method"] == SPRINT].set_index("n")["pass_at_n"]
        last = int(curves["n"].max())
        if last <= _EARLY:
            return unjudged(f"no N above {_EARLY}")
        early = (own[_EARLY] - own[1]) / (_EARLY - 1)
        late = (own[last] - own[_EARLY]) / (last - _EARLY)
        parts.append(f"{name} {points(early)}, then {points(late)}")
        holds.append(bool(late < early))
    return holds_if(all(holds), f"points for each further answer: {', '.join(parts)}")


def _is_baseline(methods: pd.Series) -> pd.Series:
    """Tell the paper's baselines from those that were added."""
    return methods.str.startswith("sampling") | (methods == "random heads")
