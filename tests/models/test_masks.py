"""Masked heads equal zeroed weights, row by row, in prefill and in every decoding step."""

import pytest
import tiny_models
import torch
from tiny_models import DECODERS, ENCODERS, HYBRIDS, QUERY_HEADS, VOCABULARY, Architecture
from torch import Tensor
from transformers import PreTrainedModel

from headroom.errors import ModelError
from headroom.models.geometry import HeadGeometry, find_heads
from headroom.models.masks import HeadMasks, pruned, variant_masks, zero_head_weights
from headroom.variants import BASE, Variant

BATCH, TOKENS, NEW_TOKENS = 5, 7, 3


def rows(architecture: Architecture) -> list[Variant]:
    """One variant a row: base among heads first and last, layers first and last."""
    first, last = architecture.layers[0], architecture.layers[-1]
    return [Variant(first, 5), Variant(last, 0), BASE, Variant(first, 2), Variant(last, 3)]


def prompts() -> dict[str, Tensor]:
    """Prompts of different lengths, padded on the left."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, VOCABULARY, (BATCH, TOKENS), generator=generator)
    mask = (torch.arange(TOKENS) >= torch.arange(BATCH)[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def outputs(model: PreTrainedModel) -> Tensor:
    """Logits of a decoder or hidden states of an encoder, [batch, tokens, width], real tokens."""
    inputs = prompts()
    with torch.no_grad():
        output = model(**inputs)[0]
    return output * inputs["attention_mask"][:, :, None]


def answers(model: PreTrainedModel) -> tuple[Tensor, Tensor]:
    """Greedy tokens [batch, new tokens] and their logits [batch, new tokens, vocabulary]."""
    result = model.generate(
        **prompts(),
        do_sample=False,
        min_new_tokens=NEW_TOKENS,
        max_new_tokens=NEW_TOKENS,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return result.sequences[:, TOKENS:], torch.stack(result.logits, dim=1)


@pytest.fixture
def qwen2() -> tuple[PreTrainedModel, HeadGeometry]:
    model = tiny_models.build(DECODERS[0])
    return model, find_heads(model)


@pytest.mark.parametrize("architecture", DECODERS + HYBRIDS + ENCODERS, ids=str)
def test_each_row_of_a_mixed_batch_equals_the_model_with_zeroed_weights(
    architecture: Architecture,
):
    model = tiny_models.build(architecture)
    geometry = find_heads(model)
    base = outputs(model)
    with pruned(model, geometry, rows(architecture)):
        masked = outputs(model)
    for row, variant in enumerate(rows(architecture)):
        with zero_head_weights(model, geometry, variant):
            zeroed = outputs(model)[row]
        torch.testing.assert_close(masked[row], zeroed, atol=1e-4, rtol=1e-4)
        change = (masked[row] - base[row]).abs().max()
        # Not zero to the bit: experts compute the tokens of all rows that chose them together.
        assert change < 1e-4 if variant == BASE else change > 0.01


@pytest.mark.parametrize("architecture", DECODERS + HYBRIDS, ids=str)
def test_generation_with_a_cache_equals_generation_with_zeroed_weights(
    architecture: Architecture,
):
    model = tiny_models.build(architecture)
    geometry = find_heads(model)
    _, base = answers(model)
    with pruned(model, geometry, rows(architecture)):
        tokens, logits = answers(model)
    for row, variant in enumerate(rows(architecture)):
        with zero_head_weights(model, geometry, variant):
            zeroed_tokens, zeroed_logits = answers(model)
        assert torch.equal(tokens[row], zeroed_tokens[row])
        torch.testing.assert_close(logits[row], zeroed_logits[row], atol=1e-4, rtol=1e-4)
        if variant != BASE:
            assert (logits[row] - base[row]).abs().max() > 0.01


def test_decoding_steps_are_masked_too(qwen2):
    """A head pruned only from the second step on changes that step's logits."""
    model, geometry = qwen2
    inputs = prompts()
    logits = {}
    for variant in (BASE, Variant(1, 4)):
        with torch.no_grad(), HeadMasks(model, geometry) as masks:
            cache = model(**inputs, use_cache=True).past_key_values
            masks.replace(variant_masks(geometry, [variant] * BATCH))
            step = torch.full((BATCH, 1), 11)
            attended = torch.cat([inputs["attention_mask"], torch.ones_like(step)], dim=1)
            output = model(step, attention_mask=attended, past_key_values=cache)
            logits[variant] = output.logits
    assert (logits[BASE] - logits[Variant(1, 4)]).abs().amax(dim=(1, 2)).min() > 0.01


def test_masks_can_be_replaced_between_steps(qwen2):
    model, geometry = qwen2
    variants = rows(DECODERS[0])
    with pruned(model, geometry, variants):
        expected = outputs(model)
    base = outputs(model)
    with HeadMasks(model, geometry) as masks:
        masks.replace(variant_masks(geometry, list(reversed(variants))))
        assert not torch.allclose(outputs(model), expected)
        masks.replace(variant_masks(geometry, variants))
        assert torch.equal(outputs(model), expected)
        masks.replace({})
        assert torch.equal(outputs(model), base)


def test_one_variant_holds_for_every_row(qwen2):
    model, geometry = qwen2
    with pruned(model, geometry, [Variant(2, 1)] * BATCH):
        expected = outputs(model)
    with pruned(model, geometry, Variant(2, 1)):
        assert torch.equal(outputs(model), expected)


def test_masks_follow_the_models_dtype(qwen2):
    model, geometry = qwen2
    model.bfloat16()
    variants = rows(DECODERS[0])
    with pruned(model, geometry, variants):
        masked = outputs(model)
    assert masked.dtype == torch.bfloat16
    with zero_head_weights(model, geometry, variants[0]):
        torch.testing.assert_close(masked[0], outputs(model)[0], atol=0.1, rtol=0.05)


def test_nothing_stays_behind_when_a_block_ends(qwen2):
    model, geometry = qwen2
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    base = outputs(model)
    with pytest.raises(RuntimeError, match="stop"), pruned(model, geometry, Variant(0, 0)):
        raise RuntimeError("stop")
    with (
        pytest.raises(RuntimeError, match="stop"),
        zero_head_weights(model, geometry, Variant(0, 0)),
    ):
        raise RuntimeError("stop")
    assert torch.equal(outputs(model), base)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


def test_rows_of_the_base_model_keep_their_bits(qwen2):
    model, geometry = qwen2
    base = outputs(model)
    with pruned(model, geometry, rows(DECODERS[0])):
        masked = outputs(model)
    assert torch.equal(masked[2], base[2])
    assert not torch.equal(masked[1], base[1])


def test_only_layers_that_a_row_prunes_get_a_mask(qwen2):
    _, geometry = qwen2
    masks = variant_masks(geometry, [Variant(2, 1), BASE, Variant(2, 5)])
    assert list(masks) == [2]
    assert masks[2].tolist() == [[1, 0, 1, 1, 1, 1], [1] * QUERY_HEADS, [1, 1, 1, 1, 1, 0]]
    assert variant_masks(geometry, [BASE, BASE]) == {}


def test_a_mask_for_another_batch_is_an_error(qwen2):
    model, geometry = qwen2
    with (
        pruned(model, geometry, [BASE, Variant(0, 0), BASE]),
        pytest.raises(ValueError, match="mask of layer 0 has 3 rows, not 5"),
    ):
        outputs(model)


def test_a_mask_of_another_shape_is_an_error(qwen2):
    model, geometry = qwen2
    with pytest.raises(ValueError, match=r"mask of layer 1 has shape \(5, 2\), not \(batch, 6\)"):
        HeadMasks(model, geometry).replace({1: torch.ones(BATCH, 2)})


@pytest.mark.parametrize("prune", [pruned, zero_head_weights])
@pytest.mark.parametrize(
    ("variant", "message"),
    [
        (Variant(4, 0), "layer 4 has no heads .* layers with heads are 0 to 3"),
        (Variant(1, 6), "head 6 is out of range in layer 1; query heads are 0 to 5"),
    ],
)
def test_a_head_out_of_range_is_refused(qwen2, prune, variant: Variant, message: str):
    with pytest.raises(ModelError, match=message), prune(*qwen2, variant):
        pass
