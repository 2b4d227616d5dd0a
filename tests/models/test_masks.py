"""Masked heads equal zeroed weights, row by row, in prefill and in every decoding step; noise
placebos equal a hook of their own.
"""

from typing import Any

import pytest
import tiny_models
import torch
from noisy_hook import noisy
from tiny_models import DECODERS, ENCODERS, HYBRIDS, QUERY_HEADS, VOCABULARY, Architecture
from torch import Tensor
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headroom.errors import ModelError
from headroom.models.geometry import HeadGeometry, find_heads
from headroom.models.masks import HeadMasks, edited_weights, pruned
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
        with edited_weights(model, geometry, variant):
            zeroed = outputs(model)[row]
        torch.testing.assert_close(masked[row], zeroed, atol=1e-4, rtol=1e-4)
        change = (masked[row] - base[row]).abs().max()
        # Not zero to the bit: experts compute the tokens of all rows that chose them together.
        assert change < 1e-4 if variant == BASE else change > 0.01


@pytest.mark.parametrize("architecture", DECODERS[:1] + HYBRIDS, ids=str)
def test_generation_with_a_cache_equals_generation_with_zeroed_weights(
    architecture: Architecture,
):
    model = tiny_models.build(architecture)
    geometry = find_heads(model)
    _, base = answers(model)
    with pruned(model, geometry, rows(architecture)):
        tokens, logits = answers(model)
    for row, variant in enumerate(rows(architecture)):
        with edited_weights(model, geometry, variant):
            zeroed_tokens, zeroed_logits = answers(model)
        assert torch.equal(tokens[row], zeroed_tokens[row])
        torch.testing.assert_close(logits[row], zeroed_logits[row], atol=1e-4, rtol=1e-4)
        if variant != BASE:
            assert (logits[row] - base[row]).abs().max() > 0.01


@pytest.mark.parametrize("architecture", DECODERS + HYBRIDS + ENCODERS, ids=str)
def test_rows_that_scale_a_head_or_leave_layers_out_equal_the_model_changed_so(
    architecture: Architecture,
):
    model = tiny_models.build(architecture)
    geometry = find_heads(model)
    first, last = geometry.layers[0].index, geometry.layers[-1].index
    variants = [
        Variant(last, 2, kind="scaled", scale=250),
        Variant(first, kind="skip", scale=1),
        BASE,
        Variant(last, kind="skip", scale=1),
        Variant(last, 3, kind="scaled", scale=10),
    ]
    base = outputs(model)
    with pruned(model, geometry, variants):
        masked = outputs(model)
    for row, variant in enumerate(variants):
        if variant.kind == "skip":
            block = model.get_submodule(geometry.layer(variant.layer).block)
            handle = block.register_forward_hook(input_as_output, with_kwargs=True)
            expected = outputs(model)[row]
            handle.remove()
        else:
            factors = torch.ones(QUERY_HEADS)
            factors[variant.head or 0] = (variant.scale or 100) / 100
            projection = geometry.output_projection(model, last)
            weight = projection.weight.data
            own = weight if isinstance(projection, Conv1D) else weight.T  # [input, output]
            kept = own.clone()
            own *= factors.repeat_interleave(len(own) // QUERY_HEADS)[:, None]
            expected = outputs(model)[row]
            own.copy_(kept)
        torch.testing.assert_close(masked[row], expected, atol=1e-4, rtol=1e-4)
        change = (masked[row] - base[row]).abs().max()
        assert change < 1e-4 if variant == BASE else change > 0.01


def input_as_output(_: Any, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> Any:
    """Leave a layer out."""
    before = inputs[0] if inputs else named["hidden_states"]
    return (before, *output[1:]) if isinstance(output, tuple) else before


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


def test_masks_can_be_replaced_between_steps_and_leave_the_base_models_rows_their_bits(qwen2):
    model, geometry = qwen2
    variants = rows(DECODERS[0])
    with pruned(model, geometry, variants):
        expected = outputs(model)
    base = outputs(model)
    assert torch.equal(expected[2], base[2])  # of the variant `base`
    with pruned(model, geometry, variants[0]):  # one for every row
        assert torch.equal(outputs(model)[0], expected[0])
    with HeadMasks(model, geometry) as masks:
        masks.prune(list(reversed(variants)))
        assert not torch.allclose(outputs(model), expected)
        masks.prune(variants)
        assert torch.equal(outputs(model), expected)
        masks.prune([BASE])
        assert torch.equal(outputs(model), base)


def test_nothing_stays_behind_when_a_block_ends(qwen2):
    model, geometry = qwen2
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    base = outputs(model)
    with pytest.raises(RuntimeError, match="stop"), pruned(model, geometry, Variant(0, 0)):
        raise RuntimeError("stop")
    with (
        pytest.raises(RuntimeError, match="stop"),
        edited_weights(model, geometry, Variant(0, 0)),
    ):
        raise RuntimeError("stop")
    assert torch.equal(outputs(model), base)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("prune", [pruned, edited_weights])
@pytest.mark.parametrize(
    ("variant", "message"),
    [
        (Variant(4, 0), "layer 4 has no heads .* layers with heads are 0 to 3"),
        (Variant(1, 6, kind="noise"), "head 6 is out of range in layer 1"),
        (Variant(1, 6), "head 6 is out of range in layer 1; query heads are 0 to 5"),
    ],
)
def test_a_head_out_of_range_is_refused(qwen2, prune, variant: Variant, message: str):
    with pytest.raises(ModelError, match=message), prune(*qwen2, variant):
        pass


@pytest.mark.parametrize("architecture", DECODERS[:1] + ENCODERS[:1], ids=str)
def test_each_row_of_noise_in_a_mixed_batch_equals_a_hook_of_its_own(architecture: Architecture):
    model = tiny_models.build(architecture)
    geometry = find_heads(model)
    base = outputs(model)
    variants = [
        Variant(1, 4, kind="noise"),
        Variant(1, 2),
        Variant(2, 5, kind="noise"),
        Variant(kind="numeric", seed=2),
        Variant(1, 0, kind="noise"),
    ]
    with pruned(model, geometry, variants):
        masked = outputs(model)
    for row in (0, 2, 4):
        with noisy(model, geometry, variants[row]):
            expected = outputs(model)[row]
        torch.testing.assert_close(masked[row], expected, atol=1e-5, rtol=1e-5)
        assert (masked[row] - base[row]).abs().max() > 0.01
    with pruned(model, geometry, Variant(1, 2)):
        assert torch.equal(masked[1], outputs(model)[1])  # its neighbours' noise is not its own
    assert torch.equal(masked[3], base[3])


def test_noise_is_as_long_at_each_token_as_the_slice_of_its_head(qwen2):
    model, geometry = qwen2
    seen = []
    projection = geometry.output_projection(model, 1)
    with pruned(model, geometry, Variant(1, 3, kind="noise")):
        projection.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        outputs(model)
    outputs(model)
    with_noise, without = seen
    slices = without[..., geometry.layer(1).columns(3)]
    torch.testing.assert_close((with_noise - without).norm(dim=-1), slices.norm(dim=-1))
