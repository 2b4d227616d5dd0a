"""Distillation losses, against sums written out one candidate, thought, query and key at a time."""

import pytest
import torch
from small import certain_solver
from torch.distributions import Bernoulli, Categorical, kl_divergence

from headroom.athena.batches import Batch, collate
from headroom.athena.generated import generate
from headroom.athena.solver import MathSolver
from headroom.compression.distillation import distilled, frozen, without_attention_dropout
from headroom.config.compression import Distillation, Encoder, Solver
from headroom.models.attention import eager_attention
from headroom.models.geometry import HeadGeometry, find_heads
from headroom.models.learner import copied
from headroom.models.removal import remove_heads
from headroom.variants import Variant

SMALL = Solver(
    encoder=Encoder(layers=2, width=24, heads=3, intermediate=20, dropout=0.3, min_count=1), depth=4
)
PROBLEMS = generate(5, seed=5)


@pytest.fixture(scope="module")
def solver() -> MathSolver:
    solver = certain_solver(SMALL, len(PROBLEMS), 1)
    solver.athena.eval()
    return solver


@pytest.fixture(scope="module")
def batch(solver: MathSolver) -> Batch:
    return collate(solver.prepare(PROBLEMS), solver.tokenizer.pad_token_id)


@pytest.fixture(scope="module")
def teacher(solver: MathSolver) -> MathSolver:
    """It lacks a head itself, so that places and numbers differ."""
    smaller = copied(solver)
    remove_heads(smaller.encoder, find_heads(smaller.encoder), [Variant(1, 0)])
    return frozen(smaller)


@pytest.fixture
def student(teacher: MathSolver) -> tuple[MathSolver, HeadGeometry]:
    """Other weights, without heads 0 and 2 of the first layer; 2 of the second."""
    smaller = copied(teacher)
    smaller.athena.requires_grad_(True)
    heads = [Variant(0, 0), Variant(0, 2), Variant(1, 1)]
    geometry = remove_heads(smaller.encoder, find_heads(smaller.encoder), heads)
    with torch.no_grad():
        for parameter in smaller.athena.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.manual_seed(2)))
    return smaller, geometry


def outputs(solver: MathSolver, batch: Batch):
    with torch.no_grad(), eager_attention(solver.encoder):
        return solver.run(batch, attentions=True)


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_the_response_is_two_divergences(teacher, student, batch, temperature):
    settings = Distillation(
        temperature=temperature, feature="none", distill_weight=0.7, task_weight=0.2
    )
    solver, geometry = student
    parts = distilled(teacher, geometry, settings)(solver, batch)
    own, taught = outputs(solver, batch), outputs(teacher, batch)
    p, q = (Bernoulli(logits=one.reason.double() / temperature) for one in (taught, own))
    candidates = kl_divergence(p, q).mean().item()
    answers = 0.0
    for owner in range(len(PROBLEMS)):
        its = batch.accepted[-1][1].owner == owner
        p, q = (Categorical(logits=one.answer[its] / temperature) for one in (taught, own))
        answers += kl_divergence(p, q).item() / len(PROBLEMS)
    assert min(candidates, answers) > 1e-3
    expected = 0.7 * temperature**2 * (candidates + answers)
    assert parts["response"].item() == pytest.approx(expected, rel=1e-4)
    assert parts["task"].item() == pytest.approx(
        0.2 * solver.task_loss(own, batch).item(), rel=1e-4
    )
    assert set(parts) == {"task", "response"}


SURVIVORS = {0: [1], 1: [0]}
"""Places among the teacher's heads, which are 0, 1, 2 and, in the second layer, 1, 2."""


@pytest.mark.parametrize("feature", ["matched", "mean"])
@pytest.mark.parametrize("reduction", ["keys", "literal"])
def test_the_feature_is_a_squared_difference_of_attention(
    teacher, student, batch, feature, reduction
):
    settings = Distillation(feature=feature, reduction=reduction, response=False, beta=3.0)
    solver, geometry = student
    parts = distilled(teacher, geometry, settings)(solver, batch)
    own, taught = outputs(solver, batch), outputs(teacher, batch)
    valid, expected = batch.texts.attention_mask.bool(), 0.0
    assert not valid.all()
    for layer, (a, b) in enumerate(zip(own.attentions, taught.attentions, strict=True)):
        found = []
        for text, mask in enumerate(valid):  # [heads, queries, keys]
            if feature == "mean":
                squares = (a[text].mean(0) - b[text].mean(0)) ** 2
            else:
                squares = (a[text] - b[text, SURVIVORS[layer]]) ** 2
            squares = squares.view(-1, *squares.shape[-2:])
            found += squares[:, mask].sum(-1) if reduction == "keys" else squares
        expected += torch.cat([one.flatten() for one in found]).mean().item() / 2
    assert expected > 1e-5
    assert parts["feature"].item() == pytest.approx(0.5 * 3.0 * expected, rel=1e-4)
    assert set(parts) == {"task", "feature"}


def test_a_student_that_is_its_teacher_learns_nothing(solver, batch):
    geometry = find_heads(solver.encoder)
    teacher = frozen(solver)
    parts = distilled(teacher, geometry, Distillation())(solver, batch)
    assert parts["response"].item() == parts["feature"].item() == 0.0
    assert parts["task"].item() > 0.01


def test_attention_maps_have_no_dropout_while_a_student_trains(solver, batch):
    solver = copied(solver)
    solver.athena.train()
    valid = batch.texts.attention_mask.bool()

    def total() -> torch.Tensor:
        maps = outputs(solver, batch).attentions
        return torch.cat([layer.sum(-1).mean(1)[valid] for layer in maps])

    torch.manual_seed(0)
    with without_attention_dropout(solver.encoder):
        torch.testing.assert_close(total(), torch.ones(2 * int(valid.sum())))
        assert solver.encoder.encoder.layer[0].attention.output.dropout.p == 0.3
    assert (total() - 1).abs().max() > 0.1
