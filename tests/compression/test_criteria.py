"""The criterion that the settings name scores heads: against weights zeroed, and slopes."""

from typing import get_args

import pandas as pd
import pytest
import torch

from headroom.athena.batches import Example, collate
from headroom.athena.generated import generate
from headroom.athena.networks import task_loss
from headroom.athena.solver import MathSolver, new_solver
from headroom.compression.choice import Scores
from headroom.compression.criteria import (
    CRITERIA,
    accuracy_drops,
    calibrate,
    calibration,
    head_scores,
    mixed,
    weight_norms,
)
from headroom.config.compression import Encoder, Importance, Solver
from headroom.errors import ModelError
from headroom.models.geometry import AttentionLayer, HeadGeometry, find_heads
from headroom.models.masks import zero_head_weights
from headroom.variants import Variant

LAYERS, HEADS = 2, 3
SMALL = Solver(
    encoder=Encoder(layers=LAYERS, width=24, heads=HEADS, intermediate=20, min_count=1), depth=4
)
N = 11
GEOMETRY = HeadGeometry(
    tuple(AttentionLayer(index, f"{index}", HEADS, HEADS, 5) for index in (1, 4, 6))
)


@pytest.fixture(scope="module")
def solver() -> MathSolver:
    solver = new_solver(SMALL, generate(N, seed=5), 1)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in solver.athena.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=draw))
    solver.athena.train()
    return solver


@pytest.fixture(scope="module")
def examples(solver: MathSolver) -> list[Example]:
    return solver.prepare(generate(N, seed=5))


def scores(solver: MathSolver, examples: list[Example], seed: int = 3, **settings) -> Scores:
    geometry = find_heads(solver.athena.encoder)
    torch.manual_seed(seed)
    return head_scores(solver, geometry, examples, examples[:4], Importance(**settings), seed)


def loss(solver: MathSolver, examples: list[Example]) -> float:
    solver.athena.eval()
    batch = collate(examples, solver.tokenizer.pad_token_id)
    with torch.no_grad():
        value = task_loss(solver.athena(batch), batch).item()
    solver.athena.train()
    return value


def test_the_mixture_follows_its_settings(solver, examples):
    encoder, geometry = solver.athena.encoder, find_heads(solver.athena.encoder)
    batch = collate(examples, solver.tokenizer.pad_token_id).texts
    texts = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    found = calibrate(encoder, geometry, [texts])
    norm = weight_norms(encoder, geometry)
    raw = {"alpha": 0.3, "entropy": "raw", "scale": "raw"}
    for settings, expected in [
        ({}, mixed(norm, found.entropy, Importance(alpha=0.5))),
        (raw, mixed(norm, found.raw_entropy, Importance(alpha=0.3, scale="raw"))),
        ({"alpha": 1.0, "scale": "raw", "norm": "activations"}, found.activation_norms),
        ({"criterion": "attention"}, found.peak),
    ]:
        for layer, score in scores(solver, examples, **settings).items():
            torch.testing.assert_close(score, expected[layer], rtol=1e-4, atol=1e-5)


def test_the_causal_criterion_is_the_loss_without_each_head(solver, examples):
    found = scores(solver, examples, criterion="causal")
    geometry, base = find_heads(solver.athena.encoder), loss(solver, examples[:4])
    for layer in range(LAYERS):
        for head in range(HEADS):
            with zero_head_weights(solver.athena.encoder, geometry, Variant(layer, head)):
                expected = loss(solver, examples[:4]) - base
            assert found[layer][head].item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("criterion", ["mixed", "attention", "causal", "random"])
def test_a_solver_is_left_as_it_was_and_scored_without_dropout(solver, examples, criterion):
    before = {name: tensor.clone() for name, tensor in solver.athena.state_dict().items()}
    first = scores(solver, examples, criterion=criterion)
    again = scores(solver, examples, criterion=criterion)
    assert [len(first[layer]) for layer in first] == [HEADS] * LAYERS
    for layer in first:
        assert torch.equal(first[layer], again[layer])
    assert solver.athena.training and solver.athena.encoder.training
    for name, tensor in solver.athena.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert all(parameter.grad is None for parameter in solver.athena.parameters())
    assert all(not module._forward_pre_hooks for module in solver.athena.modules())


def test_every_criterion_of_a_config_is_there() -> None:
    assert set(get_args(Importance.model_fields["criterion"].annotation)) < CRITERIA.keys()


def test_a_random_score_follows_the_seed(solver, examples):
    one, other = (scores(solver, examples, seed, criterion="random") for seed in (3, 4))
    assert not torch.equal(one[0], other[0])


def test_calibration_problems_are_always_the_same(examples):
    drawn = calibration(examples, Importance(calibration=7))
    assert drawn == calibration(examples, Importance(calibration=7))
    assert len(drawn) == 7 and drawn != examples[:7]
    assert len({example.problem.problem_id for example in drawn}) == 7
    assert calibration(examples, Importance(calibration=None)) == examples


def test_the_causal_criterion_needs_a_development_part(solver, examples):
    geometry = find_heads(solver.athena.encoder)
    with pytest.raises(ModelError, match="criterion causal needs a development part"):
        head_scores(solver, geometry, examples, [], Importance(criterion="causal"), 0)


@pytest.mark.parametrize(
    ("columns", "missing"),
    [(["base", "L01H00", "L01H02"], "L01H01"), (["L01H00"], "base"), (["base"], "all heads")],
)
def test_a_matrix_with_holes_is_refused(columns: list[str], missing: str):
    z = pd.DataFrame({name: [1, 0] for name in columns})
    with pytest.raises(ModelError, match=f"lacks {missing}"):
        accuracy_drops(z, GEOMETRY)
