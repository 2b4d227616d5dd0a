"""Sizes against the closed form, the counter and known bytes; clocks that are ours."""

import itertools

import numpy as np
import pytest
import tiny_models
import torch
from scipy.stats import ttest_rel
from tiny_models import Architecture, encoder, wide
from torch import nn
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForSequenceClassification, BertModel
from transformers.initialization import no_init_weights

from example_config import config
from headsweep.compression import footprint
from headsweep.compression.arm_measurements import relative
from headsweep.compression.calibration import calibrate
from headsweep.config import Study
from headsweep.config.compression import Compression, Importance
from headsweep.errors import ModelError
from headsweep.models.geometry import find_heads
from headsweep.models.learner import quantised
from headsweep.models.load import word_tokenizer
from headsweep.models.removal import remove_heads
from headsweep.planning.cost import scoring_memory
from headsweep.variants import Variant

TOKENS, WIDTH, INNER = 7, 48, 56
QWEN2 = wide("Qwen2", head_dim=8, tie_word_embeddings=True)


def bert():
    model = tiny_models.build(encoder("Bert"))
    model.pooler = None
    return model


@pytest.mark.parametrize("architecture", [encoder("Bert"), QWEN2, Architecture("GPT2")], ids=str)
def test_the_closed_form_equals_the_counter_and_a_cache_holds_what_is_said(architecture):
    model = bert() if architecture.name == "Bert" else tiny_models.build(architecture)
    model = model.bfloat16() if architecture is QWEN2 else model
    geometry = find_heads(model)
    group = geometry.layer(1).query_heads // geometry.layer(1).kv_heads
    for gone in ([], [Variant(1, head) for head in range(group)]):
        geometry = remove_heads(model, geometry, gone)
        found = footprint.size(model, geometry, TOKENS)
        assert found.flops == found.flops_counted
        if geometry.keeps_cache:
            ids = torch.zeros(1, TOKENS, dtype=torch.long)
            layers = model(ids, use_cache=True).past_key_values.layers
            held = sum(each.nbytes for layer in layers for each in (layer.keys, layer.values))
            assert footprint.cache_bytes(model, geometry) == held / TOKENS


def test_sizes_leave_embeddings_and_head_out_of_layers_and_count_shared_weights_once():
    model = tiny_models.build(Architecture("Bert", auto=AutoModelForSequenceClassification))
    found = footprint.size(model, find_heads(model), TOKENS)
    layer = 4 * (WIDTH * WIDTH + WIDTH) + 2 * WIDTH * INNER + INNER + WIDTH + 4 * WIDTH
    assert found.layer_parameters == 4 * layer
    assert found.parameters == model.num_parameters()
    assert found.weight_bytes == 4 * found.parameters
    model = tiny_models.build(QWEN2)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert footprint.weight_bytes(model) == 4 * model.num_parameters()
    assert footprint.weight_bytes(model.bfloat16()) == 2 * model.num_parameters()


def test_quantised_weights_are_a_quarter_and_those_in_half_precision_go_by_float32():
    model, half = bert(), bert().bfloat16()
    linear = [m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear)]
    saved = footprint.weight_bytes(model) - footprint.weight_bytes(quantised(model))
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


def test_a_fresh_process_tells_its_peak(tmp_path):
    """At least the weights, and not what the libraries take."""
    least, names = [], ("wide", "widest")
    for inner, name in zip((20_000, 150_000), names, strict=True):
        shape = tiny_models.build_config(encoder("Bert", intermediate_size=inner))
        with no_init_weights():
            model = BertModel(shape, add_pooling_layer=False)
        model.save_pretrained(tmp_path / name)
        word_tokenizer(["some words"], 1).save_pretrained(tmp_path / name)
        least.append(footprint.weight_bytes(model))
    peaks = [footprint.peak_bytes(tmp_path / name, 2, TOKENS) for name in names]
    assert all(weights < peak for weights, peak in zip(least, peaks, strict=True))
    # How much the libraries' buffers add hangs on the machine's threads; the weights are far more.
    assert peaks[0] < 0.75 * least[1]
    with pytest.raises(ModelError, match=r"of \S*nowhere cannot be measured \("):
        footprint.peak_bytes(tmp_path / "nowhere", 2, TOKENS)


def test_the_peak_of_scoring_is_what_the_plan_says():
    """Within a quarter; all layers' attention at once would be six times one layer's.

    The tensors are counted, since resident memory hangs on what the allocator keeps. Logits are not
    computed but of the few tokens that show which rows a head reads.
    """
    texts, tokens, heads = 6, 640, 8
    shape = {"vocab_size": 900, "hidden_size": 1024, "intermediate_size": 1500, "head_dim": 128}
    shape |= {"num_hidden_layers": 6, "num_attention_heads": heads, "max_position_embeddings": 700}
    model = tiny_models.build(wide("Llama", **shape))
    geometry, ids = find_heads(model), torch.randint(900, (texts, tokens))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    model.lm_head.register_forward_pre_hook(lambda _, seen: 1 / 0 if seen[0].shape[1] > 8 else None)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        calibrate(model, geometry, [batch])
    events = profiled.profiler.kineto_results.events()
    changes = [each for each in events if each.name() == "[memory]"]
    changes.sort(key=lambda each: each.start_ns())
    peak = max(itertools.accumulate(each.nbytes() for each in changes))
    own = config(
        models={"big": {"heads": heads, "billions": model.num_parameters() / 1e9}},
        sweeps={"table": {"heads": [1]}},
        decodings={"greedy": {"max_new_tokens": tokens - 120}},  # a prompt is taken for 120
    )
    method = Compression(importance=Importance(batch_size=texts))
    study = Study(model="big", train="train", test="test", method=method)
    planned = 1e9 * scoring_memory(own, study, method)
    assert peak + footprint.weight_bytes(model) == pytest.approx(planned, rel=0.25)
