"""What the figures for print and those of the page have in common. It imports little."""

from collections.abc import Iterable
from itertools import cycle
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

_STRONGEST = 0.9
"""The share of a map's heads within its colours: a few change nearly all."""


def strongest(changes: ArrayLike) -> float:
    """Return the change that has a map's strongest colour; NaN is left out."""
    return float(np.nanquantile(np.abs(changes), _STRONGEST)) or 1.0


Hue = Literal["blue", "orange", "grey", "vermillion", "green", "purple", "ink"]


class FamilyLook(NamedTuple):
    """How a family of variants is drawn: its hue, and its mark in print, also for readers in grey.

    Print has other marks, circles and squares, for outcomes.
    """

    hue: Hue
    mark: str


_FAMILIES = {
    "head": FamilyLook("blue", "D"),
    "sampling": FamilyLook("orange", "v"),
    "noise": FamilyLook("grey", "x"),
    "scaled": FamilyLook("vermillion", "^"),
    "skip": FamilyLook("green", "P"),
    "weights": FamilyLook("purple", "*"),
}
"""Heads and sampling have the hues of Pass@N; matched noise is grey: it changes as much as a head
does, at random."""
_OWN_MARKS = ("<", ">", "d")
"""Marks of a user's own families."""


def family_looks(families: Iterable[str]) -> dict[str, FamilyLook]:
    """Return how each family is drawn."""
    marks = cycle(_OWN_MARKS)
    return {
        family: _FAMILIES[family] if family in _FAMILIES else FamilyLook("ink", next(marks))
        for family in families
    }
