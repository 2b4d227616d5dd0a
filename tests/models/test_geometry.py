"""Heads are found in every architecture, and refused where there are none."""

import pytest
import tiny_models
import torch
from tiny_models import ALL, DECODERS, ENCODERS, KV_HEADS, LAYERS, QUERY_HEADS, Architecture
from transformers import AutoModel, DynamicCache

from headroom.errors import ModelError
from headroom.models.geometry import find_heads


@pytest.mark.parametrize("architecture", ALL, ids=str)
def test_heads_are_those_of_the_config_and_the_first_token_hands_each_its_own_values(architecture):
    """The first token attends to itself alone, so its heads put out what the cache holds.

    That is evidence which the search does not use: the order of the heads, and which key/value
    head each query head reads.
    """
    model = tiny_models.build(architecture)
    geometry, seen = find_heads(model), {}
    sizes = (QUERY_HEADS, architecture.kv_heads, architecture.head_dim)
    assert [
        (layer.index, layer.query_heads, layer.kv_heads, layer.head_dim)
        for layer in geometry.layers
    ] == [(index, *sizes) for index in architecture.layers]
    assert geometry.keeps_cache == (architecture not in ENCODERS)
    for layer in geometry.layers:
        geometry.output_projection(model, layer.index).register_forward_pre_hook(
            lambda _, inputs, index=layer.index: seen.update({index: inputs[0]})
        )
    # Attention sinks (GPT-OSS) take a share even of the first token's attention.
    if architecture not in DECODERS or architecture.name == "GptOss":
        return
    with torch.no_grad():
        cache = model(torch.tensor([[11, 23, 35]]), use_cache=True).past_key_values
    assert isinstance(cache, DynamicCache)
    for layer in geometry.layers:
        values = cache.layers[layer.index].values[0, :, 0]
        repeated = values.repeat_interleave(QUERY_HEADS // values.shape[0], dim=0)
        heads = seen[layer.index][0, 0].view(QUERY_HEADS, layer.head_dim)
        torch.testing.assert_close(heads, repeated)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_heads_that_look_at_their_own_token_alone_are_found(dtype):
    """As in a trained model of which one group was left: 99.8% of the weight is on the token."""
    model, shares = tiny_models.build(tiny_models.grouped("Llama")), []
    with torch.no_grad():
        for layer in model.model.layers:
            keys = layer.self_attn.k_proj.weight.mul_(1.6)
            groups = keys.view(KV_HEADS, -1, keys.shape[1])
            queries = groups.repeat_interleave(QUERY_HEADS // KV_HEADS, 0)
            layer.self_attn.q_proj.weight.copy_(queries.reshape(-1, keys.shape[1]))
            layer.self_attn.o_proj.register_forward_pre_hook(
                lambda _, inputs: shares.append(inputs[0][:, 1].float())
            )
    geometry = find_heads(model.to(dtype))
    assert [layer.query_heads for layer in geometry.layers] == [QUERY_HEADS] * 4
    assert 1e-3 < min((one - other).norm() / one.norm() for one, other in shares) < 4e-3


COMPRESSED = {  # keys and values that several heads share in compressed form; no experts
    "num_key_value_heads": QUERY_HEADS,
    "q_lora_rank": 20,
    "kv_lora_rank": 14,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 10,
    "v_head_dim": 12,
    "first_k_dense_replace": LAYERS,
}
REFUSED = [
    (Architecture("Mamba"), "no output projection|no attention heads"),
    (Architecture("Rwkv"), "no output projection|no attention heads"),
    (Architecture("T5", {"d_kv": 10, "d_ff": 56}, auto=AutoModel), "encoder-decoder"),
    (Architecture("Albert", {"embedding_size": 20}, auto=AutoModel), "share weights"),
    (Architecture("ConvBert", {"embedding_size": 20}, auto=AutoModel), "no output projection"),
    (Architecture("FNet", auto=AutoModel), "no output projection|no attention heads"),
    (Architecture("JetMoe"), "no output projection"),
    (Architecture("ViT", auto=AutoModel), "token ids alone"),
    (Architecture("DeepseekV3", COMPRESSED), "no output projection joins the 6 heads of layer 0"),
]


@pytest.mark.parametrize(("architecture", "reason"), REFUSED, ids=lambda one: str(one))
def test_a_model_without_separable_heads_is_refused_in_one_line(architecture, reason):
    model = architecture.auto.from_config(tiny_models.build_config(architecture))
    with pytest.raises(ModelError, match=rf"^.*({reason}).*$"):
        find_heads(model)
