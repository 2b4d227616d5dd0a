"""Measurements: perplexity beside transformers' own loss, bytes beside a real cache."""

import math

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from words import TEXTS

from headroom.recovery.evaluation import (
    Losses,
    generated_per_second,
    perplexity,
    text_losses,
)
from headroom.recovery.texts import cut


@pytest.mark.parametrize("at_once", [1, 5])
def test_the_loss_of_a_text_is_that_of_its_pieces(at_once, llama):
    model = AutoModelForCausalLM.from_pretrained(llama)
    pieces = cut(TEXTS, AutoTokenizer.from_pretrained(llama), length=5)
    found = text_losses(model, pieces, at_once)
    for number in range(len(TEXTS)):
        own = [torch.from_numpy(each.input_ids)[None] for each in pieces if each.text == number]
        with torch.no_grad():
            losses = [float(model(ids, labels=ids).loss) * (ids.shape[1] - 1) for ids in own]
        assert found.nats[number] == pytest.approx(sum(losses), rel=1e-5)
        assert found.tokens[number] == sum(ids.shape[1] - 1 for ids in own)


def test_intervals_of_perplexity_cover_what_they_claim():
    draw, covered, narrower = np.random.default_rng(0), 0, 0
    for _ in range(200):
        tokens = draw.integers(5, 60, size=40)
        nats = tokens * (2.0 + draw.normal(0, 0.6, size=40))
        harder = Losses(nats + 0.1 * tokens + draw.normal(0, 1, size=40), tokens)
        own, ratio = perplexity(Losses(nats, tokens)), perplexity(harder, Losses(nats, tokens))
        assert own.low < own.value < own.high
        assert ratio.value == pytest.approx(perplexity(harder).value / own.value)
        covered += ratio.low <= math.exp(0.1) <= ratio.high
        narrower += math.log(ratio.high / ratio.low) < 0.5 * math.log(own.high / own.low)
    assert 0.88 < covered / 200 < 0.99
    assert narrower == 200  # the same texts: their difficulty cancels


def test_generation_is_timed_at_its_full_length(llama, monkeypatch):
    model = AutoModelForCausalLM.from_pretrained(llama)
    made, generate = [], model.generate
    monkeypatch.setattr(model, "generate", lambda **o: made.append(generate(**o)) or made[-1])
    (speed,) = generated_per_second([model])
    assert {tuple(each.shape) for each in made} == {(1, 48), (8, 48)}
    assert set(speed) == {"tokens_per_second_batch_1", "tokens_per_second_batch_8"}
    assert min(speed.values()) > 0
