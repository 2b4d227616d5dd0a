"""Direct passes: whom they serve, and that they are the model's own but for rounding."""

import pytest
import tiny_models
import torch
from test_engine import answer_all, assert_exact, loaded_model, random_prompts, requests
from transformers import DynamicCache

from headroom.generation.direct import Direct
from headroom.models.geometry import find_heads
from headroom.models.masks import pruned
from headroom.models.removal import remove_heads
from headroom.variants import BASE, Variant

SERVED = {
    "Qwen2": tiny_models.wide("Qwen2", head_dim=8),
    "Llama, biased attention": tiny_models.wide("Llama", attention_bias=True),
    "Llama 3 frequencies": tiny_models.wide(
        "Llama",
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ),
}
OTHERS = {
    "another activation": tiny_models.wide("Llama", hidden_act="gelu"),
    "biased MLP": tiny_models.wide("Llama", mlp_bias=True),
    "another class": tiny_models.wide("Mistral"),
}


@pytest.mark.parametrize("name", SERVED)
def test_logits_are_those_of_the_models_own_modules(name: str) -> None:
    loaded = loaded_model(tiny_models.build(SERVED[name]))
    direct = Direct.of(loaded)
    assert direct is not None
    variants = [BASE, Variant(0, 5), Variant(2, 1), Variant(2, 3, noise=True), Variant(3, 0)]
    tokens = torch.tensor([random_prompts((17,))[0]]).expand(5, -1).clone()
    tokens[1:] = tokens[1:].roll(3, 1)
    visible = torch.ones_like(tokens)
    visible[3, :6] = 0
    positions = (visible.cumsum(1) - 1).clamp(min=0)
    with torch.inference_mode(), pruned(loaded.model, loaded.geometry, variants):
        own = loaded.model(tokens, attention_mask=visible, position_ids=positions).logits
    with torch.inference_mode():
        cache = DynamicCache()
        direct(tokens[:, :11], positions[:, :11], variants, cache, visible=visible[:, :11])
        found = direct(tokens[:, 11:], positions[:, 11:], variants, cache, visible=visible, keep=4)
    assert torch.allclose(found, own[:, -4:], atol=1e-5)
    assert direct.fed == 5 * 17


@pytest.mark.parametrize("name", OTHERS)
def test_a_model_of_another_function_runs_by_its_own_modules(name: str) -> None:
    model = tiny_models.build(OTHERS[name])
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("bias"):
                parameter += 0.3
    loaded = loaded_model(model)
    assert Direct.of(loaded) is None
    wanted = requests()[:3]
    answers = answer_all(loaded, wanted, batch_size=2)
    assert_exact(loaded, answers)


def test_half_precision_runs_by_its_own_modules() -> None:
    model = tiny_models.build(SERVED["Qwen2"]).to(torch.bfloat16)
    assert Direct.of(loaded_model(model)) is None


CUT = [Variant(0, 3), Variant(0, 4), Variant(0, 5), Variant(2, 1), Variant(2, 5)]
"""A group of layer 0, one query of each group of layer 2."""


@pytest.mark.parametrize("name", ["Qwen2", "Qwen3", "Phi3"])
def test_answers_of_a_cut_model_are_those_of_generate(name: str):
    model = tiny_models.build(next(one for one in tiny_models.DECODERS if one.name == name))
    remove_heads(model, find_heads(model), CUT)
    loaded = loaded_model(model)
    assert (Direct.of(loaded) is not None) == (name == "Qwen2")
    wanted = requests([BASE, Variant(0, 2), Variant(2, 3), Variant(3, 5)])
    assert_exact(loaded, answer_all(loaded, wanted, batch_size=4))
