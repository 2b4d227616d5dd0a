"""Judges of the second paper's claims, by kind.

Each judges one compression by its tables. A claim that states numbers of the paper's solvers is
judged only on such a solver and the paper's data. Any other solver can only support or contradict
the direction.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from headsweep.config.compression import NOTABLE
from headsweep.results.compression_evidence import Compressed
from headsweep.results.facts import widened
from headsweep.results.judges import OPEN, Evidence, Judge, Judgement, sign_of
from headsweep.statistics.intervals import Estimate, unpaired_difference
from headsweep.text import percent, points, with_interval

_LAST = 0.00051  # half of the last digit that the paper prints
_WITHIN = 0.005  # by which a cut may fall short of what is stated
_KEYS = {"table3a": "alpha", "table3b": "stratum", "table4": "arm"}
"""By table, the column that names what a stated number is of."""

CompressionJudge = Callable[[Any, Compressed], Judgement | None]
"""Judges a claim, a row of the paper's table of claims, by one compression; returns None where that
has nothing of what the claim is about."""


def _judged(judge: CompressionJudge, claim: Any, evidence: Evidence) -> Judgement | None:
    """Return the judgement of all compressions: one word where those that decide agree."""
    judgements: dict[str, Judgement] = {}
    for compression in evidence.compressions:
        judgement = judge(claim, compression)
        if judgement is not None:
            judgements[compression.title] = judgement
    if not judgements:
        return None
    why = "; ".join(f"{title}: {judgement.why}" for title, judgement in judgements.items())
    words = {judgement.word for judgement in judgements.values()} - {OPEN}
    word = next(iter(words)) if len(words) == 1 else OPEN
    if len(judgements) > 1:
        return Judgement(word, why)
    (only,) = judgements.values()
    return only._replace(word=word, why=why)


def _stated(claim: Any) -> dict[str, float]:
    """Return the numbers that a claim states, fractions by name: of ``low: -0.3; high: -0.7``."""
    pairs = (part.split(": ") for part in claim.stated.split("; "))
    return {name: _fraction(number) for name, number in pairs}


def _fraction(stated: str) -> float:
    return round(float(stated) / 100, 9)


def _estimate(rows: pd.DataFrame, column: str) -> Estimate | None:
    """Return a number of the first row, if it has one.

    The ends of its interval are the number itself if it is printed, and infinite if too few
    examples were tested for an interval.
    """
    if rows.empty or column not in rows or pd.isna(rows[column].iloc[0]):
        return None
    value = float(rows[column].iloc[0])
    ends = [f"{column}_low", f"{column}_high"]
    if ends[0] not in rows:
        return Estimate(value, value, value)
    low, high = rows[ends].iloc[0].astype(float)
    if np.isnan(low):
        return Estimate(value, -np.inf, np.inf)
    return Estimate(value, low, high)


def _found(claim: Any, compression: Compressed, names: Iterable[str]) -> dict[str, Estimate]:
    """Return the numbers that a compression has of what a claim is about, by name."""
    rows = compression.rows(claim)
    keys = rows[_KEYS[claim.table]].astype(str)
    numbers = {name: _estimate(rows[keys == name], claim.column) for name in names}
    return {name: number for name, number in numbers.items() if number is not None}


def _estimate_text(estimate: Estimate) -> str:
    value, low, high = estimate
    if low == high:
        return points(value)
    if np.isinf(low):
        return f"{points(value)} (too few examples for an interval)"
    return with_interval(points, value, low, high)


def _difference(first: Estimate, second: Estimate) -> Estimate:
    """Return the second number minus the first, with the interval of independent ones."""
    first_value, first_low, first_high = np.array(first)
    second_value, second_low, second_high = np.array(second)
    low, high = unpaired_difference(
        first_value, (first_low, first_high), second_value, (second_low, second_high)
    )
    return Estimate(second.value - first.value, float(low), float(high))


def _jointly(estimates: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """Return estimates with intervals that hold for all of them at once (Bonferroni).

    A claim about several numbers fails by any of them, so each may err less.
    """
    joint: dict[str, Estimate] = {}
    for name, (value, low, high) in estimates.items():
        least, most = widened(low, high, len(estimates))
        joint[name] = Estimate(value, least, most)
    return joint


def _negative(number: Estimate) -> Estimate:
    return Estimate(-number.value, -number.high, -number.low)


def _all_below(numbers: Mapping[str, Estimate], bound: float) -> str:
    """Return whether a claim that all numbers are below a bound holds."""
    if any(number.low >= bound for number in _jointly(numbers).values()):
        return "fails"
    return "holds" if all(number.high < bound for number in numbers.values()) else OPEN


def _holds(estimate: Estimate, stated: float) -> bool:
    """Return whether a stated number is the printed one, or within the measured interval."""
    slack = _LAST if estimate.low == estimate.high else 0.0
    return estimate.low - slack <= stated <= estimate.high + slack


def _changes(claim: Any, compression: Compressed) -> Judgement | None:
    """Judge: accuracy changes by the stated numbers.

    Of another solver than the paper's, all must have the stated sign.
    """
    stated = _stated(claim)
    measured = _found(claim, compression, stated)
    if not measured:
        return None
    texts = [f"{name} {_estimate_text(number)}" for name, number in measured.items()]
    why = f"{', '.join(texts)} points"
    number = next(iter(measured.values())) if len(measured) == 1 else None
    joint = _jointly(measured)

    def sign(name: str, number: Estimate) -> str:
        return sign_of(number if stated[name] > 0 else _negative(number))

    if not compression.is_main:
        why = f"{why}, not the paper's solver and data: the direction alone"
    elif not all(_holds(joint[name], stated[name]) for name in joint):
        return Judgement("fails", why, number)
    if any(sign(name, joint[name]) == "fails" for name in joint):
        return Judgement("fails", why, number)
    right = all(sign(name, measured[name]) == "holds" for name in measured)
    whole = len(measured) == len(stated) and right
    return Judgement("holds" if whole else OPEN, why, number)


def _best(claim: Any, compression: Compressed) -> Judgement | None:
    """Judge: no other mixture is as good as the stated one."""
    alphas = list(compression.rows(claim)["alpha"].astype(str))
    others = [alpha for alpha in alphas if alpha != claim.stated]
    gaps = _found(claim, compression, others)
    if not gaps or claim.stated not in alphas:
        return None
    best = max(gaps, key=lambda alpha: gaps[alpha].value)
    why = f"the best other alpha, {float(best):g}, against {claim.stated}: "
    why += f"{_estimate_text(gaps[best])} points"
    return Judgement(_all_below(gaps, 0.0), why, gaps[best])


def _above(claim: Any, compression: Compressed) -> Judgement | None:
    """Judge: changes of accuracy are all above the stated number, on the paper's solver."""
    if not compression.is_main:
        return None
    stated = _stated(claim)
    measured = _found(claim, compression, stated)
    if len(measured) < len(stated):
        return None
    bound = max(stated.values())
    least = min(measured.values())
    why = f"at least {_estimate_text(least)} points against the unpruned solver; "
    why += f"above {points(bound)} is stated"
    losses = {name: _negative(number) for name, number in measured.items()}
    return Judgement(_all_below(losses, -bound), why, least)


def _complex(claim: Any, compression: Compressed) -> Judgement | None:
    """Judge: complex problems lose more than simple ones, by the stated numbers."""
    stated = _stated(claim)
    measured = _found(claim, compression, stated)
    if len(measured) < len(stated):
        return None
    low, high = measured["low"], measured["high"]
    why = f"simple {_estimate_text(low)}, complex {_estimate_text(high)} points"
    joint = _jointly(measured)
    if compression.is_main and not all(_holds(joint[name], stated[name]) for name in stated):
        return Judgement("fails", why)
    more = _difference(low, high)
    return Judgement(sign_of(_negative(more)), why, more)


def _comparable(claim: Any, compression: Compressed) -> Judgement | None:
    """Judge: norm alone and entropy alone differ by no more than `NOTABLE`."""
    measured = _found(claim, compression, ["without_entropy", "without_norm"])
    if len(measured) < 2:
        return None
    norm, entropy = measured.values()
    # The arms answer the same problems: taken as independent, the interval is too wide.
    apart = _difference(entropy, norm)
    why = f"norm alone minus entropy alone {_estimate_text(apart)} points; comparable: within "
    why += f"{100 * NOTABLE:g}"
    if apart.low > -NOTABLE and apart.high < NOTABLE:
        return Judgement("holds", why, apart)
    beyond = apart.low > NOTABLE or apart.high < -NOTABLE
    return Judgement("fails" if beyond else OPEN, why, apart)


def _recursion(claim: Any, compression: Compressed) -> Judgement | None:
    """Judge: a teacher of each round gains the stated number over one teacher throughout.

    The paper prints single rounds with one kind of distillation; a run has the arm with both.
    """
    single_round = ["joint_single_teacher", "response_distillation", "feature_distillation"]
    measured = _found(claim, compression, single_round)
    if not measured:
        return None
    gain = _negative(next(iter(measured.values())))
    why = f"recursive minus single-round distillation {_estimate_text(gain)} points; "
    why += f"{claim.stated} is stated"
    if compression.is_main and gain.high < _fraction(claim.stated) - _LAST:
        return Judgement("fails", why, gain)
    return Judgement(sign_of(gain), why, gain)


def _rising(claim: Any, compression: Compressed) -> Judgement | None:
    """Judge: every higher ratio saves more parameters, memory and computation."""
    rows = compression.rows(claim).sort_values("ratio")
    columns = ["parameters_removed", "weight_removed", "flops_removed"]
    measured = [column for column in columns if rows[column].notna().all()]
    if len(rows) < 2 or not measured:
        return None
    rising = all(low < high for column in measured for low, high in pairwise(rows[column]))
    told = ", ".join(
        f"{percent(rows[column].iloc[0])} to {percent(rows[column].iloc[-1])} of "
        f"{column.removesuffix('_removed').replace('weight', 'the bytes of weights')}"
        for column in measured
    )
    return Judgement("holds" if rising else "fails", told)


def _alike(claim: Any, compression: Compressed) -> Judgement | None:
    """Judge: all pruned arms have one speed-up and one saving of memory."""
    rows = compression.rows(claim).dropna(subset=["faster_large", "weight_removed"])
    if len(rows) < 2:
        return None
    ranges = {
        told: (rows[column].min(), rows[column].max())
        for told, column in (("faster", "faster_large"), ("fewer bytes", "weight_removed"))
    }
    alike = all(high - low < 2 * _LAST for low, high in ranges.values())
    why = ", ".join(
        f"{percent(low)} to {percent(high)} {told}" for told, (low, high) in ranges.items()
    )
    return Judgement("holds" if alike else "fails", f"{len(rows)} pruned arms, {why}")


def _at_ratio(claim: Any, compression: Compressed) -> Judgement | None:
    """Judge: one ratio, on one of the paper's solvers and data, has the stated numbers.

    They are the change of accuracy and, by column, cuts, which have to come within half a point or
    above; no cut may exceed what arithmetic allows.
    """
    if compression.condition is None or ", ".join(compression.condition) != claim.condition:
        return None
    stated = _stated(claim)
    row = compression.rows(claim)
    changed = _estimate(row, "change")
    if changed is None:
        return None
    parts = []
    words = []
    change = stated.pop("change", None)
    if change is not None:
        parts.append(f"accuracy {_estimate_text(changed)} points")
        _, low, high = changed
        shown = low == high or low > 0 or high < 0
        words.append("fails" if not _holds(changed, change) else "holds" if shown else OPEN)
    for column, share in stated.items():
        cut = _estimate(row, column)
        if cut is None:
            return None
        parts.append(f"{column.replace('_', ' ')} {percent(cut.value)}")
        words.append("fails" if cut.value < share - _WITHIN else "holds")
        most = _estimate(row, f"{column}_at_most")
        if most and cut.value > most.value + _LAST:
            parts.append(f"removing these heads saves at most {percent(most.value)} (arithmetic)")
            words.append("fails")
        flops = _estimate(row, "flops_removed_at_most")
        if column == "faster_large" and flops and cut.value > 1 / (1 - flops.value) - 1:
            parts.append(f"doubtful: these heads hold at most {percent(flops.value)} of the FLOPs")
            words.append(OPEN)
    word = next((outcome for outcome in ("fails", OPEN) if outcome in words), "holds")
    return Judgement(word, "; ".join(parts), None if change is None else changed)


_JUDGES: Mapping[str, CompressionJudge] = {
    "changes": _changes,
    "best": _best,
    "above": _above,
    "complex lose more": _complex,
    "comparable": _comparable,
    "recursion gains": _recursion,
    "rising": _rising,
    "alike": _alike,
    "at a ratio": _at_ratio,
}

JUDGES: Mapping[str, Judge] = {kind: partial(_judged, judge) for kind, judge in _JUDGES.items()}
"""By kind."""
