"""The decoder: whom it serves, and that it and its linear layers compute what they should."""

import math
import random
from functools import partial

import pytest
import tiny_models
import torch
from test_engine import NEW_TOKENS, answer_all, assert_exact, loaded_model, requests
from torch.nn.functional import gelu, scaled_dot_product_attention, silu

from headsweep.config import Decoding
from headsweep.engine import attention, weights
from headsweep.engine.attention import Slots
from headsweep.engine.decoder import Decoder, masked
from headsweep.engine.engine import Engine
from headsweep.engine.segments import Segments
from headsweep.engine.weights import Linear, Weights, WideLinear, linear
from headsweep.models.geometry import find_heads
from headsweep.models.masks import pruned
from headsweep.models.removal import remove_heads
from headsweep.variants import BASE, Variant

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "original_max_position_embeddings": 32,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
SERVED = {
    "Qwen2": tiny_models.wide("Qwen2", head_dim=8),
    "Qwen3": tiny_models.wide("Qwen3"),
    "Gemma": tiny_models.wide("Gemma"),
    "Mistral, window 5": tiny_models.wide("Mistral", sliding_window=5),
    "Llama, biased attention": tiny_models.wide("Llama", attention_bias=True),
    "Llama, biased MLP, another activation": tiny_models.wide(
        "Llama", mlp_bias=True, hidden_act="gelu"
    ),
    "Llama 3 frequencies": tiny_models.wide("Llama", rope_parameters=LLAMA3),
}
ROWS = [BASE, Variant(0, 5), Variant(2, 1), Variant(2, 3, kind="noise"), Variant(3, 0)]


def biased(architecture):
    model = tiny_models.build(architecture)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter += 0.3
    return model


def flash(queries, keys, values, offsets, slots, most, capacity, *rest, seqused_k, **window):
    """What ATen's operator computes, row by row: causal against the end of `seqused_k`."""
    assert rest == (0.0, True, False)  # no dropout, causal, nothing for debugging
    assert all(bounds.dtype == torch.int32 for bounds in (offsets, slots, seqused_k))
    assert most == int(offsets.diff().max()) and len(slots) == len(offsets)
    assert all(begin % capacity == 0 for begin in slots.tolist()) and int(slots.diff().min()) > 0
    outputs = []
    for row, length in enumerate(seqused_k.tolist()):
        own = queries[offsets[row] : offsets[row + 1]].transpose(0, 1)
        place = slice(int(slots[row]), int(slots[row]) + length)
        seen = torch.ones(own.shape[1], length, dtype=torch.bool).tril(length - own.shape[1])
        if window["window_size_left"] is not None:
            assert window["window_size_right"] == 0
            seen = seen.triu(length - own.shape[1] - window["window_size_left"])
        read = (states[place].transpose(0, 1) for states in (keys, values))
        found = scaled_dot_product_attention(own, *read, attn_mask=seen, enable_gqa=True)
        outputs.append(found.transpose(0, 1))
    return (torch.cat(outputs),)


@pytest.mark.parametrize(
    ("kind", "places"),
    [("flash", range(2, 7)), ("flash", [0, 2, 3, 6, 8]), ("dense", [6, 0, 3, 2, 8])],
    ids=str,
)
@pytest.mark.parametrize("name", SERVED)
def test_logits_of_ragged_rows_are_those_of_the_models_own_modules(name, places, kind, monkeypatch):
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", flash)
    loaded = loaded_model(biased(SERVED[name]))
    assert Decoder.of(loaded) is not None
    decoder = Decoder(loaded, getattr(attention, kind))
    slots = Slots(decoder.weights)
    rng = random.Random(name)
    texts = [rng.choices(range(3, 97), k=length) for length in (17, 3, 21, 9, 9)]
    change = partial(masked, decoder.masks(ROWS))
    done = [0] * len(texts)
    slots.reserve(9, 4)
    with torch.inference_mode():
        for counts in ([11, 1, 5, 7, 7], [1, 1, 1, 1, 1], [5, 1, 15, 1, 1]):
            slots.reserve(9, max(done) + max(counts))
            keep = [min(n, 4) for n in counts]
            segments = Segments(places, done, counts, loaded.device, keep)
            tokens = []
            for row, text in enumerate(texts):
                tokens += text[done[row] : done[row] + counts[row]]
            hidden = decoder.forward(torch.tensor(tokens), segments, slots, change)
            done = [d + n for d, n in zip(done, counts, strict=True)]
            logits = decoder.logits(hidden).split(keep)
            for row, (variant, text) in enumerate(zip(ROWS, texts, strict=True)):
                with pruned(loaded.model, loaded.geometry, variant):
                    own = loaded.model(torch.tensor([text[: done[row]]])).logits[0, -keep[row] :]
                assert torch.allclose(logits[row], own, atol=1e-4), (row, counts)


def test_unused_slots_and_columns_change_nothing():
    decoder = Decoder(loaded_model(tiny_models.build(SERVED["Qwen2"])))
    found = []
    for poison in (0.0, 1e30):
        slots = Slots(decoder.weights)
        slots.reserve(6, 40)
        slots._data += poison
        with torch.inference_mode():
            for starts, counts in (([0, 0, 0], [5, 9, 1]), ([5, 9, 1], [1, 1, 1])):
                segments = Segments(range(1, 4), starts, counts, torch.device("cpu"), counts)
                hidden = decoder.forward(torch.arange(sum(counts)), segments, slots)
        found.append(hidden)
    assert torch.equal(*found)


def test_a_model_that_computes_something_else_has_no_decoder():
    model = tiny_models.build(SERVED["Qwen2"])
    model.model.layers[1].register_forward_hook(lambda _, __, output: output * 1.1)
    unknown = tiny_models.build(tiny_models.wide("Llama", hidden_act="relu"))
    assert [Decoder.of(loaded_model(each)) for each in (model, unknown)] == [None, None]


CUT = [Variant(0, 3), Variant(0, 4), Variant(0, 5), Variant(2, 1), Variant(2, 5)]
"""A group of layer 0, one query of each group of layer 2."""


@pytest.mark.parametrize("name", ["Qwen3", "Phi3"])
def test_answers_of_a_cut_model_are_those_of_generate(name):
    model = tiny_models.build(tiny_models.named(name))
    remove_heads(model, find_heads(model), CUT)
    loaded = loaded_model(model)
    assert (Decoder.of(loaded) is not None) == (name != "Phi3")
    wanted = requests([BASE, Variant(0, 2), Variant(2, 3), Variant(3, 5)])
    assert_exact(loaded, answer_all(loaded, wanted, batch_size=4))


LIBRARIES = {
    "MKL": {"_has_onednn": lambda *_: False},
    "oneDNN": {"_is_wide": lambda: True, "_SMALL": 0},
    "oneDNN, but for small products": {"_is_wide": lambda: True, "_SMALL": 40 * 24 * 2},
    "oneDNN for few rows": {"_is_wide": lambda: False, "_SMALL": 0, "_LARGE": 0, "_FEW": 2},
}
"""What of `weights` decides which library takes a product: of 1 or 19 rows, below."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 19])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("emulates", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_products_are_those_of_double_precision(
    library, packed, emulates, rows, dtype, monkeypatch
):
    emulated = emulates and dtype != torch.float32
    monkeypatch.setattr(weights, "_computes_in_float32", lambda *_: emulated)
    for name, value in LIBRARIES[library].items():
        monkeypatch.setattr(weights, name, value)
    torch.manual_seed(rows)
    sizes = ((rows, 1, 24), (40, 24), (40,), (rows, 1, 40))
    states, weight, bias, other = (torch.randn(*size).to(dtype) for size in sizes)
    kept = other.clone()
    plain = states.double() @ weight.double().T
    with torch.inference_mode():
        layer, biased = linear(weight, packed=packed), linear(weight, bias, packed=packed)
        assert isinstance(layer, WideLinear) == emulated
        pairs = [
            (layer(states), plain),
            (biased(states), plain + bias),
            (layer(states, "silu"), silu(plain)),
            (layer(states, "gelu"), gelu(plain)),
            (layer(states, "gelu_pytorch_tanh"), gelu(plain, approximate="tanh")),
            (layer.then("mul", other, states), plain * other),
            (layer.then("add", other, states), plain + other),
            (biased.then("add", other, states), plain + bias + other),
        ]
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    for found, expected in pairs:
        assert found.dtype == dtype
        assert torch.allclose(found.double(), expected, atol=tolerance, rtol=tolerance / 10)
    assert torch.equal(other, kept)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("memory", [1 << 40, 1 << 10])
def test_where_half_precision_is_emulated_a_model_answers_as_elsewhere(dtype, memory, monkeypatch):
    monkeypatch.setattr(weights, "_computes_in_float32", lambda kind, _: kind == dtype)
    monkeypatch.setattr(weights, "host_memory", lambda: memory)
    loaded = loaded_model(tiny_models.build(tiny_models.named("Qwen2")).to(dtype))
    output = Weights(loaded).output
    assert isinstance(output, WideLinear)
    assert (output._kept is None) == (memory < 1 << 20)
    engine = Engine(loaded, Decoding(max_new_tokens=NEW_TOKENS), 7)
    wanted = requests([BASE, Variant(0, 2), Variant(2, 3)])
    assert {answer.request for answer in engine.run(wanted)} == set(wanted)
    assert engine.facts["path"] == "dense"  # it lies within the bound of the model's own modules
    assert engine.facts["check"]["worst"] <= engine.facts["check"]["bound"]


@pytest.mark.parametrize("memory", [1 << 40, 1 << 10])
def test_weights_are_copied_where_memory_allows(memory, monkeypatch):
    monkeypatch.setattr(weights, "host_memory", lambda: memory)
    monkeypatch.setattr(weights, "_is_wide", lambda: True)
    output = Weights(loaded_model(tiny_models.build(tiny_models.named("Qwen2")))).output
    available = weights._has_onednn(torch.float32, "cpu")
    assert (output._read is not output._weight) == (memory > 1 << 20 and available)


@pytest.mark.parametrize("slower", [True, False])
def test_half_precision_is_computed_in_float32_where_it_has_no_products_or_slow_ones(
    slower, monkeypatch
):
    operators = torch.ops.mkldnn
    monkeypatch.setattr(operators, "_is_mkldnn_bf16_supported", lambda: False)
    monkeypatch.setattr(operators, "_is_mkldnn_fp16_supported", lambda: True)
    monkeypatch.setattr(weights, "_is_faster_in_float32", lambda _: slower)
    in_float32 = weights._computes_in_float32.__wrapped__
    available = torch.backends.mkldnn.is_available()
    assert in_float32(torch.bfloat16, "cpu") == available
    assert in_float32(torch.float16, "cpu") == (available and slower)
    assert not in_float32(torch.float32, "cpu")
    assert not in_float32(torch.bfloat16, "cuda")


@pytest.mark.parametrize(("own", "wide", "faster"), [(5, 3, True), (3, 5, False), (50, 49, False)])
def test_the_way_of_products_is_that_whose_fastest_is_clearly_faster(
    own, wide, faster, monkeypatch
):
    now = [0.0]

    def taking(seconds):
        def call(self, states):
            now[0] += seconds + (now[0] == 0) * 9  # the first is slow, whichever it is
            return states

        return call

    monkeypatch.setattr(weights.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(Linear, "__call__", taking(own))
    monkeypatch.setattr(WideLinear, "__call__", taking(wide))
    assert weights._is_faster_in_float32(torch.bfloat16) == faster


@pytest.mark.parametrize(
    ("capability", "large", "most"),
    [("AVX512", False, math.inf), ("AVX2", False, 0), ("AVX2", True, 6)],
)
def test_without_the_widest_vectors_onednn_takes_few_rows_of_large_weights(
    capability, large, most, monkeypatch
):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(weights, "_LARGE", 41 if large else 43)
    monkeypatch.setattr(weights, "_FEW", 6)
    available = torch.backends.mkldnn.is_available()
    weight = torch.ones(6, 7)
    found = weights._most_rows_of_onednn(weight, packed=True)
    assert found == (most if available else 0)
    changing = weights._most_rows_of_onednn(weight, packed=False)
    assert changing == (math.inf if available and capability == "AVX512" else 0)


def test_of_emulated_weights_one_copy_is_kept(monkeypatch):
    monkeypatch.setattr(weights, "_SMALL", 50)
    monkeypatch.setattr(weights, "_LARGE", 50)
    monkeypatch.setattr(weights, "_is_wide", lambda: False)
    for outputs, kept in ((7, True), (8, not weights._has_onednn(torch.float32, "cpu"))):
        layer = WideLinear(torch.ones(outputs, 7, dtype=torch.bfloat16))
        assert (layer._kept._weight is not None) == kept
        plain = Linear(torch.ones(outputs, 7))
        assert plain._weight is not None


@pytest.mark.parametrize(("places", "served"), [(1, True), (24, False)])
def test_a_model_is_served_where_one_place_alone_is_off(places, served):
    """In half precision the model's own modules may lose one place of a text; not half of them."""
    loaded = loaded_model(tiny_models.build(tiny_models.named("Qwen2")).bfloat16())

    def off(module, inputs, output):
        output.logits[0, :places] += output.logits.float().square().mean().sqrt() / 2

    loaded.model.register_forward_hook(off)
    assert (Decoder.of(loaded) is not None) == served
