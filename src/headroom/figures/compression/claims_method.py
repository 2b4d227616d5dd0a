"""Claims about the method as such, judged on whatever solvers a run has, by intervals."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

import pandas as pd

from headroom.figures.claims_compression import COMPARABLE
from headroom.figures.compression.evidence import BASELINE, METHOD, Trial
from headroom.figures.compression.families import mixtures_of, ratios_of
from headroom.figures.compression.notices import NOTABLE
from headroom.figures.compression.numbers import (
    Difference,
    accuracy,
    difference,
    difference_of_changes,
    savings,
)
from headroom.figures.judgement import Judgement, holds_if, unjudged
from headroom.figures.text import percent, points

_SAME = 0.0005  # half of the last digit that the paper prints, as a part of 1


def each(
    judge: Callable[[Trial, str], Judgement | None], lacking: str, *, trained: bool = True
) -> Callable[[Sequence[Trial], str], Judgement]:
    """Return the judge of all trials: one word where those that can be judged agree.

    Args:
        judge: judges one trial; None where it lacks what is asked for.
        lacking: what a run lacks where no trial has it.
        trained: whether accuracies decide, of which one seed says nothing about others.
    """

    def judged(trials: Sequence[Trial], value: str) -> Judgement:
        found = [own for trial in trials if (own := judge(trial, value)) is not None]
        if not found:
            return unjudged(f"the run has no {lacking}")
        why = "; ".join(own.why for own in found)
        if trained and all(len(trial.study.seeds) == 1 for trial in trials):
            return unjudged(f"{why}; of one seed")
        words = {own.word for own in found} - {"cannot be judged"}
        if len(words) != 1:
            return unjudged(why)
        return holds_if(words == {"holds"}, why)

    return judged


def more_saves_more(trial: Trial, value: str) -> Judgement | None:
    """Judge: every higher ratio leaves fewer parameters, bytes and operations."""
    found = [savings(trial, arm) for arm in ratios_of(trial).values()]
    columns = ("whole_removed", "weight_removed", "flops_removed")
    if len(found) < 2 or any(pd.isna(own[name]) for own in found for name in columns):
        return None
    rising = all(low[name] < high[name] for low, high in pairwise(found) for name in columns)
    first, last = found[0], found[-1]
    kinds = ("of all parameters", "of the weights' bytes", "of the encoder's FLOPs")
    why = ", ".join(
        f"{percent(first[name])} to {percent(last[name])} {kind}"
        for name, kind in zip(columns, kinds, strict=True)
    )
    ratios = list(ratios_of(trial))
    return holds_if(
        rising, f"{trial.title}: from {100 * ratios[0]:g}% to {100 * ratios[-1]:g}% it saves {why}"
    )


def larger_loses_less(trials: Sequence[Trial], value: str) -> Judgement:
    """Judge: of two solvers on the same data, the larger loses less accuracy to the method."""
    able = [trial for trial in trials if {BASELINE, METHOD} <= set(trial.settings)]
    by_size = sorted(able, key=lambda trial: trial.size)
    pairs = [
        (small, large)
        for place, small in enumerate(by_size)
        for large in by_size[place + 1 :]
        if (small.data, small.study.method.ratio) == (large.data, large.study.method.ratio)
        and small.subject != large.subject
    ]
    if not pairs:
        return unjudged("the run has no two solvers on the same data, compressed alike")
    found = [difference_of_changes(small, large, METHOD) for small, large in pairs]
    why = "; ".join(
        f"{large.title} against {small.subject}: {_shown(own)} of change"
        for (small, large), own in zip(pairs, found, strict=True)
    )
    if all(own.seeds == 1 for own in found):
        return unjudged(f"{why}; of one seed")
    if all(own.low > 0 for own in found):
        return holds_if(True, why)
    return holds_if(False, why) if any(own.high < 0 for own in found) else unjudged(why)


def best_alpha(trial: Trial, value: str) -> Judgement | None:
    """Judge: no other mixture does as well as the stated alpha."""
    stated = float(re.findall(r"\d+(?:\.\d+)?", value)[0])
    found = mixtures_of(trial, distilled=True)
    if stated not in found or len(found) < 2:
        return None
    gaps = {a: difference(trial, arm, found[stated]) for a, arm in found.items() if a != stated}
    best, gap = max(gaps.items(), key=lambda item: item[1].value)
    why = f"{trial.title}: the best other alpha, {best:g}, against {stated:g}: {_shown(gap)}"
    if gap.low > 0:
        return holds_if(False, why)
    worse = all(other.high < 0 for other in gaps.values())
    return holds_if(True, why) if worse else unjudged(why)


def comparable(trial: Trial, value: str) -> Judgement | None:
    """Judge: norm alone and entropy alone lose comparably much against the best mixture."""
    for distilled in (True, False):
        found = mixtures_of(trial, distilled=distilled)
        if {0.0, 1.0} < set(found):
            break
    else:
        return None
    apart = difference(trial, found[1.0], found[0.0])
    kept = {alpha: accuracy(trial, arm)["accuracy"] for alpha, arm in found.items()}
    losses = sorted(max(kept.values()) - kept[alpha] for alpha in (0.0, 1.0))
    why = (
        f"{trial.title}: norm alone against entropy alone {_shown(apart)}; comparable is taken as "
        f"within {100 * NOTABLE:g} points, or a factor of {COMPARABLE:g} of what they lose"
    )
    if apart.low > -NOTABLE and apart.high < NOTABLE:
        return holds_if(True, why)
    shown = apart.low > 0 or apart.high < 0
    return holds_if(losses[1] <= COMPARABLE * losses[0], why) if shown else unjudged(why)


def recursion_gains(trial: Trial, value: str) -> Judgement | None:
    """Judge: a teacher of each round does better than one teacher throughout, by so much."""
    if not {METHOD, "joint_single_teacher"} <= set(trial.settings):
        return None
    stated = float(re.findall(r"\d+(?:\.\d+)?", value)[0]) / 100
    found = difference(trial, METHOD, "joint_single_teacher")
    why = f"{trial.title}: recursive against the first teacher throughout {_shown(found)}"
    if found.high < stated:
        return holds_if(False, why)
    return holds_if(True, why) if found.low > 0 else unjudged(why)


def alike_in_speed(trial: Trial, value: str) -> Judgement | None:
    """Judge: all pruned arms of the ablation have one speed-up and one saving of memory."""
    arms = [
        arm
        for arm in trial.study.arms
        if arm in trial.settings and trial.settings[arm].ratio and not trial.settings[arm].scratch
    ]
    measured = (savings(trial, arm) for arm in arms)
    found = [own for own in measured if not pd.isna(own["faster_large"])]
    if len(found) < 2:
        return None
    ranges = {
        what: (min(own[name] for own in found), max(own[name] for own in found))
        for what, name in (("faster", "faster_large"), ("fewer bytes", "weight_removed"))
    }
    why = ", ".join(
        f"{percent(low)} to {percent(high)} {what}" for what, (low, high) in ranges.items()
    )
    return holds_if(
        all(high - low < 2 * _SAME for low, high in ranges.values()),
        f"{trial.title}: {len(found)} pruned arms, {why}",
    )


def _shown(found: Difference) -> str:
    return f"{points(found.value)} points ({points(found.low)} to {points(found.high)})"
