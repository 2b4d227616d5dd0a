"""Criteria against sums written out and weights zeroed; the lowest heads go when they are due."""

import itertools
import math
from collections import Counter
from typing import get_args

import numpy as np
import pandas as pd
import pytest
import tiny_models
import torch
from small import certain_solver, same, weights
from tiny_models import named, wide
from torch.nn.utils.rnn import pad_sequence

from headsweep.config.compression import Importance
from headsweep.errors import ModelError
from headsweep.experiments.athena.generated import generate
from headsweep.experiments.compression.calibration import calibrate, row_batches, weight_norms
from headsweep.experiments.compression.criteria import (
    CRITERIA,
    accuracy_drops,
    calibration,
    head_scores,
    mixed,
)
from headsweep.experiments.compression.heads_to_remove import heads_at, heads_due, lowest_heads
from headsweep.models.geometry import AttentionLayer, HeadGeometry, evaluating, find_heads
from headsweep.models.learner import eager_attention
from headsweep.models.masks import edited_weights
from headsweep.models.removal import remove_heads, without
from headsweep.variants import BASE, Variant

LAYERS, HEADS, N = 2, 3, 11


@pytest.fixture(scope="module")
def solver():
    solver = certain_solver(N)
    solver.network.train()
    return solver


@pytest.fixture(scope="module")
def examples(solver):
    return solver.prepare(generate(N, seed=5))


def scores(solver, examples, **settings):
    geometry = find_heads(solver.encoder)
    return head_scores(solver, geometry, examples, examples[:4], Importance(**settings), 3)


def test_the_mixture_follows_its_settings(solver, examples):
    encoder, geometry = solver.encoder, find_heads(solver.encoder)
    batch = solver.collate(examples)
    found = calibrate(encoder, geometry, [batch.inputs], activations=True)
    norm = weight_norms(encoder, geometry)
    raw = {"alpha": 0.3, "entropy": "raw", "scale": "raw"}
    for settings, expected in [
        ({}, mixed(norm, found["normalised"], Importance(alpha=0.5))),
        (raw, mixed(norm, found["raw"], Importance(alpha=0.3, scale="raw"))),
        ({"alpha": 1.0, "scale": "raw", "norm": "activations"}, found["activations"]),
        ({"criterion": "attention"}, found["peak"]),
        ({"criterion": "attention", "batch_size": 3}, found["peak"]),
    ]:
        for layer, score in scores(solver, examples, **settings).items():
            torch.testing.assert_close(score, expected[layer], rtol=1e-4, atol=1e-5)


def test_the_causal_criterion_is_the_loss_without_each_head(solver, examples):
    found = scores(solver, examples, criterion="causal")
    geometry, batch = find_heads(solver.encoder), solver.collate(examples[:4])

    def loss(variant):
        edited = edited_weights(solver.encoder, geometry, variant)
        with torch.no_grad(), evaluating(solver.network), edited:
            return solver.task_loss(solver.network(batch), batch).item()

    for layer, rises in found.items():
        expected = [loss(Variant(layer, head)) - loss(BASE) for head in range(HEADS)]
        assert rises.tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("criterion", ["mixed", "causal", "random"])
def test_a_solver_is_left_as_it_was_and_scored_without_dropout(solver, examples, criterion):
    before = weights(solver)
    first, again = (scores(solver, examples, criterion=criterion) for _ in range(2))
    assert [len(first[layer]) for layer in first] == [HEADS] * LAYERS
    assert all(torch.equal(first[layer], again[layer]) for layer in first)
    assert solver.network.training and solver.encoder.training
    assert same(before, weights(solver))
    assert all(parameter.grad is None for parameter in solver.network.parameters())


def test_calibration_problems_are_always_the_same(examples):
    drawn = calibration(examples, Importance(calibration=7))
    assert drawn == calibration(examples, Importance(calibration=7))
    assert len({example.example_id for example in drawn}) == 7 and drawn != examples[:7]
    assert calibration(examples, Importance(calibration=None)) == examples


def test_data_that_does_not_suffice_is_refused():
    assert set(get_args(Importance.model_fields["criterion"].annotation)) < CRITERIA.keys()
    whole = shaped(*[(HEADS, HEADS)] * 3)
    for columns, missing in (
        (["base", "L01H00", "L01H02"], "L01H01"),
        (["L01H00"], "base"),
        (["base"], "all heads"),
    ):
        with pytest.raises(ModelError, match=f"lacks {missing}"):
            z = pd.DataFrame({name: [1, 0] for name in columns})
            accuracy_drops(z, whole, whole)
    bert = tiny_models.build(named("Bert"))
    one = {name: value[3:, :1] for name, value in texts().items()}
    with pytest.raises(ModelError, match="no text to calibrate on has two tokens"):
        calibrate(bert, find_heads(bert), [one])


WIDE, HEAD_DIM, LENGTHS, WINDOW = 6, 8, (9, 5, 2, 1), 3
WINDOWED = wide("Mistral", sliding_window=WINDOW)  # queries see the last three keys
KINDS = ("raw", "normalised", "peak")


def texts(side="right"):
    """Rows of different lengths with the same tokens whatever the padding."""
    draw = torch.Generator().manual_seed(0)
    rows = [torch.randint(3, 97, (length,), generator=draw) for length in LENGTHS]
    ones = [torch.ones_like(row) for row in rows]
    ids, mask = (pad_sequence(each, batch_first=True, padding_side=side) for each in (rows, ones))
    return {"input_ids": ids, "attention_mask": mask}


def test_the_norm_is_a_sum_over_projections_that_heads_may_share_or_that_are_fused():
    qwen2, gpt2 = (tiny_models.build(named(name)) for name in ("Qwen2", "GPT2"))
    norms = weight_norms(qwen2, find_heads(qwen2))
    attention = qwen2.model.layers[1].self_attn
    for head in range(WIDE):
        query, group = (slice(one * HEAD_DIM, (one + 1) * HEAD_DIM) for one in (head, head // 3))
        expected = attention.q_proj.weight[query].abs().mean() + sum(
            module.weight[group].abs().mean() for module in (attention.k_proj, attention.v_proj)
        )
        assert norms[1][head].item() == pytest.approx(expected.item(), rel=1e-5)
    weight = gpt2.transformer.h[1].attn.c_attn.weight  # (inputs, queries then keys then values)
    parts = weight.unflatten(1, (3, WIDE, HEAD_DIM)).abs().mean((0, 3)).sum(0)
    torch.testing.assert_close(weight_norms(gpt2, find_heads(gpt2))[1], parts)


def reference(model, *, causal, most):
    """Means over queries with two visible keys or more, one row at a time without padding."""
    found = []
    with eager_attention(model), torch.no_grad():
        for row, length in enumerate(LENGTHS):
            ids = texts()["input_ids"][[row], :length]
            maps = torch.stack(model(input_ids=ids, output_attentions=True).attentions)[:, 0]
            for query in range(1 if causal or length == 1 else 0, length):
                keys = query + 1 if causal else length
                seen = min(keys, most)
                p = maps[:, :, query, keys - seen : keys]
                raw = -(p * p.log()).sum(-1)
                found.append(torch.stack([raw, raw / math.log(seen), p.amax(-1)]))
    return torch.stack(found).mean(0)


@pytest.mark.parametrize(
    ("architecture", "side"),
    [
        (named("Bert"), "right"),  # absolute positions: at another place it is another text
        (named("MPNet"), "right"),  # returns attention weights only if asked to keep them all
        *((one, side) for one in (named("Qwen2"), WINDOWED) for side in ("left", "right")),
    ],
    ids=str,
)
def test_entropy_and_peak_do_not_depend_on_padding(architecture, side):
    model = tiny_models.build(architecture)
    most = WINDOW if architecture is WINDOWED else 99
    causal = architecture.name not in ("Bert", "MPNet")
    expected = reference(model, causal=causal, most=most)
    found = calibrate(model, find_heads(model), [texts(side)])
    layers = torch.stack([torch.stack([*found[kind].values()]) for kind in KINDS])
    torch.testing.assert_close(layers, expected)
    assert all(((one >= 0) & (one <= 1)).all() for one in found["normalised"].values())


def test_activations_are_means_over_valid_tokens():
    bert = tiny_models.build(named("Bert"))
    found = calibrate(bert, find_heads(bert), [texts()], activations=True)["activations"]
    seen = []
    query = bert.encoder.layer[2].attention.self
    for module in (query.query, query.key, query.value):
        module.register_forward_hook(lambda _, __, output: seen.append(output[0]))
    with torch.no_grad():
        for row, length in enumerate(LENGTHS):
            bert(input_ids=texts()["input_ids"][[row], :length])
    projected = [torch.cat(seen[part::3]).view(-1, WIDE, HEAD_DIM) for part in range(3)]
    torch.testing.assert_close(found[2], sum(part.abs().mean((0, 2)) for part in projected))


def test_a_pruned_model_is_scored_head_by_head():
    bert = tiny_models.build(named("Bert"))
    norms = weight_norms(bert, geometry := find_heads(bert))
    smaller = remove_heads(bert, geometry, [Variant(1, 0), Variant(1, 2)])
    again = weight_norms(bert, smaller)
    torch.testing.assert_close(again[1], norms[1][[1, 3, 4, 5]])
    torch.testing.assert_close(again[2], norms[2])
    assert calibrate(bert, smaller, [texts()])["raw"][1].shape == (4,)


NORM = {0: torch.tensor([1.0, 2.0, 5.0]), 1: torch.tensor([3.0, 4.0])}
ENTROPY = {0: torch.tensor([0.9, 0.5, 0.1]), 1: torch.tensor([0.3, 0.7])}


@pytest.mark.parametrize(
    ("settings", "first", "second"),
    [
        ({"alpha": 0.25, "scale": "raw"}, [0.925, 0.875, 1.325], [0.975, 1.525]),
        ({"alpha": 0.25}, [0.75, 0.4375, 0.25], [0.3125, 0.75]),  # both on one scale
        ({"alpha": 0.0}, [1.0, 0.5, 0.0], [0.25, 0.75]),
        ({"alpha": 1.0}, [0.0, 0.25, 1.0], [0.5, 0.75]),
        ({"alpha": 0.0, "entropy_sign": -1}, [-1.0, -0.5, 0.0], [-0.25, -0.75]),
    ],
)
def test_the_mixture_is_that_of_equation_4(settings, first, second):
    found = mixed(NORM, ENTROPY, Importance(**settings))
    assert found[0].tolist() == pytest.approx(first) and found[1].tolist() == pytest.approx(second)


def test_texts_are_scored_short_ones_first_and_each_once():
    rows = [np.arange(3, 6 + start % 5) for start in range(11)]
    batches = list(row_batches(rows, 4, torch.device("cpu")))
    lengths = [batch["attention_mask"].sum(1).tolist() for batch in batches]
    assert lengths == [[3, 3, 3, 4], [4, 5, 5, 6], [6, 7, 7]]
    assert [batch["input_ids"].shape for batch in batches] == [(4, 4), (4, 6), (3, 7)]


def shaped(*layers):
    """Layers of (query heads, key/value heads)."""
    return HeadGeometry(
        tuple(
            AttentionLayer(index, f"{index}", f"{index}.output", *heads, 5)
            for index, heads in enumerate(layers)
        )
    )


def random_scores(heads, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return {layer.index: torch.rand(layer.query_heads, generator=draw) for layer in heads.layers}


def test_the_count_equals_that_of_a_brute_force_over_single_heads():
    heads = shaped((5, 5), (4, 4), (3, 3))
    scores = random_scores(heads)
    every = [*heads.by_original_name().values()]
    whole = {tuple(head for head in every if head.layer == layer) for layer in range(3)}

    def total(chosen):
        return sum(float(scores[head.layer][head.head]) for head in chosen)

    for count in range(1, 10):
        subsets = itertools.combinations(every, count)
        allowed = [one for one in subsets if not any({*layer} <= {*one} for layer in whole)]
        assert lowest_heads(scores, heads, count) == sorted(min(allowed, key=total))


@pytest.mark.parametrize(
    ("shape", "layers", "unit", "steps", "left"),
    [
        ((8, 8), 4, "group", [1] * 8, [6, 6, 6, 6]),
        ((5, 5), 3, "group", [2, 2, 3], [2, 3, 3]),
        ((12, 4), 3, "group", [3, 9, 6], [6, 6, 6]),
        ((12, 4), 3, "query", [4, 8, 12], [4, 4, 4]),
        ((9, 3), 2, "query", [3, 3, 3], [3, 6]),
    ],
)
def test_layers_lose_equal_numbers_over_many_removals(shape, layers, unit, steps, left):
    """Though at every removal the scores of one layer are the lowest."""
    heads, gone = shaped(*[shape] * layers), Counter()
    for seed, count in enumerate(steps):
        scores = {layer: one + layer for layer, one in random_scores(heads, seed).items()}
        chosen = lowest_heads(scores, heads, count, scope="layer", unit=unit, gone=gone)
        assert len(chosen) == count
        heads = without(heads, chosen)
        gone.update(head.layer for head in chosen)
    assert sorted(layer.query_heads for layer in heads.layers) == left


MIDDLE = [0.4] * 3
RANKED = [0.5, 0.1, 0.3, 0.2, 0.9, 0.4]


@pytest.mark.parametrize(
    ("shape", "scores", "unit", "lowest"),
    [
        # A group has the mean of its heads' scores.
        ((6, 2), {0: [0.0, 0.0, 0.9, *MIDDLE], 1: [0.35] * 6}, "group", "L00H00 L00H01 L00H02"),
        ((6, 2), {0: [0.0, 0.0, 1.1, *MIDDLE], 1: [0.35] * 6}, "group", "L01H00 L01H01 L01H02"),
        # Queries go by their rank in each group, heads that are only zeroed one by one.
        ((6, 2), {0: RANKED, 1: [0.2] * 6}, "query", "L00H01 L00H03"),
        ((6, 2), {0: RANKED}, "head", "L00H01 L00H03"),
        ((6, 2), {0: RANKED}, "head", "L00H00 L00H01 L00H02 L00H03 L00H05"),
        ((3, 3), {0: [0.5, 0.1, 0.3]}, "query", "L00H01 L00H02"),
        ((3, 3), {1: [0.3, 0.2, 0.1]}, "group", "L01H01 L01H02"),  # layers without scores stay
    ],
)
def test_units_go_by_their_scores(shape, scores, unit, lowest):
    tensors = {layer: torch.tensor(values) for layer, values in scores.items()}
    heads = lowest_heads(tensors, shaped(shape, shape), len(lowest.split()), unit=unit)
    assert " ".join(map(str, heads)) == lowest


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_scores_that_are_no_numbers_choose_no_heads(value):
    sound, spoiled = torch.rand(6), torch.tensor([0.1, value, 0.3])
    message = f"layer 1: a head's score is {value}, so heads cannot be ranked"
    with pytest.raises(ModelError, match=message):
        lowest_heads({0: sound, 1: spoiled}, shaped((6, 2), (3, 3)), 1)
    with pytest.raises(ModelError, match=message):
        mixed({0: sound, 1: spoiled}, {0: sound, 1: torch.rand(3)}, Importance(scale="min_max"))


@pytest.mark.parametrize(
    ("heads", "settings", "removed"),
    [
        (144, {"ratio": 0.25, "exponent": 1}, [9, 18, 27, 36]),  # RoBERTa-base: nine a round
        (100, {"ratio": 0.5, "start": 0.1, "exponent": 2}, [12, 20, 32, 50]),
        (
            100,
            {"ratio": 0.29, "exponent": 1},
            [7, 14, 21, 29],
        ),  # 0.29 * 100 is below 29 in floating point
    ],
)
def test_rounds_rise_to_the_target(heads, settings, removed):
    found = [heads_due(heads, time / 4, **settings) for time in (1, 2, 3, 4)]
    assert found == removed
    assert found[-1] == heads_at(settings["ratio"], heads)
