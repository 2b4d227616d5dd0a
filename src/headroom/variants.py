"""What is pruned: the names of model variants.

A variant is the base model or the base model less one attention head. Its name is a file name,
a column name and a wildcard: ``base``, ``L05H03``. Numbers have at least two digits and sort by
value, not by text.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import total_ordering

from headroom.errors import ConfigError

PATTERN = r"base|L\d\d+H\d\d+"
"""Regular expression of a variant's name, as a Snakemake wildcard constraint needs it."""

_HEAD = re.compile(r"L(\d{2,})H(\d{2,})")


@total_ordering
@dataclass(frozen=True)
class Variant:
    """One model variant: ``Variant()`` is the base model, ``Variant(5, 3)`` lacks a head.

    Layers and query heads count from 0, so the latter is the model without head 3 of layer 5.
    """

    layer: int | None = None
    head: int | None = None

    def __post_init__(self) -> None:
        if (self.layer is None) != (self.head is None):
            raise ValueError("a variant names both a layer and a head, or neither")

    @classmethod
    def parse(cls, name: str) -> "Variant":
        """Read a variant's name.

        Raises:
            ConfigError: the name is neither ``base`` nor of the form ``L05H03``.
        """
        match = _HEAD.fullmatch(name)
        variant = cls(int(match[1]), int(match[2])) if match else BASE
        if str(variant) != name:  # also 'L005H03', which would be a second name of 'L05H03'
            raise ConfigError(
                f"variant {name!r} is not known; write 'base' or layer and head as in 'L05H03'"
            )
        return variant

    @property
    def is_base(self) -> bool:
        """Whether nothing is pruned."""
        return self.layer is None

    def __str__(self) -> str:
        return "base" if self.layer is None else f"L{self.layer:02d}H{self.head:02d}"

    def __lt__(self, other: "Variant") -> bool:
        return self._order() < other._order()

    def _order(self) -> tuple[int, int]:
        if self.layer is None or self.head is None:
            return (-1, -1)
        return (self.layer, self.head)


BASE = Variant()
"""The unpruned model."""


def heads(layers: Iterable[int], query_heads: Iterable[int]) -> list[Variant]:
    """Return one variant for each distinct (layer, query head), sorted."""
    query_heads = set(query_heads)
    return sorted(Variant(layer, head) for layer in set(layers) for head in query_heads)
