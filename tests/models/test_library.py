"""The library: heads taken out of models in memory, whatever calls these models."""

import pytest
import tiny_models
import torch
from torch import Tensor, nn
from transformers import Qwen2ForCausalLM

import headroom
from headroom.models.geometry import find_heads
from headroom.models.masks import edited_weights
from headroom.variants import Variant

PROMPT = torch.arange(3, 17).view(2, 7)


@pytest.fixture
def model() -> Qwen2ForCausalLM:
    return tiny_models.build(tiny_models.named("Qwen2"))


def logits(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return model(input_ids=PROMPT)[0]


def test_blocks_within_one_another_take_out_several_heads(model):
    geometry, base = find_heads(model), logits(model)
    with (
        edited_weights(model, geometry, Variant(1, 4)),
        edited_weights(model, geometry, Variant(2, 0)),
    ):
        expected = logits(model)
    with headroom.pruned(model, layer=1, head=4), headroom.pruned(model, layer=2, head=0):
        torch.testing.assert_close(logits(model), expected)
    assert torch.equal(logits(model), base)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_compiled_model_is_pruned_inside_the_block_and_compiled_after_it(model, in_place):
    del model.model.layers[2:]  # compiling takes time
    model.config.num_hidden_layers = 2
    runs = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]):
        return lambda *inputs: runs.append("compiled") or graph.forward(*inputs)

    with edited_weights(model, find_heads(model), Variant(1, 4)):
        expected = logits(model)
    compiled = model if in_place else torch.compile(model, backend=backend)
    if in_place:
        model.compile(backend=backend)
    base = logits(compiled)
    assert runs
    runs.clear()
    with headroom.pruned(compiled, layer=1, head=4):
        torch.testing.assert_close(logits(compiled), expected)
    assert not runs
    torch.testing.assert_close(logits(compiled), base)
    assert runs
    assert (base - expected).abs().max() > 0.01


def test_everything_that_is_offered_is_there():
    assert all(getattr(headroom, name).__doc__ for name in headroom.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = headroom.nonsense
