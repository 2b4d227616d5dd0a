"""The choice of the next token, held against the model's probabilities and transformers."""

import math

import numpy as np
import pytest
import torch
from transformers import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from headroom.generation.sampling import candidates, choose, sample, uniforms

VOCABULARY = 53


def random_logits(rows):
    return 3 * torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(0))


def probabilities(logits, temperature, top_k, top_p):
    """Return what transformers samples from."""
    warpers = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    warpers += [TopKLogitsWarper(top_k)] if top_k else []
    warpers += [TopPLogitsWarper(top_p)] if top_p < 1 else []
    return warpers(None, logits.double()).softmax(-1)


def test_uniforms_are_a_function_of_seed_question_sample_and_position_alone():
    reference = uniforms(3, "math/17", 5, 100)
    assert np.array_equal(uniforms(3, "math/17", 5, 40), reference[:40])
    others = [(4, "math/17", 5), (3, "math/18", 5), (3, "math/17", 6), (3, "5\nmath/17", 3)]
    assert all(abs(uniforms(*other, 100) - reference).min() > 0 for other in others)
    assert reference.min() >= 0 and reference.max() < 1


@pytest.mark.parametrize(("top_k", "top_p"), [(None, 1.0), (7, 1.0), (None, 0.8), (11, 0.9)])
def test_sampled_tokens_follow_the_models_probabilities(top_k, top_p):
    draws, temperature = 20_000, 1.7
    logits = random_logits(1)
    uniform = torch.tensor(uniforms(0, "q", 0, draws))
    drawn = sample(logits.expand(draws, -1), uniform, temperature, top_k, top_p)
    expected = draws * probabilities(logits, temperature, top_k, top_p)[0]
    counts = torch.bincount(drawn, minlength=VOCABULARY).double()
    assert counts[expected == 0].sum() == 0
    likely = expected > 5
    statistic = ((counts - expected)[likely] ** 2 / expected[likely]).sum().item()
    freedom = int(likely.sum()) - 1
    # Mean and standard deviation of the chi-square distribution are k and sqrt(2 k).
    assert statistic < freedom + 4 * math.sqrt(2 * freedom)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(0.6, None, 1.0), (1.3, None, 0.95), (0.1, 9, 0.5), (1.3, 9, 1.0), (0.6, 99, 1e-6)],
)
def test_truncation_equals_that_of_transformers(temperature, top_k, top_p):
    logits = random_logits(31)
    tokens, weights = candidates(logits, temperature, top_k, top_p)
    found = torch.zeros(31, VOCABULARY, dtype=torch.float64).scatter(-1, tokens, weights)
    found /= found.sum(-1, keepdim=True)
    expected = probabilities(logits, temperature, top_k, top_p)
    assert torch.equal(found > 0, expected > 0)
    assert torch.allclose(found, expected, atol=1e-12)


def test_the_ends_of_the_unit_interval_give_tokens_that_have_weight():
    logits = torch.tensor([[-math.inf, 1.0, 2.0, -math.inf]]).expand(2, -1)
    uniform = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    assert sample(logits, uniform, 1.0).tolist() == [1, 2]


def test_greedy_takes_the_first_of_equal_tokens_and_tells_the_gap_to_the_second_best():
    tokens, gaps = choose(torch.tensor([[1.0, 3.0, 3.0], [0.0, 5.0, 3.5], [5.0, 5.0, 1.0]]))
    assert tokens.tolist() == [1, 1, 0]
    assert gaps.tolist() == [0.0, 1.5, 0.0]
