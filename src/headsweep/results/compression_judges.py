"""Judges of the second paper's claims, by the claim's words.

Each judges one compression by its tables (`headsweep.results.compressions.COLUMNS`), or by the
paper's own tables in the same columns. A claim that states numbers of the paper's solvers is judged
only on such a solver and the paper's data. Any other solver can only support or contradict the
direction.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from headsweep.config.compression import NOTABLE
from headsweep.config.experiments import METHOD
from headsweep.results.facts import widened
from headsweep.results.judges import OPEN, Judgement, sign_of
from headsweep.statistics.intervals import unpaired_difference
from headsweep.text import percent, points, with_interval

BASE, LARGE, MATH, ASDIV = "ATHENA-base", "ATHENA-large", "Math23k", "ASDiv-A"

_LAST = 0.00051  # half of the last digit that the paper prints
_WITHIN = 0.005  # by which a cut may fall short of what is stated
_METHOD_CHANGE = -0.004  # the paper's, ATHENA-base on Math23k at 25%

WithInterval = tuple[float, float, float]
"""A number with the ends of its interval: equal if it is printed, infinite if too few examples were
tested for an interval."""


@dataclass(frozen=True)
class Compressed:
    """One compression, measured or printed."""

    title: str
    condition: tuple[str, str] | None
    """The paper's names of solver and data, if it is the paper's; of a compression that differs in
    either there is none."""
    tables: Mapping[str, pd.DataFrame]

    @property
    def is_main(self) -> bool:
        """Whether it is what the paper's Tables 3 and 4 are of."""
        return self.condition == (BASE, MATH)

    def estimate(self, table: str, column: str, **wanted: Any) -> WithInterval | None:
        """Return a number of a table, the first in which columns have the wanted values."""
        rows = self.tables[table]
        for name, value in wanted.items():
            equal = rows[name] == value
            if isinstance(value, float):
                equal = (rows[name].astype(float) - value).abs() < 1e-9
            rows = rows[equal]
        if rows.empty or column not in rows or pd.isna(rows[column].iloc[0]):
            return None
        value = float(rows[column].iloc[0])
        ends = [f"{column}_low", f"{column}_high"]
        if ends[0] not in rows:
            return value, value, value
        low, high = rows[ends].iloc[0].astype(float)
        return (value, -np.inf, np.inf) if np.isnan(low) else (value, low, high)


Judge = Callable[[Compressed], Judgement | None]
"""Returns None where a compression has nothing of what the claim is about."""


def judged(judge: Judge, compressions: Sequence[Compressed]) -> Judgement | None:
    """Return the judgement of all compressions: one word where those that decide agree."""
    judgements: dict[str, Judgement] = {}
    for compression in compressions:
        judgement = judge(compression)
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


def _estimate_text(estimate: WithInterval) -> str:
    value, low, high = estimate
    if low == high:
        return points(value)
    if np.isinf(low):
        return f"{points(value)} (too few examples for an interval)"
    return with_interval(points, value, low, high)


def _difference(first: WithInterval, second: WithInterval) -> WithInterval:
    """Return the second number minus the first, with the interval of independent ones."""
    first_value, first_low, first_high = np.array(first)
    second_value, second_low, second_high = np.array(second)
    low, high = unpaired_difference(
        first_value, (first_low, first_high), second_value, (second_low, second_high)
    )
    return second[0] - first[0], float(low), float(high)


def _jointly(estimates: Iterable[WithInterval]) -> list[WithInterval]:
    """Return estimates with intervals that hold for all of them at once (Bonferroni).

    A claim about several numbers fails by any of them, so each may err less.
    """
    together = list(estimates)
    return [(value, *widened(low, high, len(together))) for value, low, high in together]


def _holds(estimate: WithInterval, stated: float) -> bool:
    """Return whether a stated number is the printed one, or within the measured interval."""
    _, low, high = estimate
    slack = _LAST if low == high else 0.0
    return low - slack <= stated <= high + slack


def _changes(
    table: str, column: str, key: str, stated: Mapping[str | float, float], **of_rows: Any
) -> Judge:
    """Return the judge of changes of accuracy, stated by what a key names: of an arm, say.

    They are about rows in which other columns have the values `of_rows`. Of another solver than
    the paper's, all must have the stated sign.
    """

    def judge(compression: Compressed) -> Judgement | None:
        estimates = {
            name: compression.estimate(table, column, **of_rows, **{key: name}) for name in stated
        }
        measured = {name: numbers for name, numbers in estimates.items() if numbers is not None}
        if not measured:
            return None
        texts = [f"{name} {_estimate_text(numbers)}" for name, numbers in measured.items()]
        why = f"{', '.join(texts)} points"
        number = next(iter(measured.values())) if len(measured) == 1 else None
        joint = dict(zip(measured, _jointly(measured.values()), strict=True))

        def sign(name: str | float, numbers: WithInterval) -> str:
            _, low, high = numbers
            return sign_of(low, high) if stated[name] > 0 else sign_of(-high, -low)

        if not compression.is_main:
            why = f"{why}, not the paper's solver and data: the direction alone"
        elif not all(_holds(numbers, stated[name]) for name, numbers in joint.items()):
            return Judgement.by("fails", why, number)
        if any(sign(name, numbers) == "fails" for name, numbers in joint.items()):
            return Judgement.by("fails", why, number)
        right = all(sign(name, numbers) == "holds" for name, numbers in measured.items())
        whole = len(measured) == len(stated) and right
        return Judgement.by("holds" if whole else OPEN, why, number)

    return judge


def _best_alpha(compression: Compressed) -> Judgement | None:
    """Judge: no other mixture than 0.5 is as good, with distillation."""
    table = compression.tables["table3a"]
    alphas = [float(alpha) for alpha in table.loc[table["distilled"].eq(True), "alpha"]]
    gaps: dict[float, WithInterval] = {}
    for alpha in alphas:
        gap = compression.estimate("table3a", "gap", alpha=alpha, distilled=True)
        if alpha != 0.5 and gap is not None:
            gaps[alpha] = gap
    if not gaps or 0.5 not in alphas:
        return None
    best = max(gaps, key=lambda alpha: gaps[alpha][0])
    why = f"the best other alpha, {best:g}, against 0.5: {_estimate_text(gaps[best])} points"
    if any(low > 0 for _, low, _ in _jointly(gaps.values())):
        return Judgement.by("fails", why, gaps[best])
    worse = all(high < 0 for *_, high in gaps.values())
    return Judgement.by("holds" if worse else OPEN, why, gaps[best])


def _between(compression: Compressed) -> Judgement | None:
    """Judge: at alpha 0.3 to 0.7 accuracy is above 83.5%, 0.9 points below the unpruned solver.

    As in the paper's Table 3a, that is with distillation.
    """
    if not compression.is_main:
        return None
    estimates = [
        compression.estimate("table3a", "change", alpha=alpha, distilled=True)
        for alpha in (0.3, 0.5, 0.7)
    ]
    measured = [numbers for numbers in estimates if numbers is not None]
    if len(measured) < len(estimates):
        return None
    least = min(measured)
    why = f"at least {_estimate_text(least)} points against the unpruned solver; "
    why += "above −0.9 is stated"
    if any(high <= -0.009 for *_, high in _jointly(measured)):
        return Judgement.by("fails", why, least)
    above = all(low > -0.009 for _, low, _ in measured)
    return Judgement.by("holds" if above else OPEN, why, least)


def _by_complexity(compression: Compressed) -> Judgement | None:
    """Judge: complex problems lose more (0.7 points) than simple ones (0.3)."""
    low, high = (
        compression.estimate("table3b", "change", stratum=name) for name in ("low", "high")
    )
    if low is None or high is None:
        return None
    why = f"simple {_estimate_text(low)}, complex {_estimate_text(high)} points"
    of_simple, of_complex = _jointly([low, high])
    if compression.is_main and not (_holds(of_simple, -0.003) and _holds(of_complex, -0.007)):
        return Judgement("fails", why)
    more = _difference(low, high)
    return Judgement.by(sign_of(-more[2], -more[1]), why, more)


def _comparable(compression: Compressed) -> Judgement | None:
    """Judge: norm alone and entropy alone differ by no more than `NOTABLE`."""
    norm, entropy = (
        compression.estimate("table4", "change", arm=arm)
        for arm in ("without_entropy", "without_norm")
    )
    if norm is None or entropy is None:
        return None
    # The arms answer the same problems: taken as independent, the interval is too wide.
    apart = _difference(entropy, norm)
    why = f"norm alone minus entropy alone {_estimate_text(apart)} points; comparable: within "
    why += f"{100 * NOTABLE:g}"
    if apart[1] > -NOTABLE and apart[2] < NOTABLE:
        return Judgement.by("holds", why, apart)
    beyond = apart[1] > NOTABLE or apart[2] < -NOTABLE
    return Judgement.by("fails" if beyond else OPEN, why, apart)


def _recursion(compression: Compressed) -> Judgement | None:
    """Judge: a teacher of each round gains 0.4 points over one teacher throughout.

    The paper prints single rounds with one kind of distillation; a run has the arm with both.
    """
    single_round = ("joint_single_teacher", "response_distillation", "feature_distillation")
    gaps = [compression.estimate("table4", "gap", arm=arm) for arm in single_round]
    measured = [gap for gap in gaps if gap is not None]
    if not measured:
        return None
    value, low, high = measured[0]
    gain = -value, -high, -low
    why = f"recursive minus single-round distillation {_estimate_text(gain)} points; 0.4 is stated"
    if compression.is_main and gain[2] < 0.004 - _LAST:
        return Judgement.by("fails", why, gain)
    return Judgement.by(sign_of(gain[1], gain[2]), why, gain)


def _more_saves_more(compression: Compressed) -> Judgement | None:
    """Judge: every higher ratio saves more parameters, memory and computation."""
    rows = compression.tables["table1"].query("ratio > 0").sort_values("ratio")
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


def _alike(compression: Compressed) -> Judgement | None:
    """Judge: all pruned arms have one speed-up and one saving of memory."""
    rows = compression.tables["table4"].query("ratio > 0")
    rows = rows[rows["arm"] != "small_from_scratch"]
    rows = rows.dropna(subset=["faster_large", "weight_removed"])
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


def _condition(
    model: str,
    data: str,
    ratio: float,
    change: float | None,
    table: str = "table1",
    arm: str | None = None,
    **cuts: float,
) -> Judge:
    """Return the judge of one ratio on one of the paper's solvers and data.

    Stated are the change of accuracy and, by column, cuts, which have to come within half a point
    or above; no cut may exceed what arithmetic allows. They stand in a row of a table, of an `arm`
    where it has several.
    """
    row: dict[str, Any] = {"ratio": ratio} if arm is None else {"arm": arm, "ratio": ratio}

    def judge(compression: Compressed) -> Judgement | None:
        if compression.condition != (model, data):
            return None
        changed = compression.estimate(table, "change", **row)
        if changed is None:
            return None
        parts = []
        words = []
        if change is not None:
            parts.append(f"accuracy {_estimate_text(changed)} points")
            _, low, high = changed
            shown = low == high or low > 0 or high < 0
            words.append("fails" if not _holds(changed, change) else "holds" if shown else OPEN)
        for column, stated in cuts.items():
            cut = compression.estimate(table, column, **row)
            if cut is None:
                return None
            parts.append(f"{column.replace('_', ' ')} {percent(cut[0])}")
            words.append("fails" if cut[0] < stated - _WITHIN else "holds")
            most = compression.estimate(table, f"{column}_at_most", **row)
            if most and cut[0] > most[0] + _LAST:
                parts.append(f"removing these heads saves at most {percent(most[0])} (arithmetic)")
                words.append("fails")
            flops = compression.estimate(table, "flops_removed_at_most", **row)
            if column == "faster_large" and flops and cut[0] > 1 / (1 - flops[0]) - 1:
                parts.append(f"doubtful: these heads hold at most {percent(flops[0])} of the FLOPs")
                words.append(OPEN)
        word = next((outcome for outcome in ("fails", OPEN) if outcome in words), "holds")
        return Judgement.by(word, "; ".join(parts), None if change is None else changed)

    return judge


JUDGES: Mapping[str, Judge] = {
    "Math23k, increasing the ratio reduces parameters, memory and computation": _more_saves_more,
    "Math23k, 30% pruning: parameter reduction": _condition(
        BASE, MATH, 0.3, None, parameters_removed=0.187
    ),
    "Math23k, 30% pruning: speedup": _condition(BASE, MATH, 0.3, None, faster_large=0.275),
    "Math23k, 30% pruning: FLOPs reduction": _condition(BASE, MATH, 0.3, None, flops_removed=0.193),
    "Math23k, 30% pruning: accuracy": _condition(BASE, MATH, 0.3, -0.007),
    "ASDiv-A, 25% pruning: accuracy": _condition(BASE, ASDIV, 0.25, -0.005),
    "ASDiv-A, 25% pruning: parameter reduction / speedup": _condition(
        BASE, ASDIV, 0.25, None, parameters_removed=0.162, faster_large=0.213
    ),
    "ATHENA-large, Math23k, 25%: accuracy drop / parameters / speed": _condition(
        LARGE, MATH, 0.25, -0.005, parameters_removed=0.174, faster_large=0.238
    ),
    "ATHENA-base, Math23k, 25%: accuracy drop / parameters / speed": _condition(
        BASE, MATH, 0.25, _METHOD_CHANGE, parameters_removed=0.158, faster_large=0.227
    ),
    "ATHENA-large, ASDiv-A, 25%: accuracy / parameters / speed": _condition(
        LARGE, ASDIV, 0.25, -0.006, parameters_removed=0.181, faster_large=0.225
    ),
    "best alpha": _best_alpha,
    "alpha = 0 / alpha = 1": _changes(
        "table3a", "change", "alpha", {0.0: -0.013, 1.0: -0.132}, distilled=True
    ),
    "accuracy for alpha between 0.3 and 0.7": _between,
    "simple / complex problems: accuracy drop": _by_complexity,
    'Table 3(b) "All" row': _changes("table3b", "change", "stratum", {"all": -0.004}),
    "removing entropy": _changes("table4", "change", "arm", {"without_entropy": -0.132}),
    "weight norm and entropy contribute comparably": _comparable,
    "pruning only / without norm": _changes(
        "table4", "gap", "arm", {"pruning_only": -0.004, "without_norm": -0.009}
    ),
    "response / feature distillation": _changes(
        "table4", "gap", "arm", {"response_distillation": -0.002, "feature_distillation": -0.001}
    ),
    "random / global threshold / attention visualization pruning": _changes(
        "table4",
        "gap",
        "arm",
        {"random": -0.025, "global": -0.011, "attention_visualisation": -0.004},
    ),
    "gradual pruning against pruning at once": _changes("table4", "gap", "arm", {"global": -0.011}),
    "distillation only": _changes("table4", "change", "arm", {"distillation_only": 0.001}),
    "overall at 25%: accuracy loss / parameters / speed / memory": _condition(
        BASE,
        MATH,
        0.25,
        _METHOD_CHANGE,
        table="table4",
        arm=METHOD,
        parameters_removed=0.16,
        faster_large=0.22,
        weight_removed=0.12,
    ),
    "all pruned variants of Table 4 share speed and memory figures": _alike,
    "recursive distillation gain over single-round distillation": _recursion,
}
