"""A model with heads cut out computes what the whole model computes with these heads masked.

Pruned models come back from disk to the bit, in every form, and say what they are.
"""

import copy
import json
import shutil
from contextlib import ExitStack
from typing import Any

import pytest
import tiny_models
import torch
import transformers
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from tiny_models import ALL, DECODERS, encoder, in_own_memory, named, outputs, prompts
from torch import nn
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedModel

from headsweep.errors import ModelError
from headsweep.experiments.compression.savings import most_allocated, weight_bytes
from headsweep.models.checkpoints import (
    outline,
    plainest_form,
    read_pretrained,
    save_pruned,
)
from headsweep.models.geometry import find_heads
from headsweep.models.load import load_checkpoint
from headsweep.models.masks import pruned
from headsweep.models.model_card import Pruning
from headsweep.models.readers import find_readers
from headsweep.models.removal import (
    remove_heads,
    surviving_heads,
    without,
    zero_heads,
)
from headsweep.variants import BASE, Variant

REFUSED = {
    "Olmo2": "mixes heads before attention",  # a norm over all queries together
    "Bloom": "expanded size",  # position biases, made for the first number of heads
    "Mpt": "size of tensor",
    "MPNet": "size of tensor",
    "FalconH1": "mixes heads before attention",
}
CUT = [
    *(one for one in ALL if one.name not in REFUSED),
    encoder("RobertaPreLayerNorm"),  # what solvers of word problems start from
]


def masked(model, geometry, heads):
    with ExitStack() as masks:
        for head in heads:
            masks.enter_context(pruned(model, geometry, head))
        return outputs(model)


LOST = {  # by number of key/value heads: heads of the first and of the last layer
    2: ((3, 4, 5), (0, 1, 2)),
    1: ((0, 4), ()),
    6: ((1, 2, 5), (0,)),
}


def some_heads(architecture):
    """Whole groups of the first and the last layer, or heads where none or all share keys."""
    layers = architecture.layers
    first, last = LOST[architecture.kv_heads]
    last = last if len(layers) > 1 else ()
    return [Variant(layers[0], h) for h in first] + [Variant(layers[-1], h) for h in last]


def assert_as_masked(model, expected):
    scale = max(expected.abs().max().item(), 1)
    torch.testing.assert_close(outputs(model), expected, atol=5e-5 * scale, rtol=0)


@pytest.mark.parametrize(
    "architecture", [one for one in CUT if one.kv_heads == tiny_models.KV_HEADS], ids=str
)
def test_queries_of_each_group_that_are_cut_or_zeroed_equal_masked_ones(architecture):
    """Whole groups, and heads that share no keys: `test_what_was_saved_is_loaded_to_the_bit`."""
    model = tiny_models.build(architecture)
    geometry, whole = find_heads(model), outputs(model)
    heads = [Variant(architecture.layers[-1], head) for head in (2, 5)]
    expected = masked(model, geometry, heads)
    if architecture.name == "Qwen2":
        zeroed = copy.deepcopy(model)
        zero_heads(zeroed, geometry, heads)
        assert_as_masked(zeroed, expected)
    smaller = remove_heads(model, geometry, iter(heads))
    assert_as_masked(model, expected)
    assert (expected - whole).abs().max() > 0.01
    assert find_heads(model) == smaller == without(geometry, heads)


@pytest.mark.parametrize(
    ("name", "second", "left"),
    [  # the first head or group goes, then the last head or a query of each group
        *((name, [Variant(1, 4)], {1: (1, 2, 3, 4)}) for name in ("GPT2", "GPTNeoX")),
        *(
            (name, [Variant(2, 0), Variant(2, 3)], {1: (3, 4, 5), 2: (1, 2, 4, 5)})
            for name in ("Qwen2", "Phi3")
        ),
    ],
)
def test_cutting_twice_keeps_the_first_numbers_and_leaves_a_copy_alone(name, second, left):
    model = tiny_models.build(named(name))
    whole = find_heads(model)
    once = remove_heads(model, whole, [Variant(1, h) for h in range(6) if h < left[1][0]])
    teacher, before = copy.deepcopy(model), outputs(model)
    expected = masked(model, once, second)
    twice = remove_heads(model, once, second)
    torch.testing.assert_close(outputs(model), expected, atol=1e-5, rtol=1e-5)
    kept = {layer: left.get(layer, tuple(range(6))) for layer in range(4)}
    assert {layer.index: layer.original_heads for layer in twice.layers} == kept
    assert twice.layer(0).kept == ()
    assert surviving_heads(whole, twice) == {layer: list(heads) for layer, heads in kept.items()}
    places = {
        layer: [once.layer(layer).original_heads.index(h) for h in kept[layer]] for layer in kept
    }
    assert surviving_heads(once, twice) == places
    assert torch.equal(outputs(teacher), before)
    assert find_heads(teacher) == once


def test_searching_leaves_a_model_as_it_was_and_one_that_is_cut_still_trains():
    model = tiny_models.build(DECODERS[0]).train()
    before = copy.deepcopy(model.state_dict())
    find_readers(model, find_heads(model))
    with pytest.raises(ModelError, match="head 6 is out of range in layer 1"):
        zero_heads(model, find_heads(model), [Variant(0, 0), Variant(1, 6)])  # zeroes nothing
    assert all(not one._forward_hooks and not one._forward_pre_hooks for one in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training
    remove_heads(model, find_heads(model), some_heads(DECODERS[0]))
    assert model.training
    model(**prompts(), labels=prompts()["input_ids"]).loss.backward()
    assert all(one.grad is not None and one.grad.shape == one.shape for one in model.parameters())


def test_a_model_built_from_the_same_config_is_on_its_own():
    first = tiny_models.build(named("Bert"))
    second = type(first)(first.config).eval()
    geometry = find_heads(first)
    remove_heads(first, geometry, [Variant(1, 2)])
    assert find_heads(second) == geometry
    first.set_attn_implementation("eager")
    layers = [one.attention.self for one in first.encoder.layer]
    assert {one.config._attn_implementation for one in (first, *layers)} == {"eager"}
    assert second.config._attn_implementation == "sdpa"


def test_what_a_cut_computes_is_checked():
    """A model whose attention counts its heads by a name of its own is not cut wrongly."""
    model = tiny_models.build(named("Bert"))

    class Shifted(nn.Linear):
        def forward(self, joined):
            # Reads the last head where the first was: no shape tells.
            return super().forward(joined.roll(8 if joined.shape[-1] == 48 else 0, dims=-1))

    geometry = find_heads(model)
    model.get_submodule(geometry.layers[2].name).__class__ = Shifted
    with pytest.raises(ModelError, match="computes something else"):
        remove_heads(model, geometry, [Variant(2, 1)])


def attributes(model):
    """A model's own of all its modules, without PyTorch's registries, which change in place."""
    return {
        (path, name): value
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("name", "heads", "message"),
    [
        *((name, some_heads(named(name)), message) for name, message in REFUSED.items()),
        ("Bert", [Variant(1, head) for head in range(6)], "layer 1 would lose all of its 6 heads"),
        ("Qwen2", [Variant(1, 0)], "layer 1 would keep 2, 3 query heads in its 2 groups"),
        ("Qwen2", [Variant(1, h) for h in (0, 1, 3)], "keep 1, 2 .* whole groups of 3"),
        ("Qwen2", [Variant(4, 0)], "layer 4 has no heads to prune"),
        ("Qwen2", [Variant(1, 6)], "head 6 is out of range in layer 1"),
        ("Qwen2", [BASE], "base names no head to remove"),
        ("Qwen2", [Variant(1, 3, kind="noise")], "L01N03 names no head to remove"),
    ],
)
def test_what_cannot_be_removed_is_refused_in_one_line(name, heads, message):
    model = tiny_models.build(named(name))
    before = attributes(model)
    weights, computed = {**model.state_dict(keep_vars=True)}, outputs(model)
    with pytest.raises(ModelError, match=rf"^.*({message}).*$"):
        remove_heads(model, find_heads(model), heads)
    assert attributes(model) == before
    left = model.state_dict(keep_vars=True)
    assert all(left[name] is weight for name, weight in weights.items())
    assert torch.equal(outputs(model), computed)


GROUP = [Variant(1, head) for head in (0, 1, 2)]
"""The first group of layer 1 of the tiny models with grouped queries."""


@pytest.fixture
def save(qwen2_original, tmp_path):
    """Remove heads, save, and return what the model computed at that time."""

    def save(model, form, removed, **facts):
        geometry = find_heads(model)
        remove = zero_heads if form == "zeroed" else remove_heads
        geometry = remove(model, geometry, removed) or geometry
        pruning = Pruning("some/model", "0" * 40, removed, "norm of the weights", **facts)
        save_pruned(model, geometry, tmp_path / "pruned", form, pruning, qwen2_original)
        return outputs(model)

    return save


@pytest.mark.parametrize(
    ("architecture", "form"),
    [
        *((named(name), "zeroed") for name in ("Qwen2", "GPT2", "Bert", *REFUSED)),
        *((architecture, "free") for architecture in CUT),
    ],
    ids=str,
)
def test_what_was_saved_is_loaded_to_the_bit(architecture, form, save, tmp_path):
    """As a config loads it, which names sdpa: transformers has that for most."""
    model = tiny_models.build(architecture)
    geometry, whole = find_heads(model), outputs(model)
    removed = some_heads(architecture)
    without_them = masked(model, geometry, removed)
    assert (without_them - whole).abs().max() > 0.01
    assert architecture not in DECODERS or plainest_form(model, geometry) == "uniform"
    if architecture.name in REFUSED:
        with pytest.raises(ModelError):  # after which they are zeroed, as the message says
            remove_heads(model, geometry, removed)
    expected = save(model, form, removed)
    assert_as_masked(model, without_them)
    loaded = in_own_memory(load_checkpoint(str(tmp_path / "pruned")))
    assert type(loaded) is type(model)
    assert torch.equal(outputs(loaded), expected)
    left = geometry if form == "zeroed" else without(geometry, removed)
    assert find_heads(loaded) == find_heads(model) == left
    if form == "zeroed":
        plain = in_own_memory(type(model).from_pretrained(tmp_path / "pruned"))
        assert torch.equal(outputs(plain), expected)
    else:
        with pytest.raises(RuntimeError, match="mismatched_sizes"):
            type(model).from_pretrained(tmp_path / "pruned")
    state = model.state_dict()
    assert all(torch.equal(tensor, state[key]) for key, tensor in loaded.state_dict().items())


def test_a_free_model_is_read_into_its_final_shapes(save, tmp_path, monkeypatch):
    """The unpruned model is never in memory, so that a peak says what the pruned one takes."""
    monkeypatch.setenv("HF_DEACTIVATE_ASYNC_LOAD", "1")  # threads are not counted
    sizes = {"hidden_size": 252, "head_dim": 64, "intermediate_size": 16}
    model = tiny_models.build(tiny_models.wide("Llama", **sizes))
    whole = weight_bytes(model)
    save(model, "free", [Variant(layer, head) for layer in (0, 1, 2) for head in (0, 1, 2)])
    folder, pruned = tmp_path / "pruned", weight_bytes(model)
    loaded: list[Any] = []
    peak = most_allocated(lambda: loaded.append(load_checkpoint(str(folder))))
    assert weight_bytes(loaded[0]) == pruned < 0.7 * whole
    assert pruned <= peak < 1.1 * pruned


def test_weights_that_do_not_fit_the_heads_are_refused(save, tmp_path):
    folder = tmp_path / "pruned"
    save(tiny_models.build(named("Llama")), "free", GROUP)
    config = json.loads((folder / "config.json").read_text())
    config["kept_heads"]["2"] = [0, 1, 2]  # the file has all six
    (folder / "config.json").write_text(json.dumps(config))
    wanted = r"layers\.2\.self_attn\.k_proj\.weight has shape \(20, 48\), not \(10, 48\)"
    with pytest.raises(ModelError, match=rf"^.*{wanted}.*again$"):
        load_checkpoint(str(folder))


def uniform(query):
    """The second group of every layer, or the middle query of every group."""
    lost = (1, 4) if query else (3, 4, 5)
    return [Variant(layer, head) for layer in range(4) for head in lost]


@pytest.mark.parametrize(("name", "query"), [("Qwen2", True), ("Gemma", False), ("Phi3", True)])
def test_a_uniform_model_loads_with_plain_from_pretrained(name, query, save, tmp_path):
    model = tiny_models.build(named(name))
    folder = tmp_path / "pruned"
    expected = save(model, "uniform", uniform(query))
    plain = in_own_memory(AutoModelForCausalLM.from_pretrained(folder))
    assert torch.equal(outputs(plain), expected)
    assert torch.equal(outputs(in_own_memory(load_checkpoint(str(folder)))), expected)
    assert plain.config.num_attention_heads == (4 if query else 3)
    assert plain.config.num_key_value_heads == (2 if query else 1)
    assert not hasattr(plain.config, "kept_heads")
    assert model.config.num_attention_heads == 6
    card = ModelCard.load(folder / "README.md").text
    assert f"transformers {transformers.__version__} was seen" in card and "were not tried" in card
    assert "any model" not in card and "vLLM loads" not in card


def test_a_free_model_can_be_pruned_and_saved_again(save, tmp_path):
    save(tiny_models.build(named("GPT2")), "free", [Variant(1, 0), Variant(1, 3)])
    again = load_checkpoint(str((tmp_path / "pruned").rename(tmp_path / "once")))
    expected = save(again, "free", [Variant(1, 0), Variant(2, 5)])
    loaded = in_own_memory(load_checkpoint(str(tmp_path / "pruned")))
    assert torch.equal(outputs(loaded), expected)
    assert find_heads(loaded).layer(1).original_heads == (2, 4, 5)


def test_a_card_says_what_was_removed_and_the_body_loads_alone(save, tmp_path):
    folder, model = tmp_path / "pruned", tiny_models.build(named("Qwen2"))
    save(model, "free", GROUP, measured={"parameters": 12345}, how="Counted.")
    card = ModelCard.load(folder / "README.md")
    assert card.data.base_model == "some/model"
    assert card.data.tags == ["pruned", "attention-heads", "free"]
    for part in ("L01H00, L01H01, L01H02", "0" * 40, "load_model", "| parameters | 12345 |"):
        assert part in card.text
    assert card.text.rstrip().endswith("Counted.")
    written = json.loads((folder / "pruned_heads.json").read_text())
    assert written["removed"] == ["L01H00", "L01H01", "L01H02"]
    assert (written["kept"]["1"], written["kept"]["2"]) == ([3, 4, 5], [0, 1, 2, 3, 4, 5])
    assert written["form"] == "free"
    assert (folder / "tokenizer.json").exists()
    assert list(tmp_path.iterdir()) == [folder]
    body, _ = read_pretrained(AutoModel, folder)  # weights have other names without the head
    assert torch.equal(outputs(in_own_memory(body)), outputs(model.model))


@pytest.mark.parametrize(
    ("name", "removed", "message"),
    [
        ("Qwen2", GROUP, "would keep 3, 6 heads, but a uniform model has the same number in each"),
        # Their configs derive the width of a head from the number of heads.
        ("Bert", uniform(query=True), "no BertConfig has 4 heads of width 8 .* width 48"),
        ("GPT2", uniform(query=False), "no GPT2Config has 3 heads of width 8"),
    ],
)
def test_what_cannot_be_saved_uniform_is_refused(name, removed, message, save, tmp_path):
    with pytest.raises(ModelError, match=rf"^.*({message}).*$"):
        save(tiny_models.build(named(name)), "uniform", removed)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_nothing_behind(save, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "copyfile", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        save(tiny_models.build(named("Qwen2")), "free", GROUP)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "pruned").mkdir()
    with pytest.raises(ModelError, match="pruned exists; remove it, or name another"):
        save(tiny_models.build(named("Qwen2")), "free", GROUP)


def other_weight(folder):
    weights = load_file(folder / "model.safetensors")
    weights["gpt_neox.layers.2.attention.dense.weight"][3, 5] += 1e-6
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def other_name(folder):
    weights = load_file(folder / "model.safetensors")
    weights["renamed"] = weights.pop("gpt_neox.layers.2.attention.dense.weight")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def other_config(folder):
    config = json.loads((folder / "config.json").read_text())
    config["use_parallel_residual"] = False
    (folder / "config.json").write_text(json.dumps(config))


def unreadable(folder):
    (folder / "config.json").write_text("{}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_weight, r"dense.weight is another one"),
        (other_name, r"dense.weight is another one"),
        (other_config, "it computes something else"),
        (unreadable, "config.json cannot be read"),
    ],
)
def test_what_would_be_loaded_otherwise_is_not_saved(change, message, save, tmp_path, monkeypatch):
    whole = PreTrainedModel.save_pretrained

    def saved(self, folder):
        whole(self, folder)
        change(folder)

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", saved)
    with pytest.raises(ModelError, match=rf"^a pruned GPTNeoX.*({message}).*; use another model$"):
        save(tiny_models.build(named("GPTNeoX")), "free", [Variant(1, 0)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["T5Config", "DistilBertConfig"])
def test_what_is_no_decoder_has_no_outline_and_one_line_says_so(name, tmp_path):
    getattr(transformers, name)().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"is no decoder .*; take a causal language model$"):
        outline(tmp_path)
