"""Sizes against the closed form, the counter and known bytes; clocks that are ours."""

import copy
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.initialization import no_init_weights

from headroom.compression.arm_measurements import relative
from headroom.compression.footprint import (
    closed_form_flops,
    counted_flops,
    peak_bytes,
    size,
    weight_bytes,
)
from headroom.errors import ModelError
from headroom.models.geometry import find_heads
from headroom.models.learner import quantised
from headroom.models.load import word_tokenizer
from headroom.models.removal import remove_heads
from headroom.variants import Variant

VOCABULARY, WIDTH, LAYERS, HEADS, HEAD_DIM, INNER, TOKENS = 53, 60, 3, 5, 12, 28, 7
BERT = BertConfig(
    vocab_size=VOCABULARY,
    hidden_size=WIDTH,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    intermediate_size=INNER,
    num_labels=4,
)


def bert() -> BertModel:
    return BertModel(BERT, add_pooling_layer=False).eval()


def qwen2() -> Qwen2ForCausalLM:
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=10,
        intermediate_size=INNER,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config).eval()


def gpt2() -> GPT2LMHeadModel:
    config = GPT2Config(vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS)
    return GPT2LMHeadModel(config).eval()


@pytest.mark.parametrize("build", [bert, qwen2, gpt2])
def test_the_closed_form_equals_the_counter(build):
    model = build()
    geometry = find_heads(model)
    assert closed_form_flops(model, geometry, TOKENS) == counted_flops(model, TOKENS)
    group = geometry.layer(1).query_heads // geometry.layer(1).kv_heads
    smaller = remove_heads(model, geometry, [Variant(1, head) for head in range(group)])
    assert closed_form_flops(model, smaller, TOKENS) == counted_flops(model, TOKENS)


def test_the_layers_of_a_model_are_counted_without_embeddings_and_head():
    model = BertForSequenceClassification(BERT).eval()
    found = size(model, find_heads(model), TOKENS)
    layer = 4 * (WIDTH * WIDTH + WIDTH) + 2 * WIDTH * INNER + INNER + WIDTH + 4 * WIDTH
    assert found.layer_parameters == LAYERS * layer
    assert found.parameters == model.num_parameters()
    assert found.weight_bytes == 4 * found.parameters


def test_shared_weights_count_once():
    model = qwen2()
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert weight_bytes(model) == 4 * model.num_parameters()
    assert weight_bytes(model.bfloat16()) == 2 * model.num_parameters()


def test_quantised_weights_are_a_quarter():
    model = bert()
    linear = [m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear)]
    saved = weight_bytes(model) - weight_bytes(quantised(model))
    assert saved == 3 * sum(linear) - 12 * len(linear)  # a scale and a zero point each
    assert isinstance(model.encoder.layer[0].attention.self.query, nn.Linear)


def test_only_what_can_be_quantised_is():
    with pytest.raises(ModelError, match=r"float32 model on the CPU, not torch.bfloat16 on cpu"):
        quantised(bert().bfloat16())


def test_two_calls_relative_to_each_other_are_a_paired_t_test_of_their_logarithms():
    seconds = np.array([[4.0, 3.0], [5.0, 4.5], [8.0, 6.0], [4.4, 3.1]])
    interval = ttest_rel(*np.log(seconds[:, ::-1]).T).confidence_interval()
    found = relative(seconds, base=0)
    assert found[0].tolist() == [1, 1, 1]
    assert np.log(found[1, 1:]) == pytest.approx(list(interval))
    assert found[1, 0] == pytest.approx(np.sqrt(found[1, 1] * found[1, 2]))


def test_what_was_not_timed_has_no_ratio_and_nothing_has_one_without_the_unpruned_model():
    seconds = np.array([[4.0, np.nan, 3.0], [5.0, np.nan, 4.5]])
    assert np.isnan(relative(seconds, base=0)).tolist() == [[False] * 3, [True] * 3, [False] * 3]
    assert np.isnan(relative(seconds, base=None)).all()
    assert relative(seconds[:, :1], base=0).tolist() == [[1, 1, 1]]


def test_a_fresh_process_tells_its_peak(tmp_path: Path):
    """At least the weights; neither the peak of the model before it nor what the libraries take."""
    config = copy.deepcopy(BERT)
    least = []
    for inner, name in ((20_000, "wide"), (150_000, "widest"), (10_000, "narrow")):
        config.update({"intermediate_size": inner})  # embeddings that no token names stay on disk
        with no_init_weights():
            model = BertModel(config, add_pooling_layer=False)
        model.save_pretrained(tmp_path / name)
        word_tokenizer(["some words"], 1).save_pretrained(tmp_path / name)
        least.append(weight_bytes(model))
    folders = [tmp_path / name for name in ("wide", "widest", "narrow")]
    peaks = peak_bytes(folders, 2, TOKENS)
    assert all(weights < peak for weights, peak in zip(least, peaks, strict=True))
    # How much the libraries' buffers add hangs on the machine's threads; the weights are far more.
    assert max(peaks[0], peaks[2]) < 0.75 * least[1], "no model is told the peak of one before it"


def test_a_model_without_a_peak_is_named(tmp_path: Path):
    with pytest.raises(ModelError, match=r"of \S*nowhere cannot be measured \("):
        peak_bytes([tmp_path / "nowhere"], 2, TOKENS)
