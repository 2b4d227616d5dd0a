"""What ranks change in their parts of a model, without vLLM: parts of plain linear layers."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from headsweep.engine import vllm_ranks
from headsweep.engine.vllm_ranks import LayerEdit, RankModel, edit, prepare

HEADS, HEAD_DIM, OUTPUTS, INNER, DEPTH, TOKENS = 6, 4, 10, 14, 3, 5


class Part(nn.Module):
    """A rank's columns of a projection, as vLLM's `RowParallelLinear`: the bias is the first's."""

    def __init__(self, whole, rank, ranks):
        super().__init__()
        self.tp_rank, self.tp_size = rank, ranks
        self.weight = nn.Parameter(whole.weight.detach().chunk(ranks, dim=1)[rank].clone())
        self.bias = nn.Parameter(whole.bias.detach().clone())
        self.input_size_per_partition = self.weight.shape[1]

    def forward(self, states):
        bias = None if self.tp_rank else self.bias
        return nn.functional.linear(states, self.weight, bias), None


def part_of_model(projections, rank, ranks):
    """A rank's model with no more than its projections, named as vLLM's Llama names them."""
    layers = nn.ModuleList()
    for attention, mlp in projections:
        layer = nn.Module()
        layer.self_attn, layer.mlp = nn.Module(), nn.Module()
        layer.self_attn.o_proj = Part(attention, rank, ranks)
        layer.mlp.down_proj = Part(mlp, rank, ranks)
        layers.append(layer)
    whole = nn.Module()
    whole.model = nn.Module()
    whole.model.layers = layers
    return whole


@pytest.fixture(params=[False, True], ids=["hooks", "in place"])
def in_place(request, monkeypatch):
    """Change weights in place on this CPU, too, or leave them alone."""
    monkeypatch.setattr(vllm_ranks, "_is_plain", lambda _: request.param)
    return request.param


@pytest.fixture(params=[1, 2, 3], ids=lambda count: f"{count} ranks")
def world(request, in_place):
    """Whole projections, inputs of a layer, and ranks that hold the projections together."""
    torch.manual_seed(0)
    projections = [
        (nn.Linear(HEADS * HEAD_DIM, OUTPUTS), nn.Linear(INNER - INNER % request.param, OUTPUTS))
        for _ in range(DEPTH)
    ]
    models = [part_of_model(projections, rank, request.param) for rank in range(request.param)]
    ranks = [RankModel(model, HEADS, DEPTH) for model in models]
    assert all(rank._in_place == in_place for rank in ranks)
    return SimpleNamespace(projections=projections, models=models, ranks=ranks)


def summed(world, layer, name, states):
    """What the ranks put out together."""
    total = 0
    for model, part in zip(world.models, states.chunk(len(world.models), dim=1), strict=True):
        module = model.get_submodule(f"model.layers.{layer}.{name}")
        total = total + module(part)[0]
    return total


@torch.no_grad()
@pytest.mark.parametrize("factor", [0.0, 1.5])
@pytest.mark.parametrize("head", range(HEADS))
def test_the_rank_that_holds_a_head_changes_it(world, head, factor):
    joined = torch.randn(TOKENS, HEADS * HEAD_DIM)
    before = joined.clone()
    changed = [rank.edit({1: LayerEdit({head: factor}, False)}) for rank in world.ranks]
    assert sorted(changed) == [0] * (len(world.ranks) - 1) + [1]
    expected = joined.clone()
    expected[:, head * HEAD_DIM : (head + 1) * HEAD_DIM] *= factor
    found = summed(world, 1, "self_attn.o_proj", joined)
    torch.testing.assert_close(found, world.projections[1][0](expected))
    assert (found - world.projections[1][0](joined)).abs().max() > 0.1, "the head matters"
    other = summed(world, 2, "self_attn.o_proj", joined)
    torch.testing.assert_close(other, world.projections[2][0](joined))
    assert torch.equal(joined, before), "vLLM's own tensors stay as they are"


@torch.no_grad()
def test_a_layer_that_is_left_out_adds_nothing_its_bias_neither(world):
    for rank in world.ranks:
        assert rank.edit({0: LayerEdit({}, True), 1: LayerEdit({}, True)}) == 0
    for layer, is_zero in enumerate((True, True, False)):
        for place, name in enumerate(("self_attn.o_proj", "mlp.down_proj")):
            states = torch.randn(TOKENS, world.projections[layer][place].in_features)
            found = summed(world, layer, name, states)
            expected = torch.zeros(TOKENS, OUTPUTS)
            if not is_zero:
                expected = world.projections[layer][place](states)
            torch.testing.assert_close(found, expected)


@torch.no_grad()
def test_what_was_changed_before_is_as_it_was_bit_by_bit(world):
    weights = [
        {name: weight.clone() for name, weight in model.state_dict().items()}
        for model in world.models
    ]
    joined = torch.randn(TOKENS, HEADS * HEAD_DIM)
    first = summed(world, 0, "self_attn.o_proj", joined)
    for edits in (
        {0: LayerEdit({3: 1.1}, False)},
        {0: LayerEdit({3: 0.0, 4: 0.3}, False), 2: LayerEdit({}, True)},
        {2: LayerEdit({0: 0.7}, True)},
    ):
        for rank in world.ranks:
            rank.edit(edits)
    for rank in world.ranks:
        assert rank.edit({}) == 0
    assert torch.equal(summed(world, 0, "self_attn.o_proj", joined), first)
    for model, kept in zip(world.models, weights, strict=True):
        assert all(torch.equal(weight, kept[name]) for name, weight in model.state_dict().items())


@pytest.mark.usefixtures("in_place")
def test_a_rank_says_where_something_can_be_changed():
    projections = [(nn.Linear(HEADS * HEAD_DIM, OUTPUTS), nn.Linear(INNER, OUTPUTS))] * DEPTH
    model = part_of_model(projections, 1, 2)
    del model.model.layers[2].mlp.down_proj
    del model.model.layers[0].self_attn.o_proj
    layers = RankModel(model, HEADS, DEPTH).layers
    assert (layers.with_heads, layers.skippable) == ({1, 2}, {1})


@torch.no_grad()
def test_on_a_cpu_weights_are_left_alone_and_the_worker_keeps_its_model():
    projections = [(nn.Linear(HEADS * HEAD_DIM, OUTPUTS), nn.Linear(INNER, OUTPUTS))] * DEPTH
    model = part_of_model(projections, 1, 2)
    weight = model.model.layers[1].self_attn.o_proj.weight
    kept = weight.clone()
    worker = SimpleNamespace(get_model=lambda: model)
    assert prepare(worker, HEADS, DEPTH).with_heads == {0, 1, 2}
    assert edit(worker, {1: LayerEdit({4: 0.0}, False)}) == 1
    assert torch.equal(weight, kept)
