"""Criteria: norm and entropy against sums written out, scores against weights zeroed."""

import math
import weakref
from typing import get_args

import pandas as pd
import pytest
import torch
from small import build, certain_solver, same, weights
from torch import Tensor
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    MistralConfig,
    MistralForCausalLM,
    MPNetConfig,
    MPNetModel,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from headroom.athena.batches import Example, collate
from headroom.athena.generated import generate
from headroom.athena.solver import MathSolver
from headroom.compression import calibration as calibration_module
from headroom.compression.calibration import calibrate, text_batches, weight_norms
from headroom.compression.choice import Scores
from headroom.compression.criteria import (
    CRITERIA,
    accuracy_drops,
    calibration,
    head_scores,
    mixed,
)
from headroom.config.compression import Encoder, Importance, Solver
from headroom.errors import ModelError
from headroom.models.attention import eager_attention
from headroom.models.geometry import AttentionLayer, HeadGeometry, find_heads
from headroom.models.load import word_tokenizer
from headroom.models.masks import edited_weights
from headroom.models.removal import find_readers, remove_heads
from headroom.variants import Variant

LAYERS, HEADS = 2, 3
SMALL = Solver(
    encoder=Encoder(layers=LAYERS, width=24, heads=HEADS, intermediate=20, min_count=1), depth=4
)
N = 11
GEOMETRY = HeadGeometry(
    tuple(AttentionLayer(index, f"{index}", HEADS, HEADS, 5) for index in (1, 4, 6))
)


@pytest.fixture(scope="module")
def solver() -> MathSolver:
    solver = certain_solver(SMALL, N, 1)
    solver.athena.train()
    return solver


@pytest.fixture(scope="module")
def examples(solver: MathSolver) -> list[Example]:
    return solver.prepare(generate(N, seed=5))


def scores(solver: MathSolver, examples: list[Example], seed: int = 3, **settings) -> Scores:
    geometry = find_heads(solver.athena.encoder)
    torch.manual_seed(seed)
    return head_scores(solver, geometry, examples, examples[:4], Importance(**settings), seed)


def loss(solver: MathSolver, examples: list[Example]) -> float:
    solver.athena.eval()
    batch = collate(examples, solver.tokenizer.pad_token_id)
    with torch.no_grad():
        value = solver.task_loss(solver.athena(batch), batch).item()
    solver.athena.train()
    return value


def test_the_mixture_follows_its_settings(solver, examples):
    encoder, geometry = solver.athena.encoder, find_heads(solver.athena.encoder)
    batch = collate(examples, solver.tokenizer.pad_token_id).texts
    texts = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    found = calibrate(encoder, geometry, [texts], activations=True)
    norm = weight_norms(encoder, geometry)
    raw = {"alpha": 0.3, "entropy": "raw", "scale": "raw"}
    for settings, expected in [
        ({}, mixed(norm, found["normalised"], Importance(alpha=0.5))),
        (raw, mixed(norm, found["raw"], Importance(alpha=0.3, scale="raw"))),
        ({"alpha": 1.0, "scale": "raw", "norm": "activations"}, found["activations"]),
        ({"criterion": "attention"}, found["peak"]),
        ({"criterion": "attention", "batch_size": 3}, found["peak"]),
    ]:
        for layer, score in scores(solver, examples, **settings).items():
            torch.testing.assert_close(score, expected[layer], rtol=1e-4, atol=1e-5)


def test_the_causal_criterion_is_the_loss_without_each_head(solver, examples):
    found = scores(solver, examples, criterion="causal")
    geometry, base = find_heads(solver.athena.encoder), loss(solver, examples[:4])
    for layer in range(LAYERS):
        for head in range(HEADS):
            with edited_weights(solver.athena.encoder, geometry, Variant(layer, head)):
                expected = loss(solver, examples[:4]) - base
            assert found[layer][head].item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("criterion", ["mixed", "causal", "random"])
def test_a_solver_is_left_as_it_was_and_scored_without_dropout(solver, examples, criterion):
    before = weights(solver)
    first = scores(solver, examples, criterion=criterion)
    again = scores(solver, examples, criterion=criterion)
    assert [len(first[layer]) for layer in first] == [HEADS] * LAYERS
    for layer in first:
        assert torch.equal(first[layer], again[layer])
    assert solver.athena.training and solver.athena.encoder.training
    assert same(before, weights(solver))
    assert all(parameter.grad is None for parameter in solver.athena.parameters())
    assert all(not module._forward_pre_hooks for module in solver.athena.modules())


def test_every_criterion_of_a_config_is_there():
    assert set(get_args(Importance.model_fields["criterion"].annotation)) < CRITERIA.keys()


def test_calibration_problems_are_always_the_same(examples):
    drawn = calibration(examples, Importance(calibration=7))
    assert drawn == calibration(examples, Importance(calibration=7))
    assert len(drawn) == 7 and drawn != examples[:7]
    assert len({example.problem.problem_id for example in drawn}) == 7
    assert calibration(examples, Importance(calibration=None)) == examples


def test_the_causal_criterion_needs_a_development_part(solver, examples):
    geometry = find_heads(solver.athena.encoder)
    with pytest.raises(ModelError, match="criterion causal needs a development part"):
        head_scores(solver, geometry, examples, [], Importance(criterion="causal"), 0)


@pytest.mark.parametrize(
    ("columns", "missing"),
    [(["base", "L01H00", "L01H02"], "L01H01"), (["L01H00"], "base"), (["base"], "all heads")],
)
def test_a_matrix_with_holes_is_refused(columns, missing):
    z = pd.DataFrame({name: [1, 0] for name in columns})
    with pytest.raises(ModelError, match=f"lacks {missing}"):
        accuracy_drops(z, GEOMETRY)


VOCABULARY, DEPTH, WIDE, KV_HEADS, WIDTH, HEAD_DIM, WINDOW = 53, 3, 4, 2, 32, 8, 3
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": WIDE,
    "intermediate_size": 22,
}
LENGTHS = (9, 5, 2, 1)


GROUPED = {**SHAPE, "num_key_value_heads": KV_HEADS}
MODELS = {
    "bert": (BertModel, BertConfig(**SHAPE)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**GROUPED, head_dim=HEAD_DIM)),
    # Queries see the last three keys.
    "mistral": (MistralForCausalLM, MistralConfig(**GROUPED, sliding_window=WINDOW)),
    # Returns no attention weights unless it is asked to keep them all.
    "mpnet": (MPNetModel, MPNetConfig(**SHAPE)),
}


@pytest.fixture
def bert() -> PreTrainedModel:
    return build(*MODELS["bert"])


@pytest.fixture
def qwen2() -> PreTrainedModel:
    return build(*MODELS["qwen2"])


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


def test_heads_of_a_group_share_the_norm_of_keys_and_values(qwen2):
    norms = weight_norms(qwen2, find_heads(qwen2))
    attention = qwen2.model.layers[1].self_attn
    for head in range(WIDE):
        query, group = (slice(one * HEAD_DIM, (one + 1) * HEAD_DIM) for one in (head, head // 2))
        expected = attention.q_proj.weight[query].abs().mean() + sum(
            module.weight[group].abs().mean() for module in (attention.k_proj, attention.v_proj)
        )
        assert norms[1][head].item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_norm_of_a_fused_projection_is_that_of_its_parts():
    config = GPT2Config(vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=2, n_head=WIDE)
    model = build(GPT2LMHeadModel, config)
    weight = model.transformer.h[1].attn.c_attn.weight  # (inputs, queries then keys then values)
    parts = weight.view(WIDTH, 3, WIDE, HEAD_DIM).abs().mean((0, 3)).sum(0)
    torch.testing.assert_close(weight_norms(model, find_heads(model))[1], parts)


def reference(model: PreTrainedModel, *, causal: bool, most: int = 99) -> dict[str, Tensor]:
    """Means over queries with two visible keys or more, one row at a time without padding."""
    sums = {"raw": 0.0, "normalised": 0.0, "peak": 0.0}
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
                seen = min(keys, most)
                p = maps[:, :, query, keys - seen : keys]
                raw = -(p * p.log()).sum(-1)
                sums["raw"] = sums["raw"] + raw
                sums["normalised"] = sums["normalised"] + raw / math.log(seen)
                sums["peak"] = sums["peak"] + p.max(-1).values
    return {name: value / queries for name, value in sums.items()}


@pytest.mark.parametrize("width", [9, 12])
@pytest.mark.parametrize(
    ("name", "left"),
    # Not BERT on the left: its positions are absolute, and another place is another text.
    [
        *(("bert", False), ("qwen2", False), ("qwen2", True)),
        *(("mistral", False), ("mistral", True), ("mpnet", False)),
    ],
)
def test_entropy_and_peak_do_not_depend_on_padding(name, left, width):
    model = build(*MODELS[name])
    most = WINDOW if name == "mistral" else 99
    expected = reference(model, causal=name not in ("bert", "mpnet"), most=most)
    found = calibrate(model, find_heads(model), [texts(width, left=left)])
    for layer in range(DEPTH):
        for kind in ("raw", "normalised", "peak"):
            torch.testing.assert_close(found[kind][layer], expected[kind][layer])
        assert ((found["normalised"][layer] >= 0) & (found["normalised"][layer] <= 1)).all()


def test_activations_are_means_over_valid_tokens(bert):
    found = calibrate(bert, find_heads(bert), [texts(12)], activations=True)["activations"]
    seen = []
    query = bert.encoder.layer[2].attention.self
    for module in (query.query, query.key, query.value):
        module.register_forward_hook(lambda _, __, output: seen.append(output[0]))
    with torch.no_grad():
        for row, length in enumerate(LENGTHS):
            bert(input_ids=texts()["input_ids"][row : row + 1, :length])
    projected = [torch.cat(seen[part::3]).view(-1, WIDE, HEAD_DIM) for part in range(3)]
    expected = sum(part.abs().mean((0, 2)) for part in projected)
    torch.testing.assert_close(found[2], expected)


def test_a_pruned_model_is_scored_head_by_head(bert):
    geometry = find_heads(bert)
    norms = weight_norms(bert, geometry)
    smaller = remove_heads(bert, geometry, [Variant(1, 0), Variant(1, 2)])
    again = weight_norms(bert, smaller)
    torch.testing.assert_close(again[1], norms[1][[1, 3]])
    torch.testing.assert_close(again[2], norms[2])
    assert calibrate(bert, smaller, [texts()])["raw"][1].shape == (2,)


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
    found = mixed(NORM, ENTROPY, Importance(**settings))
    assert found[0].tolist() == pytest.approx(first) and found[1].tolist() == pytest.approx(second)


def test_texts_of_one_token_are_refused(bert):
    one = {name: value[3:, :1] for name, value in texts().items()}
    with pytest.raises(ModelError, match="no text to calibrate on has two tokens"):
        calibrate(bert, find_heads(bert), [one])


@pytest.mark.parametrize("name", ["bert", "qwen2"])
def test_one_layer_s_attention_is_held_at_a_time_and_no_logits(name, monkeypatch):
    model, held = build(*MODELS[name]), []
    # The search for readers runs the whole model, on six tokens.
    geometry = find_heads(model)
    readers = find_readers(model, geometry)
    monkeypatch.setattr(calibration_module, "find_readers", lambda *_: readers)

    def before(*_) -> None:
        assert not any(weights() is not None for weights in held)

    def after(_, __, output) -> None:
        held.append(weakref.ref(output[1]))

    for layer in readers.values():
        attention = model.get_submodule(next(iter(layer)).rpartition(".")[0])
        attention.register_forward_pre_hook(before)
        attention.register_forward_hook(after)
    if name == "qwen2":
        model.lm_head.register_forward_pre_hook(lambda *_: pytest.fail("logits are not needed"))
    calibrate(model, geometry, [texts(), texts(12)])
    assert len(held) == 2 * DEPTH and not any(weights() is not None for weights in held)


def test_texts_are_scored_short_ones_first_and_each_once(qwen2):
    words = [f"w{number}" for number in range(40)]
    tokenizer = word_tokenizer(words, 1)
    lines = [" ".join(words[start : start + start % 7 + 1]) for start in range(11)]
    batches = list(text_batches(qwen2, tokenizer, lines, 4, tokens=7))
    lengths = [batch["attention_mask"].sum(1).tolist() for batch in batches]
    # With two tokens at the ends; nine are cut to seven.
    assert lengths == [[3, 3, 4, 4], [5, 5, 6, 6], [7, 7, 7]]
    assert [batch["input_ids"].shape for batch in batches] == [(4, 4), (4, 6), (3, 7)]
    alone = [batch for line in lines for batch in text_batches(qwen2, tokenizer, [line], 1, 7)]
    found, expected = (
        calibrate(qwen2, find_heads(qwen2), each)["normalised"] for each in (batches, alone)
    )
    assert all(torch.allclose(found[layer], expected[layer], atol=1e-5) for layer in expected)
