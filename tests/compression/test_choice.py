"""The lowest heads go when they are due, and what stays can be cut."""

import itertools

import pytest
import torch

from headroom.compression.choice import Scores, heads_at, heads_due, lowest_heads
from headroom.config.compression import Compression
from headroom.errors import ModelError
from headroom.models.geometry import AttentionLayer, HeadGeometry
from headroom.models.removal import without
from headroom.variants import Variant


def geometry(*layers: tuple[int, int]) -> HeadGeometry:
    """Layers of (query heads, key/value heads)."""
    return HeadGeometry(
        tuple(AttentionLayer(index, f"{index}", *heads, 5) for index, heads in enumerate(layers))
    )


def random_scores(heads: HeadGeometry, seed: int = 0) -> Scores:
    draw = torch.Generator().manual_seed(seed)
    return {layer.index: torch.rand(layer.query_heads, generator=draw) for layer in heads.layers}


def test_the_count_equals_that_of_a_brute_force_over_single_heads():
    heads = geometry((5, 5), (4, 4), (3, 3))
    scores = random_scores(heads)
    every = [Variant(layer.index, h) for layer in heads.layers for h in range(layer.query_heads)]

    def total(chosen: tuple[Variant, ...]) -> float:
        return sum(float(scores[head.layer][head.head]) for head in chosen)

    for count in range(1, 10):
        allowed = [
            chosen
            for chosen in itertools.combinations(every, count)
            if all(
                sum(head.layer == layer.index for head in chosen) < layer.query_heads
                for layer in heads.layers
            )
        ]
        assert lowest_heads(scores, heads, count) == sorted(min(allowed, key=total))


@pytest.mark.parametrize(
    ("shape", "layers", "unit", "steps", "left"),
    [
        ((8, 8), 4, "group", [1] * 8, [6, 6, 6, 6]),
        ((5, 5), 3, "group", [2, 2, 3], [2, 3, 3]),
        ((12, 4), 3, "group", [3, 9, 6], [6, 6, 6]),
        ((12, 4), 3, "query", [4, 8, 12], [4, 4, 4]),
        ((9, 3), 2, "query", [3, 3, 3], [3, 6]),
    ],
)
def test_layers_lose_equal_numbers_over_many_removals(shape, layers, unit, steps, left):
    """Though at every removal the scores of one layer are the lowest."""
    whole = heads = geometry(*[shape] * layers)
    for seed, count in enumerate(steps):
        scores = {layer: one + layer for layer, one in random_scores(heads, seed).items()}
        chosen = lowest_heads(scores, heads, count, scope="layer", unit=unit, whole=whole)
        assert len(chosen) == count
        heads = without(heads, chosen)
    assert sorted(layer.query_heads for layer in heads.layers) == left


@pytest.mark.parametrize("unit", ["group", "query"])
@pytest.mark.parametrize("scope", ["all", "layer"])
@pytest.mark.parametrize("count", range(10))
def test_grouped_heads_leave_a_model_that_can_be_cut(unit, scope, count):
    heads = geometry((6, 2), (6, 2), (6, 2))
    chosen = lowest_heads(random_scores(heads, count), heads, count, scope=scope, unit=unit)
    assert len(chosen) == count - count % (3 if unit == "group" else 2)
    without(heads, chosen)


MIDDLE = [0.4] * 3
RANKED = [0.5, 0.1, 0.3, 0.2, 0.9, 0.4]


@pytest.mark.parametrize(
    ("shape", "scores", "unit", "lowest"),
    [
        # A group has the mean of its heads' scores.
        ((6, 2), {0: [0.0, 0.0, 0.9, *MIDDLE], 1: [0.35] * 6}, "group", "L00H00 L00H01 L00H02"),
        ((6, 2), {0: [0.0, 0.0, 1.1, *MIDDLE], 1: [0.35] * 6}, "group", "L01H00 L01H01 L01H02"),
        # Queries go by their rank in each group, heads that are only zeroed one by one.
        ((6, 2), {0: RANKED, 1: [0.2] * 6}, "query", "L00H01 L00H03"),
        ((6, 2), {0: RANKED}, "head", "L00H01 L00H03"),
        ((6, 2), {0: RANKED}, "head", "L00H00 L00H01 L00H02 L00H03 L00H05"),
        ((3, 3), {0: [0.5, 0.1, 0.3]}, "query", "L00H01 L00H02"),
        ((3, 3), {1: [0.3, 0.2, 0.1]}, "group", "L01H01 L01H02"),  # layers without scores stay
    ],
)
def test_units_go_by_their_scores(shape, scores, unit, lowest):
    tensors = {layer: torch.tensor(values) for layer, values in scores.items()}
    heads = lowest_heads(tensors, geometry(shape, shape), len(lowest.split()), unit=unit)
    assert " ".join(map(str, heads)) == lowest


@pytest.mark.parametrize(
    ("shapes", "count", "kept"), [([(4, 4), (3, 3)], 6, 1), ([(6, 2), (6, 2)], 7, 3)]
)
def test_more_heads_than_can_go_are_refused(shapes, count, kept):
    heads = geometry(*shapes)
    message = f"{count} heads cannot go: {count - 1} can, as each of 2 layers keeps {kept}"
    with pytest.raises(ModelError, match=message):
        lowest_heads(random_scores(heads), heads, count)


@pytest.mark.parametrize(
    ("heads", "settings", "removed"),
    [
        (144, {"ratio": 0.25}, [9, 18, 27, 36]),  # RoBERTa-base: nine a round
        (100, {"ratio": 0.5, "start": 0.1, "exponent": 2}, [12, 20, 32, 50]),
        (100, {"ratio": 0.29}, [7, 14, 21, 29]),  # 0.29 * 100 is below 29 in floating point
    ],
)
def test_rounds_rise_to_the_target(heads, settings, removed):
    found = [heads_due(Compression(**settings), heads, time, 4) for time in (1, 2, 3, 4)]
    assert found == removed
    assert found[-1] == heads_at(settings["ratio"], heads)
