"""Causal criteria and Taylor's estimate, against weights zeroed and masks differentiated."""

import pandas as pd
import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from headroom.compression.criteria import accuracy_drops, loss_rises, taylor
from headroom.errors import ModelError
from headroom.models.geometry import AttentionLayer, HeadGeometry, find_heads
from headroom.models.masks import zero_head_weights
from headroom.variants import Variant

ROWS, TOKENS, LAYERS, HEADS = 5, 7, 2, 3
GEOMETRY = HeadGeometry(
    tuple(AttentionLayer(index, f"{index}", HEADS, HEADS, 5) for index in (1, 4, 6))
)


@pytest.fixture
def model() -> BertForSequenceClassification:
    config = BertConfig(
        vocab_size=31,
        hidden_size=24,
        num_attention_heads=HEADS,
        num_hidden_layers=LAYERS,
        intermediate_size=22,
        num_labels=4,
    )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = BertForSequenceClassification(config)
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.eval()


def batch(rows: slice = slice(None)) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 31, (ROWS, TOKENS), generator=draw)
    mask = (torch.arange(TOKENS) < torch.tensor([7, 3, 5, 2, 6])[:, None]).long()
    return {
        "input_ids": ids[rows],
        "attention_mask": mask[rows],
        "labels": torch.tensor([0, 3, 1, 2, 2])[rows],
    }


def test_the_drop_of_accuracy_is_that_of_the_matrix():
    z = pd.DataFrame({"question_id": ["a", "b", "c", "d"], "base": [1, 1, 0, 1]})
    columns = {"L01H00": [0, 0, 0, 1], "L01H01": [1, 1, 0, 1], "L01H02": [1, 1, 1, 1]}
    scores = accuracy_drops(z.assign(**columns), GEOMETRY)
    assert list(scores) == [1]
    torch.testing.assert_close(scores[1], torch.tensor([0.5, 0.0, -0.25]))


@pytest.mark.parametrize(
    ("columns", "missing"),
    [(["base", "L01H00", "L01H02"], "L01H01"), (["L01H00"], "base"), (["base"], "all heads")],
)
def test_a_matrix_with_holes_is_refused(columns: list[str], missing: str):
    z = pd.DataFrame({name: [1, 0] for name in columns})
    with pytest.raises(ModelError, match=f"lacks {missing}"):
        accuracy_drops(z, GEOMETRY)


def test_the_rise_of_the_loss_is_that_of_zeroed_weights(model):
    def loss() -> float:
        with torch.no_grad():
            return model(**batch()).loss.item()

    geometry = find_heads(model)
    rises = loss_rises(model, geometry, loss)
    base = loss()
    for layer in range(LAYERS):
        for head in range(HEADS):
            with zero_head_weights(model, geometry, Variant(layer, head)):
                assert rises[layer][head].item() == pytest.approx(loss() - base, abs=1e-5)
    assert torch.cat(list(rises.values())).abs().min() > 1e-3


def summed(inputs: dict[str, Tensor], model: BertForSequenceClassification) -> Tensor:
    return model(**inputs).loss * len(inputs["labels"])


@pytest.mark.parametrize("frozen", [False, True])
def test_taylors_estimate_is_the_gradient_of_each_rows_mask(model, frozen):
    """Against differences: the loss of one row with one head's output scaled a little."""
    model.requires_grad_(not frozen)
    geometry = find_heads(model)
    found = taylor(
        model,
        geometry,
        [batch(slice(0, 2)), batch(slice(2, 5))],
        lambda inputs: summed(inputs, model),
    )
    model.double()
    step = 1e-5
    for layer in range(LAYERS):
        weight = geometry.output_projection(model, layer).weight.data
        for head in range(HEADS):
            columns = weight[:, geometry.layer(layer).columns(head)]
            expected = 0.0
            for row in range(ROWS):
                losses = []
                for factor in (1 + step, 1 - step):
                    columns *= factor
                    losses.append(model(**batch(slice(row, row + 1))).loss.item())
                    columns /= factor
                expected += abs(losses[0] - losses[1]) / (2 * step) / ROWS
            assert found[layer][head].item() == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_taylors_estimate_touches_no_gradient(model):
    taylor(model, find_heads(model), [batch()], lambda inputs: summed(inputs, model))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(not module._forward_pre_hooks for module in model.modules())


def test_no_text_is_refused(model):
    with pytest.raises(ModelError, match="no text"):
        taylor(model, find_heads(model), [], lambda inputs: summed(inputs, model))
