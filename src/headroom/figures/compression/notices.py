"""What the tool warns of: accuracy that fell, heads whose loss saves no time, unstable training."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from headroom.figures.compression.evidence import Trial
from headroom.figures.compression.numbers import accuracy, savings
from headroom.figures.text import percent, points

NOTABLE = 0.015
"""Loss of accuracy, as a part of 1, that a user should look into."""

Kind = Literal["accuracy", "speed", "training"]

_OF_DEVELOPMENT = "accuracy fell"  # start of a history's warning that the test part replaces
_FIXED = 0.5  # of a text's time alone; batches that take less of it save a fixed cost


@dataclass(frozen=True)
class Notice:
    """What a user should look at, and the arm that it is about."""

    kind: Kind
    arm: str
    text: str


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
