"""A small model embedded into a larger shape computes the same function."""

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from headroom.bench.expansion import Expansion, Shape
from headroom.errors import ModelError
from headroom.models.geometry import find_heads
from headroom.models.masks import pruned
from headroom.variants import BASE, Variant

SMALL = Shape(
    hidden=24, intermediate=40, layers=3, query_heads=6, kv_heads=2, head_dim=10, vocabulary=53
)
LARGE = Shape(
    hidden=72, intermediate=100, layers=7, query_heads=20, kv_heads=4, head_dim=40, vocabulary=131
)
FILLER = 5


def small_model() -> Qwen2ForCausalLM:
    like = Qwen2Config(tie_word_embeddings=True, max_position_embeddings=64, rope_theta=500.0)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(SMALL.config(like))
        for parameter in model.parameters():  # biases and norms too
            parameter.normal_(std=0.3)
    return model.eval()


@pytest.mark.parametrize("variant", [BASE, Variant(0, 4), Variant(1, 0), Variant(2, 5)], ids=str)
def test_expansion_preserves_logits_with_and_without_a_pruned_head(variant: Variant) -> None:
    small, expansion = small_model(), Expansion(SMALL, LARGE)
    large = expansion.apply(small, FILLER)
    ids = torch.randint(53, (3, 41), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        with pruned(small, find_heads(small), variant):
            expected = small(ids).logits
        with pruned(large, find_heads(large), expansion.variant(variant)):
            found = large(ids).logits
    assert found.shape == (3, 41, 131)
    torch.testing.assert_close(found[..., :53], expected, atol=1e-4, rtol=0)
    new = expected[..., FILLER, None].expand(-1, -1, 131 - 53)
    torch.testing.assert_close(found[..., 53:], new, atol=1e-4, rtol=0)


def test_each_pruned_head_of_the_small_model_counts() -> None:
    small = small_model()
    ids = torch.arange(17)[None]
    with torch.inference_mode():
        base = small(ids).logits
        for variant in (Variant(0, 4), Variant(1, 0), Variant(2, 5)):
            with pruned(small, find_heads(small), variant):
                assert (small(ids).logits - base).abs().max() > 0.01


def test_a_head_that_the_expansion_did_not_fill_carries_nothing() -> None:
    expansion = Expansion(SMALL, LARGE)
    large = expansion.apply(small_model(), FILLER)
    filled = {expansion.variant(Variant(layer, head)) for layer in range(3) for head in range(6)}
    assert len(filled) == 18
    geometry = find_heads(large)
    everything = {Variant(layer, head) for layer in range(7) for head in range(20)}
    ids = torch.arange(13)[None]
    with torch.inference_mode():
        base = large(ids).logits
        for variant in sorted(everything - filled, key=str)[::11]:
            with pruned(large, geometry, variant):
                assert torch.equal(large(ids).logits, base)


def test_a_hidden_size_that_is_no_multiple_is_refused() -> None:
    with pytest.raises(ModelError, match="hidden 72 is no multiple of the model's 50"):
        Expansion(Shape(50, 40, 3, 6, 2, 10, 53), LARGE)


def test_a_shape_with_fewer_layers_is_refused() -> None:
    with pytest.raises(ModelError, match="does not fit into"):
        Expansion(Shape(24, 40, 8, 6, 2, 10, 53), LARGE)
