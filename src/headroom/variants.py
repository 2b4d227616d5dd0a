"""Model variants and their names.

A variant is the base model, the base model with one change, or a placebo: a control that prunes
nothing. Its name is used in file names, columns and wildcards:

| name | what |
|---|---|
| ``base`` | the model as it is |
| ``L05H03`` | layer 5 without its query head 3 |
| ``L05N03`` | layer 5 with noise as strong as head 3: the matched placebo of ``L05H03`` |
| ``L05R00`` | the model as it is, verified as a pruned head of layer 5 is |
| ``placebo02`` | the model as it is, decoded with other numerics: other batches, no verification |
| ``L05X03P150`` | layer 5 with the output of its query head 3 scaled to 150% |
| ``L05K02`` | the model without 2 layers from layer 5 on: their outputs are their inputs |
| ``W17S20`` | all weights with Gaussian noise of seed 17, standard deviation 20e-4 |

Numbers have at least two digits; variants sort by value, not by text.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from string import Formatter
from typing import Literal

from headroom.errors import ConfigError

Kind = Literal["base", "head", "noise", "replay", "numeric", "scaled", "skip", "weights"]
"""Kinds of variant, in their order; noise, replay and numeric are placebos."""

_NAMES: dict[Kind, str] = {
    "base": "base",
    "head": "L{layer:02d}H{head:02d}",
    "noise": "L{layer:02d}N{head:02d}",
    "replay": "L{layer:02d}R{head:02d}",
    "numeric": "placebo{placebo:02d}",
    "scaled": "L{layer:02d}X{head:02d}P{percent:02d}",
    "skip": "L{layer:02d}K{skipped:02d}",
    "weights": "W{seed:02d}S{sigma:02d}",
}
_ORDER = {kind: place for place, kind in enumerate(_NAMES)}
_NUMBERS = {
    kind: tuple(field for _, field, _, _ in Formatter().parse(name) if field)
    for kind, name in _NAMES.items()
}

PATTERN = "|".join(re.sub(r"\{.*?\}", r"\\d\\d+", name) for name in _NAMES.values())
"""Regular expression of a variant's name, as a Snakemake wildcard constraint needs it."""

_READING = {
    kind: re.compile(re.sub(r"\{(\w+):02d\}", r"(?P<\1>[0-9]{2,})", name))
    for kind, name in _NAMES.items()
}


@dataclass(frozen=True)
class Variant:
    """One model variant: ``Variant()`` is the base model, ``Variant(5, 3)`` lacks a head.

    Layers and query heads count from 0: the latter is the model without head 3 of layer 5.
    ``Variant(5, 3, noise=True)`` has all heads, and noise of that head's norm in its layer.
    ``Variant(5, 0, replay=True)`` changes nothing; its answers are verified as those of layer 5's
    heads are. Numeric placebos count from 1: ``Variant(placebo=1)``.
    """

    layer: int | None = None
    """The first layer that differs; None: all do, or none."""
    head: int | None = None
    noise: bool = False
    replay: bool = False
    placebo: int = 0
    percent: int = 100
    """What the head's output is scaled to."""
    skipped: int = 0
    """How many layers are left out, from `layer` on."""
    seed: int = 0
    """Of the noise on the weights."""
    sigma: int = 0
    """Standard deviation of that noise, in 1e-4."""

    @classmethod
    def parse(cls, name: str) -> "Variant":
        """Read a variant's name.

        Raises:
            ConfigError: no variant has this name.
        """
        for kind, pattern in _READING.items():
            if match := pattern.fullmatch(name):
                flags = {kind: True} if kind in ("noise", "replay") else {}
                numbers = {field: int(number) for field, number in match.groupdict().items()}
                variant = cls(**numbers, **flags)
                changes = variant.percent and (variant.kind != "skip" or variant.skipped)
                # 'L005H03' would be a second name of 'L05H03', 'L05X03P00' one, too.
                if str(variant) == name and changes:
                    return BASE if variant == BASE else variant
        raise ConfigError(
            f"variant {name!r} is not known; write 'base' or layer and head as in 'L05H03', "
            f"or a placebo as in 'L05N03' or 'placebo01', or another of 'L05X03P150' (a head "
            f"scaled to 150%), 'L05K02' (2 layers left out), 'W17S20' (noise on the weights)"
        )

    @property
    def kind(self) -> Kind:
        """How the variant differs from the base model."""
        if self.layer is None:
            return "weights" if self.sigma else "numeric" if self.placebo else "base"
        if self.head is None:
            return "skip"
        if self.percent != 100:
            return "scaled"
        return "noise" if self.noise else "replay" if self.replay else "head"

    @property
    def is_base(self) -> bool:
        """Whether this is the base model itself; a placebo is not."""
        return self == BASE

    @property
    def layers(self) -> range:
        """The layers that this variant changes, one by one."""
        if self.layer is None:
            return range(0)
        return range(self.layer, self.layer + (self.skipped or 1))

    @property
    def skips(self) -> range:
        """The layers that this variant leaves out."""
        return self.layers if self.skipped else range(0)

    def __str__(self) -> str:
        return _NAMES[self.kind].format_map(vars(self))

    def __lt__(self, other: "Variant") -> bool:
        return self.order() < other.order()

    def order(self) -> tuple[int, ...]:
        """Return the sort key; `key=Variant.order` is faster than comparing variants."""
        kind = self.kind
        return (_ORDER[kind], *(getattr(self, field) for field in _NUMBERS[kind]))


BASE = Variant()
"""The unpruned model."""


def heads(layers: Iterable[int], query_heads: Iterable[int]) -> list[Variant]:
    """Return one variant for each distinct (layer, query head), sorted."""
    query_heads = sorted(set(query_heads))
    return [Variant(layer, head) for layer in sorted(set(layers)) for head in query_heads]


def matched_noise(pruned: Iterable[Variant]) -> list[Variant]:
    """Return the noise placebo of each pruned head, sorted."""
    return sorted(Variant(each.layer, each.head, noise=True) for each in set(pruned))


def replays(layers: Iterable[int]) -> list[Variant]:
    """Return the replay of each layer, sorted."""
    return [Variant(layer, 0, replay=True) for layer in sorted(set(layers))]


def numeric(count: int) -> list[Variant]:
    """Return numeric placebos, numbered from 1."""
    return [Variant(placebo=number) for number in range(1, count + 1)]
