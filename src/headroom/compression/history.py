"""What is noted of a compression: which heads went when and why, and how the rest was trained."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headroom.compression.training import Fit, fit_of
from headroom.variants import Variant

_NOTABLE_DROP = 0.015
"""Loss of accuracy, as a part of 1, that a user should look into."""


@dataclass(frozen=True)
class Removal:
    """Heads that went together, by their numbers in the solver that was given."""

    step: int
    """Optimiser steps that were done before."""
    heads: tuple[Variant, ...]
    scores: Mapping[Variant, float]
    """Of all heads that were there: what is low went."""

    def as_json(self) -> dict[str, Any]:
        """Return JSON values; heads by their names."""
        return {
            "step": self.step,
            "heads": [str(head) for head in self.heads],
            "scores": {str(head): score for head, score in self.scores.items()},
        }

    @classmethod
    def of_json(cls, noted: Mapping[str, Any]) -> "Removal":
        """Return what `as_json` noted."""
        scores = {Variant.parse(head): score for head, score in noted["scores"].items()}
        return cls(noted["step"], tuple(map(Variant.parse, noted["heads"])), scores)


@dataclass(frozen=True)
class Round:
    """A training, and the removals before it or during it."""

    removals: tuple[Removal, ...]
    heads: int
    """Heads that are left."""
    parameters: int
    """Parameters that are left, of the whole network."""
    fit: Fit

    @property
    def dev_strict(self) -> float | None:
        """Share of the development part that is solved after the round; None without one."""
        return self.fit.epochs[(self.fit.best or 0) - 1].dev_strict

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "removals": [removal.as_json() for removal in self.removals],
            "heads": self.heads,
            "parameters": self.parameters,
            **asdict(self.fit),
        }

    @classmethod
    def of_json(cls, noted: Mapping[str, Any]) -> "Round":
        """Return what `as_json` noted."""
        removals = tuple(map(Removal.of_json, noted["removals"]))
        return cls(removals, noted["heads"], noted["parameters"], fit_of(noted))


@dataclass(frozen=True)
class History:
    """How a compression went."""

    dev_strict: float | None
    """Share of the development part that was solved before; None without one."""
    heads: int
    parameters: int
    rounds: tuple[Round, ...]

    @property
    def removed(self) -> list[Variant]:
        """All heads that went, sorted."""
        removals = (removal for each in self.rounds for removal in each.removals)
        return sorted(head for removal in removals for head in removal.heads)

    @property
    def epochs(self) -> int:
        """How often the training part was passed over, in all rounds."""
        return sum(len(each.fit.epochs) for each in self.rounds)

    def as_json(self) -> dict[str, Any]:
        """Return what is noted as JSON values; heads by their names."""
        return {
            "dev_strict": self.dev_strict,
            "heads": self.heads,
            "parameters": self.parameters,
            "rounds": [each.as_json() for each in self.rounds],
            "warnings": self.warnings(),
        }

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
            first, last = (sum(each.fit.epochs[place].losses.values()) for place in (0, -1))
            if last > first:
                found.append(
                    f"the loss rose in round {number}, from {first:.3g} to {last:.3g}; lower "
                    f"exponent, or learning_rate"
                )
        return found
