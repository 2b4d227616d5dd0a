"""The ratio at which a compression breaks down, and notices for the user."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headroom.analysis.compression.trial import (
    BASELINE,
    Trial,
    accuracy,
    bootstrap,
    paired,
    ratios_of,
    savings,
)
from headroom.analysis.text import percent, points

NOTABLE = 0.015
"""Loss of accuracy (0 to 1) above which a user is warned."""

Kind = Literal["accuracy", "speed", "training"]

_OF_DEVELOPMENT = "accuracy fell"  # start of the warning that the test part's result replaces
_FIXED = 0.5  # if a text takes less than this share of its time alone in a batch, costs are fixed


@dataclass(frozen=True)
class Notice:
    """A notice for the user about an arm."""

    kind: Kind
    arm: str
    text: str


@dataclass(frozen=True)
class Knee:
    """Ratios of removed heads; 0 if none of those tried qualifies."""

    ratio: float
    """The largest ratio not shown to lose more than `NOTABLE` (upper end of its interval)."""
    low: float
    high: float
    """95% range, over resamples, of the largest ratio that loses no more than `NOTABLE`."""
    safe: float
    """The largest ratio shown to lose no more than `NOTABLE` (lower end of its interval)."""


def knee(trial: Trial) -> Knee | None:
    """Return where the method breaks down; None without a baseline and two ratios."""
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
    """Return the notices, by kind, then by arm."""
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
    """Yield a notice if a pass is not faster though heads are gone, and what dominates its time."""
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
