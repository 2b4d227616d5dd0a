"""Sizes against the closed form, the counter and known bytes; clocks that are ours."""

import numpy as np
import pytest
import small
import tiny_models
import torch
from scipy.stats import ttest_rel
from tiny_models import Architecture, encoder, wide
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForSequenceClassification

from example_config import config
from headsweep.config import Study
from headsweep.config.compression import Compression, Importance
from headsweep.experiments.athena.encoders import word_tokenizer
from headsweep.experiments.compression import arm_measurements, savings
from headsweep.experiments.compression.arm_measurements import relative
from headsweep.experiments.compression.calibration import calibrate
from headsweep.experiments.compression.decoder import Question, TokenizedQuestion
from headsweep.experiments.compression.distillation import distilled, frozen
from headsweep.experiments.reasoner import Settings
from headsweep.models.checkpoints import save_pruned
from headsweep.models.geometry import find_heads
from headsweep.models.learner import quantised
from headsweep.models.load import load_checkpoint
from headsweep.models.model_card import Pruning
from headsweep.models.removal import remove_heads
from headsweep.variants import Variant
from headsweep.workflow.memory import scoring_memory, training_memory

TOKENS, WIDTH, INNER = 7, 48, 56
QWEN2 = wide("Qwen2", head_dim=8, tie_word_embeddings=True)


def bert():
    model = tiny_models.build(encoder("Bert"))
    model.pooler = None
    return model


def counted_flops(model):
    """Count the operations of the products in a pass, attention as plain ones: the counter knows
    fused attention on some devices only."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        model(**savings.dummy_texts(model, 1, TOKENS))
    return counter.get_total_flops()


@pytest.mark.parametrize("architecture", [encoder("Bert"), QWEN2, Architecture("GPT2")], ids=str)
def test_the_closed_form_equals_the_counter_and_a_cache_holds_what_is_said(architecture):
    model = bert() if architecture.name == "Bert" else tiny_models.build(architecture)
    model = model.bfloat16() if architecture is QWEN2 else model
    geometry = find_heads(model)
    group = geometry.layer(1).query_heads // geometry.layer(1).kv_heads
    for gone in ([], [Variant(1, head) for head in range(group)]):
        geometry = remove_heads(model, geometry, gone)
        found = savings.size(model, geometry, TOKENS)
        assert found.flops == counted_flops(model)
        if geometry.keeps_cache:
            ids = torch.zeros(1, TOKENS, dtype=torch.long)
            layers = model(ids, use_cache=True).past_key_values.layers
            held = sum(each.nbytes for layer in layers for each in (layer.keys, layer.values))
            assert savings.cache_bytes(model, geometry) == held / TOKENS


def test_sizes_leave_embeddings_and_head_out_of_layers_and_count_shared_weights_once():
    model = tiny_models.build(Architecture("Bert", auto=AutoModelForSequenceClassification))
    found = savings.size(model, find_heads(model), TOKENS)
    layer = 4 * (WIDTH * WIDTH + WIDTH) + 2 * WIDTH * INNER + INNER + WIDTH + 4 * WIDTH
    assert found.layer_parameters == 4 * layer
    assert found.parameters == model.num_parameters()
    assert found.weight_bytes == 4 * found.parameters
    model = tiny_models.build(QWEN2)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert savings.weight_bytes(model) == 4 * model.num_parameters()
    assert savings.weight_bytes(model.bfloat16()) == 2 * model.num_parameters()


def test_quantised_weights_are_a_quarter_and_those_in_half_precision_go_by_float32():
    model, half = bert(), bert().bfloat16()
    linear = [m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear)]
    saved = savings.weight_bytes(model) - savings.weight_bytes(quantised(model))
    assert saved == 3 * sum(linear) - 12 * len(linear)  # a scale and a zero point each
    assert isinstance(model.encoder.layer[0].attention.self.query, nn.Linear)
    found = quantised(half)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
    ids = torch.arange(12).view(2, 6)
    assert torch.equal(found(ids)[0], quantised(half.float())(ids)[0])


def test_two_calls_relative_to_each_other_are_a_paired_t_test_of_their_logarithms():
    seconds = np.array([[4.0, 3.0], [5.0, 4.5], [8.0, 6.0], [4.4, 3.1]])
    interval = ttest_rel(*np.log(seconds[:, ::-1]).T).confidence_interval()
    found = relative(seconds, base=0)
    assert found[0].tolist() == [1, 1, 1]
    assert np.log(found[1, 1:]) == pytest.approx(list(interval))
    assert found[1, 0] == pytest.approx(np.sqrt(found[1, 1] * found[1, 2]))

    missing = np.insert(seconds, 1, np.nan, axis=1)  # what was not timed has no ratio
    assert np.isnan(relative(missing, base=0)).tolist() == [[False] * 3, [True] * 3, [False] * 3]
    assert np.isnan(relative(seconds, base=None)).all()
    assert relative(seconds[:, :1], base=0).tolist() == [[1, 1, 1]]


@pytest.mark.parametrize(
    ("seconds", "noise", "fewest", "most"),
    [
        (0.5, 0.001, 4, 4),  # known at once
        (0.05, 0.08, 5, 60),  # known in the end
        (0.5, 1.0, 4, 15),  # never: time is up
        (40.0, 1.0, 2, 2),  # one more turn would take too long
    ],
)
def test_timing_a_test_ends_once_ratios_are_known_or_by_the_clock(
    seconds, noise, fewest, most, monkeypatch
):
    """Three learners answer it in turn."""
    draw = np.random.default_rng(0)
    answered, times = [], []

    def seconds_of(call):
        call()
        times.append(seconds * np.exp(draw.normal(0, noise)))
        return times[-1]

    monkeypatch.setattr(arm_measurements, "seconds_of", seconds_of)
    names = ["baseline", "full", "causal"]
    measured = [arm_measurements._Measured(name, False, name, name, None) for name in names]
    found = arm_measurements._answering(measured, answered.append)
    turns = np.reshape(times, (-1, 3))
    assert answered == names * len(turns) and fewest <= len(turns) <= most
    assert turns[2:-1].sum() <= 10
    assert found[:, 0] == pytest.approx(np.exp(np.log(turns).mean(axis=0)))
    assert found[:, 1:] == pytest.approx(relative(turns, 0))

    def wide(turns):
        return (relative(turns, 0)[1:, 2] > 1.05 * relative(turns, 0)[1:, 0]).any()

    assert wide(turns) == (noise == 1.0)
    assert len(turns) <= 4 or wide(turns[:-1])


def test_arms_are_timed_on_one_thread(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    with arm_measurements._one_thread():
        assert asked == [1]
    assert asked == [1, 4]


def test_the_most_that_is_held_at_once_is_counted():
    def call():
        held = torch.empty(1000)
        torch.empty(5000)  # gone at once
        return held + torch.empty(2000)[:1000]  # three at once

    torch.empty(9000)
    assert savings.most_allocated(call) == pytest.approx(4 * 6000, abs=1000)
    assert savings.most_allocated(lambda: None) == 0


def test_a_peak_is_the_weights_and_a_pass_however_they_were_loaded(tmp_path):
    """A layer's widest states are alive together: of the feed-forward, its input and output."""
    model = tiny_models.build(encoder("Bert", intermediate_size=20_000))
    geometry = remove_heads(model, find_heads(model), [Variant(1, 0), Variant(2, 3)])
    pruning = Pruning("some/model", None, [], "none")
    word_tokenizer(["some words"], 1).save_pretrained(tmp_path)
    save_pruned(model, geometry, tmp_path / "free", "free", pruning, tmp_path)
    peaks = [
        savings.peak_bytes(each, batch, TOKENS) - savings.weight_bytes(each)
        for each in (model, load_checkpoint(str(tmp_path / "free")))
        for batch in (4, 8)
    ]
    assert peaks[:2] == peaks[2:]
    wide = 4 * 20_000 * TOKENS  # bytes of a text in the feed-forward
    for batch, peak in zip((4, 8), peaks[:2], strict=True):
        assert 2 * batch * wide <= peak < 2.2 * batch * wide


def test_the_peak_of_scoring_is_what_the_plan_says():
    """Within a quarter; all layers' attention at once would be four times one layer's.

    Logits are not computed but of the few tokens that show which rows a head reads.
    """
    texts, tokens, heads = 3, 640, 4
    shape = {"vocab_size": 900, "hidden_size": 512, "intermediate_size": 750, "head_dim": 128}
    shape |= {"num_hidden_layers": 4, "num_attention_heads": heads, "max_position_embeddings": 700}
    model = tiny_models.build(wide("Llama", **shape))
    geometry, ids = find_heads(model), torch.randint(900, (texts, tokens))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    model.lm_head.register_forward_pre_hook(lambda _, seen: 1 / 0 if seen[0].shape[1] > 8 else None)
    peak = savings.most_allocated(lambda: calibrate(model, geometry, [batch]))
    own = config(
        models={"big": {"heads": heads, "billions": model.num_parameters() / 1e9}},
        sweeps={"table": {"heads": [1]}},
        decodings={"greedy": {"max_new_tokens": tokens - 120}},  # a prompt is taken for 120
    )
    method = Compression(importance=Importance(batch_size=texts))
    study = Study(model="big", train="train", test="test", method=method)
    planned = 1e9 * scoring_memory(own, study, method)
    assert peak + savings.weight_bytes(model) == pytest.approx(planned, rel=0.25)


@pytest.mark.parametrize(
    ("tokens", "prompt", "rows", "shape", "precision"),
    [
        (1100, 120, 1, {"layers": 2, "intermediate": 300}, "bf16"),  # attention is most of it
        (160, 120, 6, {"layers": 3, "intermediate": 900}, "no"),  # states are
    ],
)
def test_training_keeps_what_the_plan_says(tokens, prompt, rows, shape, precision):
    """Within half, by the tensors that the backward pass is given; the teacher's maps are gone."""
    heads = {"hidden": 256, "query_heads": 2, "kv_heads": 1, "head_dim": 128}
    decoder = small.decoder(Settings(**shape, **heads, vocabulary=300))
    weights = {each.untyped_storage().data_ptr() for each in decoder.network.parameters()}
    saved = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = tensor.nbytes
        return tensor

    ids = torch.arange(tokens).remainder(90).add(5).numpy()
    question = Question("id", "all", "text", "gold")
    batch = decoder.collate([TokenizedQuestion(question, "id", ids, prompt)] * rows)
    method = Compression(training={"batch_size": rows, "precision": precision})
    teach = distilled(frozen(decoder), decoder.loaded.geometry, method.distillation)
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"),
    ):
        losses = teach(decoder, batch)
    assert len(losses) == 3
    size = decoder.network.num_parameters() / 1e9
    model = {"layers": shape["layers"], "heads": 2, "kv_heads": 1, "billions": size}
    own = config(
        models={"big": model},
        sweeps={"table": {"layers": [0], "heads": [1]}},
        decodings={"greedy": {"max_new_tokens": tokens - 120}},  # a prompt is taken for 120
    )
    study = Study(model="big", train="train", test="test", method=method)
    planned = training_memory(own, study, method)
    kept = sum(saved.values()) / 1e9
    assert 1 / 1.5 < kept / (planned.maps + planned.states) < 1.5
    assert planned.weights + planned.teacher == pytest.approx(
        size * (20 + 2 * (precision == "bf16"))
    )
