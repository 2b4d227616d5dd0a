"""The models that sweeps are measured on; one embedded into a larger shape is the same function."""

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from headroom.bench import shapes
from headroom.bench.shapes import Expansion
from headroom.errors import ModelError
from headroom.models.geometry import find_heads
from headroom.models.load import load_model
from headroom.models.masks import pruned
from headroom.variants import BASE, Variant

IDS = torch.randint(4, 300, (2, 19), generator=torch.Generator().manual_seed(0))
SMALL = dict(zip(shapes._NAMES, (24, 40, 3, 6, 2, 10, 53), strict=True))
LARGE = dict(zip(shapes._NAMES, (72, 100, 7, 20, 4, 40, 131), strict=True))
FILLER = 5


@pytest.fixture(scope="module")
def models():
    """A small model, and the same embedded into the large shape."""
    like = Qwen2Config(tie_word_embeddings=True, max_position_embeddings=64, rope_theta=500.0)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        small = Qwen2ForCausalLM(shapes.resized(like, SMALL)).eval()
        for parameter in small.parameters():  # biases and norms too
            parameter.normal_(std=0.3)
    return small, Expansion(SMALL, LARGE).apply(small, FILLER)


@pytest.mark.parametrize("variant", [BASE, Variant(0, 4), Variant(1, 0), Variant(2, 5)], ids=str)
def test_expansion_preserves_logits_with_and_without_a_pruned_head(models, variant):
    small, large = models
    ids = torch.randint(53, (3, 41), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        base = small(ids).logits
        with pruned(small, find_heads(small), variant):
            expected = small(ids).logits
        with pruned(large, find_heads(large), Expansion(SMALL, LARGE).variant(variant)):
            found = large(ids).logits
    assert variant == BASE or (base - expected).abs().max() > 0.01
    assert found.shape == (3, 41, 131)
    torch.testing.assert_close(found[..., :53], expected, atol=1e-4, rtol=0)
    new = expected[..., FILLER, None].expand(-1, -1, 131 - 53)
    torch.testing.assert_close(found[..., 53:], new, atol=1e-4, rtol=0)


def test_the_demo_grows_to_46_million_parameters_and_answers_as_before(tmp_path):
    loaded = load_model("builtin:reasoner", device="cpu")
    folder, carrying = shapes.make("46m", loaded, tmp_path / "large", torch.float32)
    large = load_model(str(folder), device="cpu")
    assert 46e6 < large.model.num_parameters() < 47e6
    ends = (Variant(0, 0), Variant(10, 6))
    assert (len(carrying), carrying[0], carrying[-1]) == (6 * 4, *ends)
    with torch.inference_mode():
        expected, found = loaded.model(IDS).logits, large.model(IDS).logits
    torch.testing.assert_close(found[..., : expected.shape[-1]], expected, atol=1e-4, rtol=1e-5)
    assert large.eos_token_ids == loaded.eos_token_ids


def test_random_weights_have_shape_and_type_and_what_does_not_fit_is_refused(tmp_path, monkeypatch):
    for name in ("46m", "qwen2.5-1.5b"):
        monkeypatch.setitem(shapes.SIZES, name, LARGE)
    loaded = load_model("builtin:reasoner", device="cpu")
    with pytest.raises(ModelError, match="hidden_size 72 is no multiple of the model's 128"):
        shapes.make("46m", loaded, tmp_path / "large", torch.float32)
    for change in ({"num_hidden_layers": 8}, {"num_attention_heads": 12}):
        with pytest.raises(ModelError, match="does not fit into"):
            Expansion(SMALL | change, LARGE)
    folder, _ = shapes.make("qwen2.5-1.5b", loaded, tmp_path / "large", torch.bfloat16)
    made = Qwen2ForCausalLM.from_pretrained(folder)
    assert shapes.sizes(made.config) == LARGE
    assert made.dtype == torch.bfloat16
