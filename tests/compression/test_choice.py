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
        tuple(
            AttentionLayer(index, f"{index}", query_heads, kv_heads, 5)
            for index, (query_heads, kv_heads) in enumerate(layers)
        )
    )


def random_scores(heads: HeadGeometry, seed: int = 0) -> Scores:
    draw = torch.Generator().manual_seed(seed)
    return {layer.index: torch.rand(layer.query_heads, generator=draw) for layer in heads.layers}


def names(heads: list[Variant]) -> list[str]:
    return [str(head) for head in heads]


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


def test_layers_lose_equal_numbers_if_ranked_apart():
    heads = geometry((4, 4), (4, 4), (4, 4))
    scores = {layer: score + layer for layer, score in random_scores(heads).items()}
    chosen = lowest_heads(scores, heads, 6, scope="layer")
    assert [sum(head.layer == layer for head in chosen) for layer in range(3)] == [2, 2, 2]
    rest = lowest_heads(scores, heads, 7, scope="layer")
    assert set(chosen) < set(rest)
    assert {head.layer for head in lowest_heads(scores, heads, 3)} == {0}


@pytest.mark.parametrize("unit", ["group", "query"])
@pytest.mark.parametrize("scope", ["all", "layer"])
@pytest.mark.parametrize("count", range(10))
def test_grouped_heads_leave_a_model_that_can_be_cut(unit, scope, count):
    heads = geometry((6, 2), (6, 2), (6, 2))
    chosen = lowest_heads(random_scores(heads, count), heads, count, scope=scope, unit=unit)
    assert len(chosen) == count - count % (3 if unit == "group" else 2)
    without(heads, chosen)


def test_a_group_scores_the_mean_of_its_heads():
    heads = geometry((6, 2), (6, 2))
    scores = {0: torch.tensor([0.0, 0.0, 0.9, 0.4, 0.4, 0.4]), 1: torch.full((6,), 0.35)}
    assert names(lowest_heads(scores, heads, 3)) == ["L00H00", "L00H01", "L00H02"]
    scores[0][2] = 1.1
    assert names(lowest_heads(scores, heads, 3)) == ["L01H00", "L01H01", "L01H02"]


def test_queries_go_by_their_rank_in_each_group():
    heads = geometry((6, 2), (6, 2))
    scores = {0: torch.tensor([0.5, 0.1, 0.3, 0.2, 0.9, 0.4]), 1: torch.full((6,), 0.2)}
    assert names(lowest_heads(scores, heads, 2, unit="query")) == ["L00H01", "L00H03"]


def test_heads_go_one_by_one_if_they_are_only_zeroed():
    heads = geometry((6, 2))
    scores = {0: torch.tensor([0.5, 0.1, 0.3, 0.2, 0.9, 0.4])}
    assert names(lowest_heads(scores, heads, 2, unit="head")) == ["L00H01", "L00H03"]
    assert len(lowest_heads(scores, heads, 5, unit="head")) == 5


def test_layers_without_scores_lose_nothing():
    heads = geometry((3, 3), (3, 3))
    scores = {1: torch.tensor([0.3, 0.2, 0.1])}
    assert names(lowest_heads(scores, heads, 2)) == ["L01H01", "L01H02"]


def test_more_heads_than_can_go_are_refused():
    heads = geometry((4, 4), (3, 3))
    with pytest.raises(ModelError, match="6 heads cannot go: 5 can, as each of 2 layers keeps 1"):
        lowest_heads(random_scores(heads), heads, 6)
    grouped = geometry((6, 2), (6, 2))
    with pytest.raises(ModelError, match="7 heads cannot go: 6 can, as each of 2 layers keeps 3"):
        lowest_heads(random_scores(grouped), grouped, 7)


def test_query_heads_that_share_nothing_go_one_by_one():
    heads = geometry((3, 3))
    scores = {0: torch.tensor([0.5, 0.1, 0.3])}
    assert names(lowest_heads(scores, heads, 2, unit="query")) == ["L00H01", "L00H02"]


@pytest.mark.parametrize(
    ("heads", "settings", "removed"),
    [
        (144, {"ratio": 0.25}, [9, 18, 27, 36]),  # RoBERTa-base: nine a round
        (100, {"ratio": 0.4, "exponent": 2}, [2, 10, 22, 40]),  # late
        (100, {"ratio": 0.4, "exponent": 0.5}, [20, 28, 34, 40]),  # early
        (100, {"ratio": 0.5, "start": 0.1, "exponent": 2}, [12, 20, 32, 50]),
        (100, {"ratio": 0.29}, [7, 14, 21, 29]),  # 0.29 * 100 is below 29 in floating point
        (18, {"ratio": 0.25}, [1, 2, 3, 4]),
    ],
)
def test_rounds_rise_to_the_target(heads: int, settings: dict, removed: list[int]) -> None:
    found = [heads_due(Compression(**settings), heads, time, 4) for time in (1, 2, 3, 4)]
    assert found == removed
    assert found[-1] == heads_at(settings["ratio"], heads)
