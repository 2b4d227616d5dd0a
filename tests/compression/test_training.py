"""Training a solver: it learns, and moments are cut with weights; distillation losses against
sums written out one candidate, thought, query and key at a time.
"""

import copy
import weakref
from collections import Counter

import pytest
import torch
from accelerate.state import AcceleratorState
from small import SMALL, assert_trained_alike, certain_solver, same, weights
from torch.distributions import Bernoulli, Categorical, kl_divergence

from headsweep.config.compression import Distillation
from headsweep.config.solvers import Partition, Solver, Training
from headsweep.errors import ModelError
from headsweep.experiments.athena.generated import generate
from headsweep.experiments.athena.problems import divide
from headsweep.experiments.athena.solver import MathSolver, new_solver
from headsweep.experiments.compression import distillation
from headsweep.experiments.compression import training as training_module
from headsweep.experiments.compression.distillation import (
    distilled,
    frozen,
    without_attention_dropout,
)
from headsweep.experiments.compression.training import TrainingCallback, task, train
from headsweep.models.geometry import find_heads
from headsweep.models.learner import JudgedAnswer, copied, eager_attention, shares
from headsweep.models.removal import remove_heads
from headsweep.variants import Variant

RECIPE = Training(epochs=3, patience=None, batch_size=7, learning_rate=2e-3, checkpoint_steps=2)
N = 31  # 5 steps an epoch, the last one of 3 problems


def setup():
    problems = generate(N, seed=5)
    solver = new_solver(SMALL, problems, seed=2)
    return solver, solver.prepare(problems)


def fit(recipe=RECIPE, **more):
    solver, examples = setup()
    result = train(solver, examples, more.pop("dev", []), recipe, seed=9, **more)
    return weights(solver), result


def recipe(**changes):
    return RECIPE.model_copy(update=changes)


def test_the_fixture_profile_learns_generated_problems_within_seconds():
    parts = divide(generate(450, seed=0), Partition(ratios=(8, 1, 1)))
    settings = Solver(profile="fixture").on("generated")
    solver = new_solver(settings, parts.train, seed=0)
    examples, _, test = map(solver.prepare, parts)
    assert sum(parameter.numel() for parameter in solver.network.parameters()) < 400_000
    train(solver, examples, [], settings.training, seed=0)
    solved = sum(verdict.strict for verdict in solver.verdicts(test))
    assert solved >= 0.5 * len(test)


def test_accumulated_gradients_are_those_of_the_whole_batch():
    """Without dropout, three pieces of 7 problems make the step that all of them make."""
    results = []
    for pieces in (1, 3):
        solver, examples = setup()
        for module in solver.network.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        solver.encoder.config._attn_implementation = "eager"  # reads its dropout module
        train(solver, examples, [], recipe(epochs=1, micro_batches=pieces), seed=9)
        results.append(weights(solver))
    assert_trained_alike(*results)


def test_moments_are_cut_with_the_weights(monkeypatch):
    """Each remaining row and column goes on with its own; the count of steps goes on, too."""
    solver, examples = setup()
    encoder, take, seen = solver.encoder, training_module._Run.take_moments, []

    class Cut(TrainingCallback):
        def after_step(self, step):
            if step == 3:  # of three heads of 8 the middle one goes
                remove_heads(encoder, find_heads(encoder), [Variant(1, 1)])
            return step == 3

    def noted(run):
        for act in (lambda _: None, take):
            act(run)
            states = {
                name: run.optimizer.state.get(one, {})
                for name, one in run.parameters_by_name.items()
            }
            seen.append(copy.deepcopy(states))

    monkeypatch.setattr(training_module._Run, "take_moments", noted)
    train(solver, examples, [], recipe(epochs=1), seed=9, callback=Cut())
    before, after = seen
    left, cut = torch.tensor([*range(8), *range(16, 24)]), 0
    axes = {"layer.1.attention.self.": 0, "layer.1.attention.output.dense.weight": 1}
    for name, state in before.items():
        for axis in (axis for part, axis in axes.items() if part in name):
            for key in ("exp_avg", "exp_avg_sq"):
                state[key], cut = state[key].index_select(axis, left), cut + 1
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert cut == 2 * 7


def test_patience_ends_training_and_takes_the_best_epoch():
    solver, examples = setup()
    accuracies = iter([3, 5, 5, 4, 5, 9])
    kept = {}

    class Scripted(MathSolver):
        def verdicts(self, examples):
            right = next(accuracies)
            kept[right] = kept.get(right) or weights(self)
            return [JudgedAnswer("", "low", None, place < right, True) for place in range(10)]

    scripted = Scripted(**vars(solver))
    result = train(scripted, examples, examples[:10], recipe(epochs=9, patience=3), seed=9)
    assert (result.best, len(result.epochs)) == (2, 5)
    assert [epoch.dev_strict for epoch in result.epochs] == [0.3, 0.5, 0.5, 0.4, 0.5]
    assert same(weights(solver), kept[5])
    _, result = fit(dev=setup()[1][:9])  # without patience it is looked at once
    seen = [epoch.dev_strict for epoch in result.epochs]
    assert seen[:2] == [None, None] and seen[2] is not None


def test_what_cannot_be_trained_is_one_clear_line():
    with pytest.raises(ModelError, match=r"^the task part of the loss is nan at step 1; lower "):
        fit(objective=lambda *both: {"task": task(*both)["task"] * float("nan")})


def test_mixed_precision_trains_too():
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        trained, result = fit(recipe(precision="bf16"))
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
    assert result.epochs[-1].losses["task"] < result.epochs[0].losses["task"]
    assert {one.dtype for one in trained.values()} <= {torch.float32, torch.int64}


PROBLEMS = generate(5, seed=5)


@pytest.fixture(scope="module")
def solver():
    solver = certain_solver(len(PROBLEMS))
    solver.network.eval()
    return solver


@pytest.fixture(scope="module")
def batch(solver):
    return solver.collate(solver.prepare(PROBLEMS))


@pytest.fixture(scope="module")
def teacher(solver):
    """It lacks a head itself, so that places and numbers differ."""
    smaller = copied(solver)
    remove_heads(smaller.encoder, find_heads(smaller.encoder), [Variant(1, 0)])
    return frozen(smaller)


@pytest.fixture
def student(teacher):
    """Other weights, without heads 0 and 2 of the first layer; 2 of the second."""
    smaller = copied(teacher)
    smaller.network.requires_grad_(True)
    heads = [Variant(0, 0), Variant(0, 2), Variant(1, 1)]
    geometry = remove_heads(smaller.encoder, find_heads(smaller.encoder), heads)
    with torch.no_grad():
        for parameter in smaller.network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.manual_seed(2)))
    return smaller, geometry


def outputs(solver, batch):
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
    response = 0.7 * temperature**2 * (candidates + answers)
    task = 0.2 * solver.task_loss(own, batch).item()
    found = {name: part.item() for name, part in parts.items()}
    assert found == pytest.approx({"task": task, "response": response}, rel=1e-4)


def test_gradients_of_all_parts_are_those_of_the_whole_batch(teacher, student):
    """Two pieces: problems of three texts, which differ in length and candidates, and all others.

    Without dropout, as in evaluation mode.
    """
    solver, geometry = student
    objective = distilled(teacher, geometry, Distillation())
    examples = sorted(solver.prepare(PROBLEMS), key=lambda example: len(example.input_ids))
    found = []
    for divided in ([examples], [examples[:3], examples[3:]]):
        pieces = [solver.collate(piece) for piece in divided]
        solver.network.zero_grad()
        sums = Counter()
        for piece, share in zip(pieces, shares(pieces), strict=True):
            parts = objective(solver, piece, share)
            sum(parts.values()).backward()
            sums.update({name: part.item() for name, part in parts.items()})
        trained = [each for each in solver.network.parameters() if each.grad is not None]
        gradients = [each.grad.clone() for each in trained]
        found.append((sums, gradients))
    (whole, wanted), (divided, gradients) = found
    assert set(whole) == {"task", "response", "feature"} and divided == pytest.approx(whole)
    torch.testing.assert_close(gradients, wanted, rtol=1e-3, atol=1e-6)


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
    valid, expected = batch.inputs["attention_mask"].bool(), 0.0
    assert not valid.all()
    for layer, (a, b) in enumerate(zip(own.attentions, taught.attentions, strict=True)):
        found = []
        for text, mask in enumerate(valid):  # [heads, queries, keys]
            pair = a[text], b[text, SURVIVORS[layer]]
            if feature == "mean":
                pair = a[text].mean(0, True), b[text].mean(0, True)
            squares = (pair[0] - pair[1]) ** 2
            found += squares[:, mask].sum(-1) if reduction == "keys" else squares
        expected += torch.cat([one.flatten() for one in found]).mean().item() / 2
    assert expected > 1e-5
    assert parts["feature"].item() == pytest.approx(0.5 * 3.0 * expected, rel=1e-4)
    assert set(parts) == {"task", "feature"}


def test_a_layer_s_maps_are_freed_when_they_were_compared(teacher, student, batch, monkeypatch):
    """Of the teacher's, which no backward pass needs; all at once are a third of the memory."""
    seen, alive = [], []
    compare, run = distillation._feature_loss, type(teacher).run

    def watched(learner, *own, **options):
        output = run(learner, *own, **options)
        if learner.network is teacher.network:
            seen.extend(map(weakref.ref, output.attentions))
        return output

    def compared(*own):
        alive.append(sum(each() is not None for each in seen))
        return compare(*own)

    monkeypatch.setattr(type(teacher), "run", watched)
    monkeypatch.setattr(distillation, "_feature_loss", compared)
    solver, geometry = student
    distilled(teacher, geometry, Distillation())(solver, batch)
    assert alive == [2, 1]


def test_attention_maps_have_no_dropout_while_a_student_trains(solver, batch):
    solver = copied(solver)
    solver.network.train()
    valid = batch.inputs["attention_mask"].bool()

    def total():
        maps = outputs(solver, batch).attentions
        return torch.cat([layer.sum(-1).mean(1)[valid] for layer in maps])

    torch.manual_seed(0)
    with without_attention_dropout(solver.encoder):
        torch.testing.assert_close(total(), torch.ones(2 * int(valid.sum())))
        assert solver.encoder.encoder.layer[0].attention.output.dropout.p == 0.3
    assert (total() - 1).abs().max() > 0.1
