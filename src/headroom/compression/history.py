"""What is noted of a compression: which heads went when and why, and how the rest was trained."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

_NOTABLE_DROP = 0.015
"""Loss of accuracy, as a part of 1, that a user should look into."""


@dataclass
class Epoch:
    """What an epoch brought."""

    epoch: int
    """From 1."""
    steps: int
    """Optimiser steps since the start of the training."""
    losses: dict[str, float]
    """Means over the epoch's steps, by part of the objective."""
    dev_strict: float | None
    """Share of the development part that is solved. Without `patience` it is found after the last
    epoch only; None without a development part."""


@dataclass
class Fit:
    """How a training went."""

    epochs: list[Epoch] = field(default_factory=list)
    best: int | None = None
    """The epoch whose weights were taken; None: the last one's, whatever it was worth."""

    @property
    def taken(self) -> Epoch:
        """The epoch whose weights were taken."""
        return self.epochs[(self.best or 0) - 1]


@dataclass
class Removal:
    """Heads that went together, by their names in the solver that was given."""

    step: int
    """Optimiser steps that were done before."""
    heads: list[str]
    scores: Mapping[str, float]
    """Of all heads that were there: what is low went."""


@dataclass
class Round:
    """A training, and the removals before it or during it."""

    removals: list[Removal]
    heads: int
    """Heads that are left."""
    parameters: int
    """Parameters that are left, of the whole network."""
    epochs: list[Epoch]
    best: int | None
    """As in `Fit`."""

    @property
    def dev_strict(self) -> float | None:
        """Share of the development part that is solved after the round; None without one."""
        return Fit(self.epochs, self.best).taken.dev_strict


@dataclass
class History:
    """How a compression went."""

    dev_strict: float | None
    """Share of the development part that was solved before; None without one."""
    heads: int
    parameters: int
    rounds: list[Round]

    def as_json(self) -> dict[str, Any]:
        """Return what is noted as JSON values."""
        return {**asdict(self), "warnings": self.warnings()}

    def warnings(self) -> list[str]:
        """Return what a user should look at, one line each."""
        found = []
        if self.rounds and self.dev_strict is not None:
            drop = self.dev_strict - (self.rounds[-1].dev_strict or 0.0)
            if drop > _NOTABLE_DROP:
                found.append(
                    f"accuracy fell by {100 * drop:.1f} points; look at alpha, or lower the ratio"
                )
        for number, each in enumerate(self.rounds, start=1):
            first, last = (sum(each.epochs[place].losses.values()) for place in (0, -1))
            if last > first:
                found.append(
                    f"the loss rose in round {number}, from {first:.3g} to {last:.3g}; lower "
                    f"exponent, or learning_rate"
                )
        return found
