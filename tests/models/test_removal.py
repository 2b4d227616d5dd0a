"""A model with heads cut out computes what the whole model computes with these heads masked."""

import copy
from contextlib import ExitStack

import pytest
import tiny_models
import torch
from tiny_models import ALL, DECODERS, encoder, named, outputs, prompts
from torch import nn

from headroom.errors import ModelError
from headroom.models.geometry import find_heads
from headroom.models.masks import pruned
from headroom.models.removal import find_readers, remove_heads, surviving_heads, without, zero_heads
from headroom.variants import BASE, Variant

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


LOST = {  # by strategy and number of key/value heads: heads of the first and of the last layer
    ("group", 2): ((3, 4, 5), (0, 1, 2)),
    ("group", 1): ((0, 4), ()),
    ("group", 6): ((1, 2, 5), (0,)),
    ("query", 2): ((), (2, 5)),
    ("query", 1): ((), (5,)),
    ("query", 6): ((), (5,)),
}


def some_heads(architecture, strategy):
    """Whole groups of the first and the last layer, or as many queries of every group."""
    layers = architecture.layers
    first, last = LOST[strategy, architecture.kv_heads]
    last = last if len(layers) > 1 or not first else ()
    return [Variant(layers[0], h) for h in first] + [Variant(layers[-1], h) for h in last]


@pytest.mark.parametrize("strategy", ["group", "query"])
@pytest.mark.parametrize("architecture", CUT, ids=str)
def test_cut_and_zeroed_equal_masked(architecture, strategy):
    model = tiny_models.build(architecture)
    geometry, whole = find_heads(model), outputs(model)
    heads = some_heads(architecture, strategy)
    expected, zeroed = masked(model, geometry, heads), copy.deepcopy(model)
    zero_heads(zeroed, geometry, heads)
    smaller = remove_heads(model, geometry, iter(heads))
    for each in (model, zeroed):
        scale = max(expected.abs().max().item(), 1)
        torch.testing.assert_close(outputs(each), expected, atol=1e-5 * scale, rtol=0)
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
    remove_heads(model, find_heads(model), some_heads(DECODERS[0], "group"))
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


@pytest.mark.parametrize(
    ("name", "heads", "message"),
    [
        *((name, some_heads(named(name), "group"), message) for name, message in REFUSED.items()),
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
    with pytest.raises(ModelError, match=rf"^.*({message}).*$"):
        remove_heads(model, find_heads(model), heads)
