"""Which heads go when: the schedule of arXiv 2511.17577 (eq. 5 and Alg. 2), and the lowest scores.

Heads go in units that leave a model which can be cut.
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
"""A score for each head, [query_heads] by layer: what is low goes first."""
Scope = Literal["all", "layer"]
"""What is ranked together: all heads, or the heads of each layer, which then lose equal numbers."""
Unit = Literal["group", "query", "head"]
"""What goes together if query heads share key/value heads: a key/value head with all of its query
heads; one query head of every group of a layer; any head alone, which can be zeroed, not cut."""


def heads_at(ratio: float, heads: int) -> int:
    """Return how many of the original heads a ratio is, rounded down."""
    return math.floor(ratio * heads + 1e-9)  # 0.29 * 100 is 28.999999999999996, and means 29


def heads_due(settings: Compression, heads: int, time: int, end: int) -> int:
    """Return how many heads are to be gone at a time: floor(p(t) H0), where
    p(t) = p_min + (p_max - p_min) (t / T)^n (eq. 5).

    Never falls over time, and ends at floor(p_max H0).

    Args:
        settings: p_min (`start`), p_max (`ratio`) and n (`exponent`: above 1 heads go late).
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
) -> list[Variant]:
    """Return the heads of lowest score, sorted.

    Every layer keeps one unit at least. Where units are larger than one head, as many go as fit
    into the count. In one shot over all heads, this is a single threshold on the score.

    Args:
        scores: of the heads as they stand; layers without scores lose nothing.
        geometry: the heads as they stand.
        count: how many heads are to go, at most.
        scope: what is ranked together.
        unit: what goes together in grouped-query attention; its score is the mean of its heads'.

    Raises:
        ModelError: so many heads cannot go.
    """
    units = [
        (rank if scope == "layer" else 0, score, heads)
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
    """Return how many heads of a layer go at once."""
    shared = layer.query_heads // layer.kv_heads
    return {"group": shared, "query": layer.kv_heads if shared > 1 else 1, "head": 1}[unit]


def _units(
    layer: AttentionLayer, scores: Sequence[float], unit: Unit
) -> list[tuple[float, list[Variant]]]:
    """Return what may go from a layer with its mean score, from the lowest up."""
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
