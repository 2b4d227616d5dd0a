"""Prices of cards: what the table says of a batch follows from bytes and operations."""

import pytest

from example_config import config
from headroom.planning.batches import batches
from headroom.planning.cost import (
    ANY_CORE,
    CARDS,
    describe,
    generation_cost,
    generation_request,
    generation_seconds,
    this_cpu,
)


def test_a_token_costs_two_operations_a_weight_at_least() -> None:
    planned = config()
    batch = batches(planned)[0]
    for card in CARDS.values():
        tokens = generation_cost(planned, batch).tokens
        assert generation_seconds(planned, batch, card) > 2 * 1.5e9 * tokens / card.flops


def test_the_plan_names_cards_that_cannot_hold_a_model() -> None:
    told = {
        line.split("  ")[0]: line
        for line in describe(config(models={"big": {"billions": 30.0}})).splitlines()
    }
    assert told["A100 40 GB"].split()[-3:] == ["62", "not", "big"]
    assert told["H200"].endswith("yes")
    assert "this CPU" in told


def test_a_cpu_is_measured_and_a_cluster_s_is_not() -> None:
    assert 1e9 < this_cpu().flops < 1e13
    assert this_cpu() == this_cpu()
    planned = config(models={"big": {"device": "cpu", "dtype": "float32"}})
    batch = batches(planned)[0]
    request = generation_request(planned, batch)
    alone = generation_seconds(planned, batch, ANY_CORE) / len(batch.variants)
    assert (request.gpus, request.minutes) == (0, pytest.approx(5 + 2 * alone / 60, abs=1))
