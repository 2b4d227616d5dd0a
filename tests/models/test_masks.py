"""Heads are found in every architecture, and refused where there are none.

Masked heads equal changed weights, row by row; noise placebos equal a hook of their own,
and are as long as their heads behind the output projection.
"""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import tiny_models
import torch
from accelerate import cpu_offload
from architectures import PAGE, TESTED, cells
from test_removal import REFUSED as NOT_CUT
from tiny_models import (
    ALL,
    DECODERS,
    ENCODERS,
    KV_HEADS,
    QUERY_HEADS,
    Architecture,
    named,
    outputs,
)
from transformers import AutoModel, DynamicCache
from transformers.pytorch_utils import Conv1D

import headsweep
from headsweep.engine.weights import serves
from headsweep.errors import ModelError
from headsweep.models import gguf_export, masks
from headsweep.models.geometry import HeadGeometry, find_heads
from headsweep.models.masks import edited_weights, pruned, variant_masks
from headsweep.variants import BASE, Variant, noise_direction


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


class Second(torch.nn.Module):
    """Runs a module that is the second of a list."""

    def __init__(self, module):
        super().__init__()
        self.parts = torch.nn.ModuleList([torch.nn.Identity(), module])

    def forward(self, *args, **options):
        return self.parts[1](*args, **options)


def test_a_layer_is_found_whole_below_another_number():
    model = tiny_models.build(DECODERS[0])
    model.model = Second(model.model)
    blocks = [layer.block for layer in find_heads(model).layers]
    assert blocks == [f"model.parts.1.layers.{index}" for index in range(tiny_models.LAYERS)]


COMPRESSED = {  # keys and values that several heads share in compressed form; no experts
    "num_key_value_heads": QUERY_HEADS,
    "q_lora_rank": 20,
    "kv_lora_rank": 14,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 10,
    "v_head_dim": 12,
    "first_k_dense_replace": tiny_models.LAYERS,
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


def rows(architecture):
    """One variant a row: base among heads first and last, layers first and last."""
    first, last = architecture.layers[0], architecture.layers[-1]
    return [
        Variant(first, 5),
        Variant(last, 0),
        Variant(last, 2, kind="scaled", scale=250),
        BASE,
        Variant(first, kind="skip", scale=1),
        Variant(first, 4, kind="noise"),
        Variant(last, 3, kind="noise"),
    ]


@pytest.fixture
def qwen2():
    model = tiny_models.build(DECODERS[0])
    return model, find_heads(model)


@contextmanager
def changed(model, geometry, variant):
    """Change a model as a variant does: a block left out, noise, or a head's weights scaled."""
    if variant.kind == "noise":
        with tiny_models.noisy(model, geometry, variant):
            yield
    elif variant.kind == "skip":
        block = model.get_submodule(geometry.layer(variant.layer).block)
        handle = block.register_forward_hook(input_as_output, with_kwargs=True)
        yield
        handle.remove()
    elif variant != BASE:
        projection = geometry.output_projection(model, variant.layer)
        weight = projection.weight.data
        kept, inputs_first = weight.clone(), weight if isinstance(projection, Conv1D) else weight.T
        inputs_first.unflatten(0, (QUERY_HEADS, -1))[variant.head] *= (variant.scale or 0) / 100
        yield
        weight.copy_(kept)
    else:
        yield


def input_as_output(_, inputs, named, output):
    before = inputs[0] if inputs else named["hidden_states"]
    return (before, *output[1:]) if isinstance(output, tuple) else before


@pytest.mark.parametrize("architecture", ALL, ids=str)
def test_each_row_of_a_mixed_batch_equals_the_model_changed_so(architecture):
    model = tiny_models.build(architecture)
    geometry, base = find_heads(model), outputs(model)
    with pruned(model, geometry, rows(architecture)):
        masked = outputs(model)
    for row, variant in enumerate(rows(architecture)):
        for change in (changed, edited_weights) if variant.kind != "noise" else (changed,):
            with change(model, geometry, variant):
                expected = outputs(model)[row]
            torch.testing.assert_close(masked[row], expected, atol=1e-4, rtol=1e-4)
        difference = (masked[row] - base[row]).abs().max()
        # Experts compute the tokens of all rows that chose them together.
        least = 1e-4 if hasattr(model.config, "num_experts_per_tok") else 0
        assert difference <= least if variant == BASE else difference > 0.01
    assert torch.equal(outputs(model), base)


def dense(projection):
    """An output projection's weight [inputs, outputs] in exact numbers."""
    weight = projection.weight.detach().double()
    return weight if isinstance(projection, Conv1D) else weight.T


@pytest.mark.parametrize(
    ("architecture", "dtype", "near"),
    [
        (tiny_models.wide("Qwen2"), torch.float32, 1e-5),
        (tiny_models.named("GPT2"), torch.float32, 1e-5),
        (tiny_models.wide("Qwen2"), torch.bfloat16, 0.03),
    ],
    ids=str,
)
def test_noise_is_as_long_as_its_head_behind_the_projection_at_each_token(
    architecture, dtype, near
):
    """Heads are read by weights of unlike size, so that lengths before the projection differ."""
    model = tiny_models.build(architecture).to(dtype)
    geometry, inputs = find_heads(model), []
    layer, projection = geometry.layer(1), geometry.output_projection(model, 1)
    for head in range(QUERY_HEADS):
        geometry.weights_that_read(model, 1, head).mul_(1 + head)
    reads, variants = dense(projection), [BASE, *(Variant(1, h, "noise") for h in range(6))]

    def see(_, given):
        inputs.append(given[0].double())

    projection.register_forward_pre_hook(see)
    with pruned(model, geometry, variants):
        projection.register_forward_pre_hook(see)  # behind the masks
        outputs(model)
    before, after = inputs
    assert before.shape == (7, 7, layer.width)  # rows, tokens
    assert torch.equal(before[0], after[0])
    for row, variant in enumerate(variants[1:], start=1):
        own = layer.columns(variant.head)
        direction = torch.from_numpy(noise_direction(1, variant.head, layer.width)).double()
        for token in range(7):
            taken = (before[row, token, own] @ reads[own]).norm()
            added = after[row, token] - before[row, token]
            assert abs((added @ reads).norm() - taken) <= near * taken
            expected = direction * taken / (direction @ reads).norm()
            assert (added - expected).norm() <= near * expected.norm()


def test_where_nothing_reads_a_head_or_a_layer_there_is_no_noise(qwen2):
    model, geometry = qwen2
    geometry.weights_that_read(model, 1, 2).zero_()
    geometry.output_projection(model, 3).weight.data.zero_()
    base = outputs(model)
    for variant in (Variant(1, 2, "noise"), Variant(3, 0, "noise")):
        with pruned(model, geometry, variant):
            assert torch.equal(outputs(model), base)


@pytest.mark.parametrize("name", ["Llama", "GPT2"])
def test_a_projection_on_no_device_is_read_through_its_module(name):
    model = tiny_models.build(tiny_models.Architecture(name, {"attention_bias": True}))
    geometry = find_heads(model)
    projection = geometry.output_projection(model, 2)
    projection.bias.data.normal_(generator=torch.Generator().manual_seed(0))
    reads = dense(projection)
    cpu_offload(model, torch.device("cpu"))
    assert projection.weight.is_meta
    torch.testing.assert_close(geometry.output_weight(model, 2), reads.T, atol=1e-6, rtol=1e-6)


class EightBits(torch.nn.Linear):
    """A linear layer that keeps whole numbers and a scale for each output."""

    def __init__(self, of):
        super().__init__(of.in_features, of.out_features, bias=False)
        self.scale = of.weight.detach().abs().amax(1, keepdim=True) / 127
        whole = (of.weight.detach() / self.scale).round().to(torch.int8)
        self.weight = torch.nn.Parameter(whole, requires_grad=False)

    def forward(self, states):
        return torch.nn.functional.linear(states, self.weight * self.scale)


def test_a_projection_of_few_bits_is_read_through_its_module(qwen2):
    model, geometry = qwen2
    stored = EightBits(geometry.output_projection(model, 2))
    model.model.layers[2].self_attn.o_proj = stored
    expected = (stored.weight * stored.scale).double()
    torch.testing.assert_close(geometry.output_weight(model, 2), expected)
    assert expected.abs().max() < 2 < stored.weight.abs().max()


def test_weights_are_read_once_for_all_masks_of_a_layer(qwen2, monkeypatch):
    model, geometry = qwen2
    right, reads = HeadGeometry.output_weight, []

    def counted(self, model, layer):
        reads.append(layer)
        return right(self, model, layer)

    monkeypatch.setattr(HeadGeometry, "output_weight", counted)
    for variants in ([Variant(1, 0, "noise"), Variant(3, 2, "noise")], [Variant(1, 5, "noise")]):
        with pruned(model, geometry, variants * 2):
            variant_masks(model, geometry, [*variants, BASE, Variant(2, 1)])
    assert reads == [1, 3]


def test_noise_on_weights_is_fixed_by_seed_and_name_and_taken_back_to_the_bit(qwen2):
    model, geometry = qwen2
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = {}
    for seed, sigma in ((17, 20), (17, 40), (3, 20), (17, 20)):
        with edited_weights(model, geometry, Variant(seed=seed, kind="weights", scale=sigma)):
            name = "model.layers.1.mlp.up_proj.weight"
            noise = (model.state_dict()[name] - before[name]) / (sigma * 1e-4)
            assert noise.std() == pytest.approx(1, abs=0.1)
            assert abs(noise.mean()) < 0.1
            assert (seed, sigma) not in found or torch.equal(found[seed, sigma], noise)
            found[seed, sigma] = noise
    torch.testing.assert_close(found[17, 20], found[17, 40], atol=1e-3, rtol=1e-3)
    assert (found[17, 20] - found[3, 20]).abs().max() > 1
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("prune", [pruned, edited_weights])
def test_nothing_stays_behind_and_a_head_out_of_range_is_refused(qwen2, prune):
    model, geometry = qwen2
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    base = outputs(model)
    with pytest.raises(RuntimeError, match="stop"), prune(model, geometry, Variant(0, 0)):
        raise RuntimeError("stop")
    for variant, message in (
        (Variant(4, 0), "layer 4 has no heads .* choose from 0 to 3"),
        (Variant(1, 6, kind="noise"), "head 6 is out of range in layer 1"),
        (Variant(1, 6), "head 6 is out of range in layer 1; choose from 0 to 5"),
    ):
        with pytest.raises(ModelError, match=message), prune(model, geometry, variant):
            pass
    assert torch.equal(outputs(model), base)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


LISTED = {
    row[0].strip("`"): row
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| `") and (row := line.strip("| ").split(" | "))
}
"""The rows of the page on architectures, by name."""


def graph_of(model, geometry):
    """Return the graph of llama.cpp that a model is exported for."""
    model.config.architectures = [type(model).__name__]  # as in a folder
    try:
        return gguf_export._graph_of(model, geometry)
    except ModelError:
        return "refused"


def test_the_table_of_architectures_lists_what_is_tested():
    """Columns that are cheap to find out; `make architectures` tries all of them."""
    tested = {each.name: (each, kind) for kind, group in TESTED.items() for each in group}
    assert [*LISTED] == [*tested], "run `make architectures`"
    for name, (architecture, kind) in tested.items():
        model = tiny_models.build(architecture)
        geometry = find_heads(model)
        counts = (len(geometry.layers), geometry.layers[0].query_heads, geometry.layers[0].kv_heads)
        by = "packed" if serves(SimpleNamespace(model=model, geometry=geometry)) else "modules"
        swept = by if kind == "decoder" else "refused"
        _, _, *stated, sweep, mapped, prune, recover, export, apart, effect = LISTED[name]
        assert stated == [str(count) for count in counts], name
        assert sweep == swept, name
        assert export == graph_of(model, geometry), name
        assert (mapped == "yes") == (kind == "decoder"), name
        assert (prune == "zeroed") == (name in NOT_CUT), name
        assert (recover == "yes") == (kind != "encoder" and name not in NOT_CUT), name
        assert float(apart) < 1e-5 < 0.001 < float(effect), name


def test_a_row_of_the_table_holds_here_too():
    """GPT-NeoX is removed from, trained, saved, loaded and measured again, among others."""
    row, reasons = cells(named("GPTNeoX"), "decoder")
    assert row[:-2] == LISTED["GPTNeoX"][:-2]
    assert "llama.cpp" in reasons["export"]
    assert float(row[-2]) < 1e-5


def test_a_compiled_model_loses_heads_inside_blocks_and_is_compiled_after_them(qwen2):
    model, _ = qwen2
    del model.model.layers[2:]  # compiling takes time
    model.config.num_hidden_layers = 2
    geometry, runs = find_heads(model), []

    def backend(graph, _):
        return lambda *inputs: runs.append("compiled") or graph.forward(*inputs)

    first, second = Variant(1, 4), Variant(0, 2)
    with edited_weights(model, geometry, first), edited_weights(model, geometry, second):
        expected = outputs(model)
    compiled = torch.compile(model, backend=backend)
    base = outputs(compiled)
    assert runs
    runs.clear()
    with headsweep.pruned(compiled, layer=1, head=4), headsweep.pruned(compiled, layer=0, head=2):
        torch.testing.assert_close(outputs(compiled), expected)
    assert not runs
    torch.testing.assert_close(outputs(compiled), base)
    assert runs
    assert (base - expected).abs().max() > 0.01


def test_everything_that_is_offered_is_there():
    assert all(getattr(headsweep, name).__doc__ for name in headsweep.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = headsweep.nonsense


def test_a_layer_on_another_device_than_the_one_before_is_left_out_there():
    model = tiny_models.build(tiny_models.wide("Qwen2"))
    geometry = find_heads(model)
    with pruned(model, geometry, Variant.parse("L01K01")) as of_rows:
        of_rows._masks[1] = of_rows._masks[1].to("meta", torch.float32)
        after = torch.empty(1, 2, 3, device="meta")
        assert of_rows._skip(1, model, (torch.ones(1, 2, 3),), {}, after).device.type == "meta"


@pytest.mark.parametrize("name", ["base", "L01N02", "L01R00", "placebo01"])
def test_what_changes_no_weights_reads_none(name, monkeypatch):
    model = tiny_models.build(tiny_models.wide("Qwen2"))
    monkeypatch.setattr(masks, "layer_noise", None)
    with edited_weights(model, find_heads(model), Variant.parse(name)) as same:
        assert same is model
    with (
        pytest.raises(ModelError, match="head 99 is out of range"),
        edited_weights(model, find_heads(model), Variant(1, 99)),
    ):
        pass
