"""Norm and entropy of heads, against sums written out, on encoders and decoders."""

import math

import pytest
import torch
from torch import Tensor
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from headroom.compression.choice import Scores
from headroom.compression.criteria import (
    calibrate,
    min_max,
    mixed,
    weight_norms,
)
from headroom.config.compression import Importance
from headroom.errors import ModelError
from headroom.models.attention import eager_attention
from headroom.models.geometry import find_heads
from headroom.models.removal import remove_heads
from headroom.variants import Variant

VOCABULARY, LAYERS, HEADS, KV_HEADS, WIDTH, HEAD_DIM = 53, 3, 4, 2, 32, 8
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 22,
}
LENGTHS = (9, 5, 2, 1)


def build(kind: type[PreTrainedModel], config) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = kind(config)
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.eval()


@pytest.fixture
def bert() -> PreTrainedModel:
    return build(BertModel, BertConfig(**SHAPE))


@pytest.fixture
def qwen2() -> PreTrainedModel:
    config = Qwen2Config(**SHAPE, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM)
    return build(Qwen2ForCausalLM, config)


def texts(width: int = 9, *, left: bool = False) -> dict[str, Tensor]:
    """Rows of different lengths with the same tokens whatever the padding."""
    ids = torch.zeros(len(LENGTHS), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(LENGTHS):
        draw = torch.Generator().manual_seed(row)
        place = slice(width - length, width) if left else slice(0, length)
        ids[row, place] = torch.randint(3, VOCABULARY, (length,), generator=draw)
        mask[row, place] = 1
    return {"input_ids": ids, "attention_mask": mask}


def close(found: Scores, expected: Scores, tolerance: float = 1e-5) -> bool:
    return (
        all(torch.allclose(found[layer], expected[layer], atol=tolerance) for layer in expected)
        and found.keys() == expected.keys()
    )


def test_the_norm_of_an_encoders_head_is_that_of_its_weights(bert):
    """Equation 1, written out with the layout that BERT documents."""
    norms = weight_norms(bert, find_heads(bert))
    for index, layer in enumerate(bert.encoder.layer):
        attention = layer.attention.self
        for head in range(HEADS):
            rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
            expected = sum(
                module.weight[rows].abs().mean()
                for module in (attention.query, attention.key, attention.value)
            )
            assert norms[index][head].item() == pytest.approx(expected.item(), rel=1e-5)


def test_heads_of_a_group_share_the_norm_of_keys_and_values(qwen2):
    norms = weight_norms(qwen2, find_heads(qwen2))
    attention = qwen2.model.layers[1].self_attn
    for head in range(HEADS):
        query, group = (slice(one * HEAD_DIM, (one + 1) * HEAD_DIM) for one in (head, head // 2))
        expected = attention.q_proj.weight[query].abs().mean() + sum(
            module.weight[group].abs().mean() for module in (attention.k_proj, attention.v_proj)
        )
        assert norms[1][head].item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_norm_of_a_fused_projection_is_that_of_its_parts():
    config = GPT2Config(vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=2, n_head=HEADS)
    model = build(GPT2LMHeadModel, config)
    weight = model.transformer.h[1].attn.c_attn.weight  # (inputs, queries then keys then values)
    parts = weight.view(WIDTH, 3, HEADS, HEAD_DIM).abs().mean((0, 3)).sum(0)
    torch.testing.assert_close(weight_norms(model, find_heads(model))[1], parts)


def reference(model: PreTrainedModel, *, causal: bool) -> dict[str, Tensor]:
    """Means over queries with two visible keys or more, one row at a time without padding."""
    sums = {"raw": 0.0, "relative": 0.0, "peak": 0.0}
    queries = 0
    with eager_attention(model), torch.no_grad():
        for row, length in enumerate(LENGTHS):
            ids = texts()["input_ids"][row : row + 1, :length]
            maps = torch.stack(model(input_ids=ids, output_attentions=True).attentions)[:, 0]
            for query in range(length):
                keys = query + 1 if causal else length
                if keys < 2:
                    continue
                queries += 1
                p = maps[:, :, query, :keys]
                raw = -(p * p.log()).sum(-1)
                sums["raw"] = sums["raw"] + raw
                sums["relative"] = sums["relative"] + raw / math.log(keys)
                sums["peak"] = sums["peak"] + p.max(-1).values
    return {name: value / queries for name, value in sums.items()}


@pytest.mark.parametrize("width", [9, 12])
@pytest.mark.parametrize(
    ("name", "left"),
    # Not BERT on the left: its positions are absolute, and another place is another text.
    [("bert", False), ("qwen2", False), ("qwen2", True)],
)
def test_entropy_and_peak_do_not_depend_on_padding(name, left, width, request):
    model = request.getfixturevalue(name)
    expected = reference(model, causal=name == "qwen2")
    found = calibrate(model, find_heads(model), [texts(width, left=left)])
    for layer in range(LAYERS):
        torch.testing.assert_close(found.raw_entropy[layer], expected["raw"][layer])
        torch.testing.assert_close(found.entropy[layer], expected["relative"][layer])
        torch.testing.assert_close(found.peak[layer], expected["peak"][layer])
        assert ((found.entropy[layer] >= 0) & (found.entropy[layer] <= 1)).all()


def test_activations_are_means_over_valid_tokens(bert):
    found = calibrate(bert, find_heads(bert), [texts(12)]).activation_norms
    seen = []
    query = bert.encoder.layer[2].attention.self
    for module in (query.query, query.key, query.value):
        module.register_forward_hook(lambda _, __, output: seen.append(output[0]))
    with torch.no_grad():
        for row, length in enumerate(LENGTHS):
            bert(input_ids=texts()["input_ids"][row : row + 1, :length])
    projected = [torch.cat(seen[part::3]).view(-1, HEADS, HEAD_DIM) for part in range(3)]
    expected = sum(part.abs().mean((0, 2)) for part in projected)
    torch.testing.assert_close(found[2], expected)


def test_batches_add_up(qwen2):
    geometry = find_heads(qwen2)
    whole = calibrate(qwen2, geometry, [texts()])
    parts = [{key: value[rows] for key, value in texts().items()} for rows in ([0, 3], [1, 2])]
    split = calibrate(qwen2, geometry, parts)
    for name in ("raw_entropy", "entropy", "peak", "activation_norms"):
        assert close(getattr(split, name), getattr(whole, name))


def test_calibrating_leaves_the_model_as_it_was(qwen2):
    qwen2.train()
    calibrate(qwen2, find_heads(qwen2), [texts()])
    assert qwen2.training
    assert qwen2.config._attn_implementation == "sdpa"
    linear = [one for one in qwen2.modules() if isinstance(one, torch.nn.Linear)]
    assert all(not one._forward_hooks and not one._forward_pre_hooks for one in linear)


def test_a_pruned_model_is_scored_head_by_head(bert):
    geometry = find_heads(bert)
    norms = weight_norms(bert, geometry)
    smaller = remove_heads(bert, geometry, [Variant(1, 0), Variant(1, 2)])
    again = weight_norms(bert, smaller)
    torch.testing.assert_close(again[1], norms[1][[1, 3]])
    torch.testing.assert_close(again[2], norms[2])
    assert calibrate(bert, smaller, [texts()]).entropy[1].shape == (2,)


NORM = {0: torch.tensor([1.0, 2.0, 5.0]), 1: torch.tensor([3.0, 4.0])}
ENTROPY = {0: torch.tensor([0.9, 0.5, 0.1]), 1: torch.tensor([0.3, 0.7])}


@pytest.mark.parametrize(
    ("settings", "first", "second"),
    [
        ({"alpha": 0.25, "scale": "raw"}, [0.925, 0.875, 1.325], [0.975, 1.525]),
        ({"alpha": 0.25}, [0.75, 0.4375, 0.25], [0.3125, 0.75]),  # both on one scale
        ({"alpha": 0.0}, [1.0, 0.5, 0.0], [0.25, 0.75]),
        ({"alpha": 1.0}, [0.0, 0.25, 1.0], [0.5, 0.75]),
        ({"alpha": 0.0, "entropy_sign": -1}, [-1.0, -0.5, 0.0], [-0.25, -0.75]),
    ],
)
def test_the_mixture_is_that_of_equation_4(settings, first, second):
    expected = {0: torch.tensor(first), 1: torch.tensor(second)}
    assert close(mixed(NORM, ENTROPY, Importance(**settings)), expected)


def test_equal_scores_stay_equal():
    assert close(min_max({0: torch.full((3,), 2.5)}), {0: torch.zeros(3)})


def test_texts_of_one_token_are_refused(bert):
    one = {name: value[3:, :1] for name, value in texts().items()}
    with pytest.raises(ModelError, match="no text to calibrate on has two tokens"):
        calibrate(bert, find_heads(bert), [one])


def test_attention_without_weights_is_refused(bert, monkeypatch):
    def refuse(kind: str) -> None:
        raise ValueError(f"no {kind}")

    monkeypatch.setattr(bert, "set_attn_implementation", refuse)
    with pytest.raises(ModelError, match="BertModel has no eager attention") as caught:
        calibrate(bert, find_heads(bert), [texts()])
    assert "\n" not in str(caught.value)
