"""Which heads to remove and when: the schedule of arXiv 2511.17577 (eq. 5, Alg. 2), lowest scores.

Heads are removed in units, so that the remaining ones can still be cut from the weights.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from torch import Tensor

from headroom.config.compression import Compression
from headroom.errors import ModelError
from headroom.models.geometry import AttentionLayer, HeadGeometry
from headroom.variants import Variant

Scores = Mapping[int, Tensor]
"""A score for each head, [query_heads] by layer; the lowest are removed first."""
Scope = Literal["all", "layer"]
"""Whether all heads are ranked together, or those of each layer, which then lose equal numbers."""
Unit = Literal["group", "query", "head"]
"""Heads removed together where query heads share key/value heads. group: a key/value head with all
its query heads; query: one query head of every group of a layer; head: single heads, which can be
zeroed but not cut."""


def heads_at(ratio: float, heads: int) -> int:
    """Return the number of heads that a ratio of the original heads means, rounded down."""
    return math.floor(ratio * heads + 1e-9)  # 0.29 * 100 is 28.999999999999996


def heads_due(settings: Compression, heads: int, time: int, end: int) -> int:
    """Return how many heads should have been removed by time t: floor(p(t) H0), where
    p(t) = p_min + (p_max - p_min) (t / T)^n (eq. 5).

    It never falls over time and ends at floor(p_max H0).

    Args:
        settings: p_min (`start`), p_max (`ratio`) and n (`exponent`; above 1 removes late).
        heads: H0, the heads of the model before anything was pruned.
        time: t, an optimizer step or a round, at most `end`.
        end: T, its last value.
    """
    rise = (settings.ratio - settings.start) * (time / end) ** settings.exponent
    return heads_at(settings.start + rise, heads)


def lowest_heads(
    scores: Scores,
    geometry: HeadGeometry,
    count: int,
    *,
    scope: Scope = "all",
    unit: Unit = "group",
    whole: HeadGeometry | None = None,
) -> list[Variant]:
    """Return the heads of lowest score, sorted.

    Every layer keeps at least one unit. Where a unit is several heads, as many units are returned
    as fit into the count.

    Args:
        scores: of the remaining heads; layers without scores lose nothing.
        geometry: the remaining heads.
        count: how many heads to return at most.
        scope: what is ranked together.
        unit: heads removed together in grouped-query attention, scored by their mean.
        whole: the heads before any were removed, so that with the scope `layer` the layers end
            with equal losses over all removals; None: these are all.

    Raises:
        ModelError: the layers do not have that many heads to spare.
    """

    def gone(layer: AttentionLayer) -> int:
        return whole.layer(layer.index).query_heads - layer.query_heads if whole else 0

    # With the scope `layer`, first what the layer loses before a unit goes, then the unit's score.
    units = [
        (gone(layer) + rank * len(heads) if scope == "layer" else 0, score, heads)
        for layer in geometry.layers
        if layer.index in scores
        for rank, (score, heads) in enumerate(_units(layer, scores[layer.index].tolist(), unit))
    ]
    left = Counter(heads[0].layer for *_, heads in units)
    sizes = {heads[0].layer: len(heads) for *_, heads in units}
    removable = sum((left[layer] - 1) * size for layer, size in sizes.items())
    if count > removable:
        raise ModelError(
            f"{count} heads cannot go: {removable} can, as each of {len(left)} layers keeps "
            f"{max(sizes.values(), default=1)} of its own; lower the ratio"
        )
    chosen: list[Variant] = []
    for *_, heads in sorted(units):
        if left[heads[0].layer] > 1 and len(chosen) + len(heads) <= count:
            left[heads[0].layer] -= 1
            chosen += heads
    return sorted(chosen)


def unit_size(layer: AttentionLayer, unit: Unit) -> int:
    """Return how many heads of a layer are removed together."""
    shared = layer.query_heads // layer.kv_heads
    return {"group": shared, "query": layer.kv_heads if shared > 1 else 1, "head": 1}[unit]


def _units(
    layer: AttentionLayer, scores: Sequence[float], unit: Unit
) -> list[tuple[float, list[Variant]]]:
    """Return the units of a layer with their mean scores, lowest first."""
    size = 1 if unit == "head" else layer.query_heads // layer.kv_heads
    units = [list(range(start, start + size)) for start in range(0, layer.query_heads, size)]
    if unit == "query" and size > 1:  # the lowest of each group, the second lowest of each, ...
        ranked = (sorted(group, key=lambda head: (scores[head], head)) for group in units)
        units = [list(heads) for heads in zip(*ranked, strict=True)]
    return sorted(
        (
            sum(scores[head] for head in heads) / len(heads),
            [Variant(layer.index, head) for head in heads],
        )
        for heads in units
    )
