"""Which heads go: how many are due, and those of lowest score, in units that can be cut.

Heads are removed in units, so that the remaining ones can still be cut from the weights.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from transformers import PretrainedConfig

from headsweep.config.compression import heads_at, unit_size
from headsweep.errors import ModelError
from headsweep.experiments.compression.calibration import Scores
from headsweep.models.checkpoints import can_state
from headsweep.models.geometry import AttentionLayer, HeadGeometry
from headsweep.models.removal import without
from headsweep.variants import Variant

Scope = Literal["all", "layer"]
"""Whether all heads are ranked together, or those of each layer, which then lose equal numbers."""
Unit = Literal["group", "query", "head"]
"""Heads removed together where query heads share key/value heads. group: a key/value head with all
its query heads; query: one query head of every group of a layer; head: single heads, which can be
zeroed but not cut."""


def check_finite(scores: Scores) -> None:
    """Raise a ModelError if a score is nan or infinite: no order of heads follows from it."""
    for layer, values in scores.items():
        spoiled = values[~values.isfinite()]
        if len(spoiled):
            raise ModelError(
                f"layer {layer}: a head's score is {float(spoiled[0])}, so heads cannot be ranked; "
                f"look for such numbers in the model's weights, or use the criterion random"
            )


def heads_due(heads: int, done: float, ratio: float, exponent: float, start: float = 0.0) -> int:
    """Return how many of `heads` original heads should be gone when a share of the steps or rounds
    is `done`: floor(p H0), where p = p_min + (p_max - p_min) done^n (arXiv 2511.17577, eq. 5).

    p_min is `start`, p_max `ratio` and n `exponent` (above 1 removes late). It never falls over
    time and ends at floor(p_max H0).
    """
    return heads_at(start + (ratio - start) * done**exponent, heads)


class _Unit(NamedTuple):
    """Heads of one layer that are removed together."""

    heads: list[Variant]
    score: float  # the mean of its heads' scores
    lost: int = 0
    """How many heads its layer loses before it, where layers lose equal numbers."""

    @property
    def layer(self) -> int | None:
        """The layer of its heads."""
        return self.heads[0].layer

    def order(self) -> tuple[int, float, list[Variant]]:
        """Return the sort key: the unit that sorts first is removed first."""
        return self.lost, self.score, self.heads


def lowest_heads(
    scores: Scores,
    geometry: HeadGeometry,
    count: int,
    *,
    scope: Scope = "all",
    unit: Unit = "group",
    gone: Mapping[int, int] | None = None,
) -> list[Variant]:
    """Return the heads of lowest score among the remaining ones, sorted.

    A unit of several heads is scored by their mean; as many units go as fit into the count. Layers
    without scores lose nothing, and every layer keeps at least one unit. With the scope `layer`,
    `gone` says how many heads each layer has lost before, so that losses end equal.

    Raises:
        ModelError: the layers do not have that many heads to spare, or a score is not finite.
    """
    check_finite(scores)
    units: list[_Unit] = []
    for layer in geometry.layers:
        if layer.index in scores:
            of_layer = _units(layer, scores[layer.index].tolist(), unit)
            if scope == "layer":
                of_layer = _one_after_another(of_layer, (gone or {}).get(layer.index, 0))
            units += of_layer
    left = Counter(candidate.layer for candidate in units)  # units, by layer
    sizes = {candidate.layer: len(candidate.heads) for candidate in units}
    removable = sum((left[index] - 1) * size for index, size in sizes.items())
    if count > removable:
        raise ModelError(
            f"{count} heads cannot go: {removable} can, as each of {len(left)} layers keeps "
            f"{max(sizes.values(), default=1)} of its own; lower the ratio"
        )
    chosen: list[Variant] = []
    for candidate in sorted(units, key=_Unit.order):
        if left[candidate.layer] > 1 and len(chosen) + len(candidate.heads) <= count:
            left[candidate.layer] -= 1
            chosen += candidate.heads
    return sorted(chosen)


def check_ratio(geometry: HeadGeometry, ratio: float, unit: Unit, scope: Scope) -> list[Variant]:
    """Refuse a ratio that removes nothing, or more than the layers can lose.

    Returned are heads that it could remove, if all had equal scores.

    Raises:
        ModelError: one line.
    """
    equal = {layer.index: torch.zeros(layer.query_heads) for layer in geometry.layers}
    gone = lowest_heads(equal, geometry, heads_at(ratio, geometry.heads), scope=scope, unit=unit)
    if ratio and not gone:
        raise ModelError(
            f"ratio {ratio} removes nothing of {geometry.heads} heads, of which "
            f"{smallest_unit(geometry, unit)} go at once; raise it"
        )
    return gone


def even_count(ratio: float, geometry: HeadGeometry, unit: Unit, config: PretrainedConfig) -> int:
    """Return how many heads go if a ratio takes equally many of every layer, rounded down.

    The `config` is the model's: not every number of heads fits it.

    Raises:
        ModelError: layers differ, or none can go; the message names the ratios that remove some.
    """
    shapes = {(layer.query_heads, layer.kv_heads) for layer in geometry.layers}
    if len(shapes) > 1:
        numbers = ", ".join(str(heads) for heads, _ in sorted(shapes))
        raise ModelError(
            f"layers have {numbers} heads; a uniform model is made of one whose layers have "
            f"equally many: prune the model from which this one was made"
        )
    ((heads, kv_heads),) = shapes
    layers = len(geometry.layers)
    size = unit_size(heads, kv_heads, unit)
    equal = {layer.index: torch.zeros(heads) for layer in geometry.layers}

    def left(count: int) -> HeadGeometry:
        gone = lowest_heads(equal, geometry, count * layers, scope="layer", unit=unit)
        return without(geometry, gone)

    counts = [count for count in range(size, heads, size) if can_state(config, left(count))]
    if fitting := [count for count in counts if count <= heads_at(ratio, heads)]:
        return fitting[-1] * layers
    ratios = ", ".join(f"{math.ceil(1000 * count / heads) / 1000:g}" for count in counts)
    raise ModelError(
        f"ratio {ratio} leaves no uniform model: of a layer's {heads} heads {size} go at once, and "
        f"transformers takes not every rest; use {ratios or 'another unit, or the form free'}"
    )


def smallest_unit(geometry: HeadGeometry, unit: Unit) -> int:
    """Return the smallest number of heads that are removed together."""
    return min(unit_size(layer.query_heads, layer.kv_heads, unit) for layer in geometry.layers)


def _units(layer: AttentionLayer, scores: Sequence[float], unit: Unit) -> list[_Unit]:
    """Return the units of a layer, the lowest mean score first."""
    size = 1 if unit == "head" else layer.query_heads // layer.kv_heads
    together = [list(range(start, start + size)) for start in range(0, layer.query_heads, size)]
    if unit == "query" and size > 1:  # the lowest of each group, the second lowest of each, ...
        ranked = [sorted(group, key=lambda head: (scores[head], head)) for group in together]
        together = [[group[place] for group in ranked] for place in range(size)]
    units = []
    for heads in together:
        mean = sum(scores[head] for head in heads) / len(heads)
        units.append(_Unit([Variant(layer.index, head) for head in heads], mean))
    return sorted(units, key=_Unit.order)


def _one_after_another(units: Sequence[_Unit], lost: int) -> list[_Unit]:
    """Return a layer's units with what the layer loses before each; it has `lost` heads already."""
    placed = []
    for unit in units:
        placed.append(unit._replace(lost=lost))
        lost += len(unit.heads)
    return placed
