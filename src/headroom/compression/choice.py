"""Which heads go: those of lowest score, in units that leave a model which can be cut."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

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


@dataclass(frozen=True)
class _Candidate:
    score: float
    rank: int
    """Place among the candidates of its layer."""
    heads: tuple[Variant, ...]

    @property
    def layer(self) -> int | None:
        return self.heads[0].layer


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
    candidates = [
        candidate
        for layer in geometry.layers
        if layer.index in scores
        for candidate in _candidates(layer, scores[layer.index].tolist(), unit)
    ]
    left = Counter(candidate.layer for candidate in candidates)
    sizes = {one.layer: len(one.heads) for one in candidates}
    removable = sum((left[layer] - 1) * size for layer, size in sizes.items())
    if count > removable:
        raise ModelError(
            f"{count} heads cannot go: {removable} can, as each of {len(left)} layers keeps "
            f"{max(sizes.values(), default=1)} of its own; lower the ratio"
        )
    by_layer = scope == "layer"
    candidates.sort(key=lambda one: (one.rank if by_layer else 0, one.score, one.heads))
    chosen: list[Variant] = []
    for candidate in candidates:
        if left[candidate.layer] > 1 and len(chosen) + len(candidate.heads) <= count:
            left[candidate.layer] -= 1
            chosen += candidate.heads
    return sorted(chosen)


def smallest_unit(geometry: HeadGeometry, unit: Unit) -> int:
    """Return how many heads go at once, at least."""
    return min(_unit_size(layer, unit) for layer in geometry.layers)


def _unit_size(layer: AttentionLayer, unit: Unit) -> int:
    match unit:
        case "group":
            return layer.query_heads // layer.kv_heads
        case "query":
            return layer.kv_heads
    return 1


def _candidates(layer: AttentionLayer, scores: Sequence[float], unit: Unit) -> list[_Candidate]:
    """Return what may go from a layer, from its lowest score up."""
    size = 1 if unit == "head" else layer.query_heads // layer.kv_heads
    groups = [list(range(start, start + size)) for start in range(0, layer.query_heads, size)]
    if unit == "query":
        ordered = (sorted(group, key=lambda head: (scores[head], head)) for group in groups)
        groups = [list(heads) for heads in zip(*ordered, strict=True)]
    means = [(sum(scores[head] for head in heads) / len(heads), heads) for heads in groups]
    return [
        _Candidate(score, rank, tuple(Variant(layer.index, head) for head in heads))
        for rank, (score, heads) in enumerate(sorted(means))
    ]
