"""The ratio at which accuracy breaks: how many heads can go before the loss is shown."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headroom.figures.compression.evidence import BASELINE, Trial
from headroom.figures.compression.families import ratios_of
from headroom.figures.compression.notices import NOTABLE
from headroom.figures.compression.numbers import accuracy, bootstrap, paired


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
