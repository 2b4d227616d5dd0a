"""What a compression found: what it cost, which parts help, where it breaks, what to look at."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from headroom.analysis.compression.numbers import (
    Difference,
    accuracy,
    bootstrap,
    difference,
    paired,
    savings,
)
from headroom.analysis.compression.trial import BASELINE, METHOD, Trial, ratios_of
from headroom.analysis.text import percent, points

NOTABLE = 0.015
"""Loss of accuracy, as a part of 1, that a user should look into."""

Kind = Literal["accuracy", "speed", "training"]

_OF_DEVELOPMENT = "accuracy fell"  # start of a history's warning that the test part replaces
_FIXED = 0.5  # of a text's time alone; batches that take less of it save a fixed cost

QUESTIONS = (
    (
        "Recursion (the teacher of each round is the round before it, not the unpruned solver)",
        (METHOD, "joint_single_teacher"),
    ),
    ("Distillation (beside pruning alone)", (METHOD, "pruning_only")),
    ("Pruning alone (beside training on for as many steps)", ("pruning_only", "trained_on")),
    ("Pruning and distilling (beside training on for as many steps)", (METHOD, "trained_on")),
    ("Training on (beside the model as it was)", ("trained_on", BASELINE)),
    ("Ranking heads (beside a random draw, both in one shot)", ("global", "random")),
    ("Removing heads in rounds (beside one shot)", (METHOD, "global")),
    ("Entropy in the score (beside the norm alone)", ("pruning_only", "without_entropy")),
    ("The norm in the score (beside entropy alone)", ("pruning_only", "without_norm")),
    (
        "Pruning a larger solver (beside a small one from scratch)",
        (METHOD, "small_from_scratch"),
    ),
)
"""What two arms of the ablation differ in, and which they are."""


@dataclass(frozen=True)
class Notice:
    """What a user should look at, and the arm that it is about."""

    kind: Kind
    arm: str
    text: str


@dataclass(frozen=True)
class Knee:
    """Ratios of heads removed; 0 stands for none of those that were tried."""

    ratio: float
    """The largest whose interval still reaches a loss of `NOTABLE`: none larger is shown."""
    low: float
    high: float
    """95% range, over resamples, of the largest ratio that loses no more than `NOTABLE`."""
    safe: float
    """The largest whose whole interval is above a loss of `NOTABLE`."""


def findings(trial: Trial) -> list[str]:
    """Return what a compression found, one sentence each; intervals are 95%."""
    return [*_cost(trial), *_saved(trial), *_parts(trial), *_knee(trial), *_eight_bits(trial)]


def verdict(found: Difference) -> str:
    """Say what an interval shows: more, less, or neither; one seed shows nothing of others."""
    word = "help" if found.low > 0 else "harm" if found.high < 0 else None
    if word is None:
        return "not shown to help"
    return f"shown to {word}" + (" in this one training" if found.seeds == 1 else "")


def in_points(value: float, low: float, high: float) -> str:
    """Return a change and its interval in words: ``−1.0 points (−2.0 to +0.1)``."""
    return f"{points(value)} points ({points(low)} to {points(high)})"


def _cost(trial: Trial) -> Iterator[str]:
    if not {BASELINE, METHOD} <= set(trial.settings):
        return
    before, after = accuracy(trial, BASELINE), accuracy(trial, METHOD)
    removed, heads = trial.heads(METHOD)
    loss, low, high = (after[f"change{end}"] for end in ("", "_low", "_high"))
    shown = "a loss is shown" if high < 0 else "a gain is shown" if low > 0 else "no loss is shown"
    if high >= 0 and low < -NOTABLE:
        shown += f", but one of more than {100 * NOTABLE:g} points is not ruled out"
    yield (
        f"Removing {removed} of {heads} heads of {trial.title} changes accuracy by "
        f"{in_points(loss, low, high)}, from {percent(before['accuracy'])} to "
        f"{percent(after['accuracy'])}: {shown} ({tested(trial, METHOD)})."
    )


def tested(trial: Trial, arm: str) -> str:
    """Say on how many examples and under how many seeds an arm was tested."""
    found = accuracy(trial, arm)
    seeds = f"{found['seeds']} seeds" if found["seeds"] > 1 else "one seed"
    return f"{found['n']} examples, {seeds}"


def _saved(trial: Trial) -> Iterator[str]:
    if METHOD not in trial.settings:
        return
    found = savings(trial, METHOD)
    if pd.isna(found["faster_large"]):
        return
    yield (
        f"It saves {percent(found['parameters_removed'])} of the encoder's parameters, "
        f"{percent(found['whole_removed'])} of all, and {percent(found['flops_removed'])} of the "
        f"encoder's arithmetic; passes are {_faster(found, 'small')} and "
        f"{_faster(found, 'large')}, where arithmetic allows {percent(found['speedup_at_most'])}."
    )


def _faster(found: dict[str, Any], size: str) -> str:
    """State a speed-up, or that the timings spread too far to show one."""
    batch = f"batch {found[f'{size}_batch']}"
    if not found[f"apart_{size}"]:
        return f"neither faster nor slower beyond the spread of the timings ({batch})"
    change = found[f"faster_{size}"]
    return f"{percent(abs(change))} {'faster' if change > 0 else 'slower'} ({batch})"


def _parts(trial: Trial) -> Iterator[str]:
    for what, (arm, other) in QUESTIONS:
        if {arm, other} <= set(trial.settings):
            found = difference(trial, arm, other)
            change = in_points(found.value, found.low, found.high)
            yield f"{what}: {change}, {verdict(found)}."


def _knee(trial: Trial) -> Iterator[str]:
    found = knee(trial)
    if found is None:
        return
    tried = ", ".join(f"{100 * ratio:g}%" for ratio in ratios_of(trial))
    most, safe = (
        f"up to {100 * ratio:g}% are" if ratio else "none is" for ratio in (found.ratio, found.safe)
    )
    yield (
        f"Of the ratios {tried}, {most} not shown to lose more than {100 * NOTABLE:g} points (95% "
        f"range of the largest {100 * found.low:g} to {100 * found.high:g}%), and {safe} shown to "
        "lose less."
    )


def _eight_bits(trial: Trial) -> Iterator[str]:
    for arm in (BASELINE, METHOD):
        if trial.right(arm, quantised=True).empty:
            continue
        found, saved = (of(trial, arm, quantised=True) for of in (accuracy, savings))
        change = in_points(found["change"], found["change_low"], found["change_high"])
        what = "Eight bits alone" if arm == BASELINE else "Pruning and eight bits together"
        share = saved["weight_removed"]
        weights = "" if pd.isna(share) else f" and save {percent(share)} of the weights' bytes"
        yield f"{what} change accuracy by {change}{weights}."


def knee(trial: Trial) -> Knee | None:
    """Return where the method breaks; None without a baseline and two ratios."""
    found = ratios_of(trial)
    if len(found) < 2 or BASELINE not in trial.settings:
        return None
    base = trial.right(BASELINE)
    measured = [accuracy(trial, name) for name in found.values()]
    changes = np.stack([paired(trial.right(name), base) for name in found.values()], axis=-1)
    resampled = bootstrap(*changes.shape[:2], trial.seed).means(changes)
    ratios = list(found)
    drawn = [_largest(ratios, row >= -NOTABLE) for row in resampled]
    low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")
    return Knee(
        ratio=_largest(ratios, [own["change_high"] >= -NOTABLE for own in measured]),
        low=float(low),
        high=float(high),
        safe=_largest(ratios, [own["change_low"] >= -NOTABLE for own in measured]),
    )


def _largest(ratios: Sequence[float], kept: Sequence[bool] | np.ndarray) -> float:
    return max((ratio for ratio, keeps in zip(ratios, kept, strict=True) if keeps), default=0.0)


def notices(trial: Trial) -> list[Notice]:
    """Return what to look at, by kind, then by arm."""
    finders: dict[Kind, Callable[[Trial, str], Iterator[str]]] = {
        "accuracy": _loss,
        "speed": _no_speed_up,
        "training": _unstable,
    }
    return [
        Notice(kind, arm, text)
        for kind, find in finders.items()
        for arm in trial.settings
        for text in find(trial, arm)
    ]


def _loss(trial: Trial, arm: str) -> Iterator[str]:
    found = accuracy(trial, arm)
    if found["change"] < -NOTABLE:
        interval = f"{points(found['change_low'])} to {points(found['change_high'])}"
        yield (
            f"accuracy changed by {points(found['change'])} points (95% interval {interval}); "
            "look at alpha, or lower the ratio"
        )


def _no_speed_up(trial: Trial, arm: str) -> Iterator[str]:
    """Say where a pass is not faster though heads are gone, and what its time goes to."""
    found = savings(trial, arm)
    slow = [size for size in ("small", "large") if found[f"faster_{size}"] <= 0]
    if not slow or not found["heads_removed"]:
        return
    where = " and ".join(
        f"batch {found[f'{size}_batch']} ({points(found[f'faster_{size}'])}%)" for size in slow
    )
    yield (
        f"no speed-up is measured at {where}, though {found['heads_removed']} of {found['heads']} "
        f"heads are gone: are heads really removed? {_dominated(found)}"
    )


def _dominated(found: dict[str, Any]) -> str:
    if found["parameters_removed"] <= 0:
        return "No parameter is gone: they are zeroed, not removed"
    text = (
        f"{percent(found['parameters_removed'])} of the encoder's parameters are gone and "
        f"{percent(found['flops_removed'])} of its arithmetic, but the forward pass is dominated "
        "by "
    )
    alone, together = (
        found[f"seconds_{size}"] / found[f"{size}_batch"] for size in ("small", "large")
    )
    if together < _FIXED * alone:
        share = percent(1 - together / alone)
        return f"{text}fixed costs, at least {share} of the time of a text by itself"
    return f"{text}what is left, feed-forward layers above all"


def _unstable(trial: Trial, arm: str) -> Iterator[str]:
    seeds = defaultdict(list)
    for seed, history in trial.histories[arm].items():
        for warning in history["warnings"]:
            if not warning.startswith(_OF_DEVELOPMENT):
                seeds[warning].append(seed)
    for warning, found in seeds.items():
        yield f"seed {', '.join(map(str, found))}: {warning}"
