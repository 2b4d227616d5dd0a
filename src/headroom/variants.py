"""Model variants and their names.

A variant is the base model, the base model without one attention head, or a placebo: a control that
prunes nothing. Its name is used in file names, columns and wildcards:

| name | what |
|---|---|
| ``base`` | the model as it is |
| ``L05H03`` | layer 5 without its query head 3 |
| ``L05N03`` | layer 5 with noise as strong as head 3: the matched placebo of ``L05H03`` |
| ``L05R00`` | the model as it is, verified as a pruned head of layer 5 is |
| ``placebo02`` | the model as it is, decoded with other numerics: other batches, no verification |

Numbers have at least two digits; variants sort by value, not by text.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from headroom.errors import ConfigError

PATTERN = r"base|L\d\d+[HNR]\d\d+|placebo\d\d+"
"""Regular expression of a variant's name, as a Snakemake wildcard constraint needs it."""

Kind = Literal["base", "head", "noise", "replay", "numeric"]
"""Kinds of variant, in their order; the last three are placebos."""

_ORDER: dict[Kind, int] = {"base": 0, "head": 1, "noise": 2, "replay": 3, "numeric": 4}
_NAME = re.compile(r"L(\d{2,})([HNR])(\d{2,})|placebo(\d{2,})")


@dataclass(frozen=True)
class Variant:
    """One model variant: ``Variant()`` is the base model, ``Variant(5, 3)`` lacks a head.

    Layers and query heads count from 0: the latter is the model without head 3 of layer 5.
    ``Variant(5, 3, noise=True)`` has all heads, and noise of that head's norm in its layer.
    ``Variant(5, 0, replay=True)`` changes nothing; its answers are verified as those of layer 5's
    heads are. Numeric placebos count from 1: ``Variant(placebo=1)``.
    """

    layer: int | None = None
    head: int | None = None
    noise: bool = False
    replay: bool = False
    placebo: int = 0

    @classmethod
    def parse(cls, name: str) -> "Variant":
        """Read a variant's name.

        Raises:
            ConfigError: no variant has this name.
        """
        variant = BASE
        if match := _NAME.fullmatch(name):
            layer, letter, head, placebo = match.groups()
            own = {"noise": letter == "N", "replay": letter == "R"}
            variant = cls(placebo=int(placebo)) if placebo else cls(int(layer), int(head), **own)
        if str(variant) != name:  # 'L005H03' would be a second name of 'L05H03'
            raise ConfigError(
                f"variant {name!r} is not known; write 'base' or layer and head as in 'L05H03', "
                f"or a placebo as in 'L05N03' or 'placebo01'"
            )
        return variant

    @property
    def kind(self) -> Kind:
        """How the variant differs from the base model."""
        if self.layer is not None:
            return "noise" if self.noise else "replay" if self.replay else "head"
        return "numeric" if self.placebo else "base"

    @property
    def is_base(self) -> bool:
        """Whether this is the base model itself; a placebo is not."""
        return self == BASE

    def __str__(self) -> str:
        if self.layer is not None:
            letter = {"head": "H", "noise": "N", "replay": "R"}[self.kind]
            return f"L{self.layer:02d}{letter}{self.head:02d}"
        return f"placebo{self.placebo:02d}" if self.placebo else "base"

    def __lt__(self, other: "Variant") -> bool:
        return self.order() < other.order()

    def order(self) -> tuple[int, int, int]:
        """Return the sort key; `key=Variant.order` is faster than comparing variants."""
        return (_ORDER[self.kind], self.layer or 0, self.head or self.placebo)


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
