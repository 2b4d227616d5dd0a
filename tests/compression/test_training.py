"""Training a solver: it learns, goes on after a kill to the bit, and takes other objectives."""

from collections.abc import Callable

import pytest
import torch
from accelerate.state import AcceleratorState
from small import killed_at, same, weights

from headroom.athena.batches import Example
from headroom.athena.generated import generate
from headroom.athena.problems import divide
from headroom.athena.solver import MathSolver, new_solver
from headroom.compression import training as training_module
from headroom.compression.training import Between, Fit, task, train
from headroom.config.compression import Encoder, Partition, Solver, Training, profile
from headroom.errors import ModelError
from headroom.models.geometry import find_heads
from headroom.models.learner import Verdict
from headroom.models.removal import remove_heads
from headroom.variants import Variant

SMALL = Solver(
    encoder=Encoder(layers=2, width=24, heads=3, intermediate=32, min_count=1),
    depth=4,
    dropout=0.2,
)
RECIPE = Training(epochs=3, patience=None, batch_size=7, learning_rate=2e-3, checkpoint_steps=2)
N = 31  # 5 steps an epoch, the last one of 3 problems


def setup(n: int = N, seed: int = 2) -> tuple[MathSolver, list[Example]]:
    problems = generate(n, seed=5)
    solver = new_solver(SMALL, problems, seed)
    return solver, solver.prepare(problems)


def fit(recipe: Training = RECIPE, **more) -> tuple[dict[str, torch.Tensor], Fit]:
    solver, examples = setup()
    result = train(solver, examples, more.pop("dev", []), recipe, seed=9, device="cpu", **more)
    return weights(solver), result


def recipe(**changes) -> Training:
    return RECIPE.model_copy(update=changes)


def test_the_fixture_profile_learns_generated_problems_within_seconds():
    parts = divide(generate(450, seed=0), Partition(ratios=(8, 1, 1)))
    settings = profile("fixture", "generated")
    solver = new_solver(settings, parts.train, seed=0)
    examples, _, test = map(solver.prepare, parts)
    assert sum(parameter.numel() for parameter in solver.athena.parameters()) < 400_000
    train(solver, examples, [], settings.training, seed=0, device="cpu")
    solved = sum(verdict.strict for verdict in solver.verdicts(test))
    assert solved >= 0.5 * len(test)


def test_a_killed_training_goes_on_to_the_same_weights(tmp_path):
    """It dies at step 8, in the middle of the second epoch, after the checkpoint of step 6."""
    _, examples = setup()
    whole, undisturbed = fit(recipe(patience=3), dev=examples[:9])
    checkpoint = tmp_path / "state.safetensors"

    class Counter(Between):
        def __init__(self, count: Callable[[], None]) -> None:
            self.count = count
            self.steps: list[int] = []

        def after_step(self, step: int) -> bool:
            self.steps.append(step)
            self.count()
            return False

    def resumed(count: Callable[[], None] = lambda: None):
        counter = Counter(count)
        found = fit(recipe(patience=3), dev=examples[:9], checkpoint=checkpoint, between=counter)
        return *found, counter.steps

    killed_at(8, resumed)
    for steps in (list(range(7, 16)), []):  # a finished training is not trained again
        trained, result, done = resumed()
        assert done == steps
        assert same(whole, trained)
        assert result == undisturbed
    assert sorted(file.name for file in tmp_path.iterdir()) == ["state.safetensors"]


def test_accumulated_gradients_are_those_of_the_whole_batch():
    """Without dropout, three pieces of 7 problems make the step that all of them make."""
    results = []
    for pieces in (1, 3):
        solver, examples = setup()
        for module in solver.athena.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        solver.athena.encoder.config._attn_implementation = "eager"  # reads its dropout module
        train(solver, examples, [], recipe(epochs=1, micro_batches=pieces), seed=9, device="cpu")
        results.append(weights(solver))
    for name, tensor in results[0].items():
        torch.testing.assert_close(results[1][name], tensor, rtol=1e-3, atol=1e-4)


def test_moments_are_cut_with_the_weights(monkeypatch):
    """Each remaining row and column goes on with its own; the count of steps goes on, too."""
    solver, examples = setup()
    encoder, take, seen = solver.athena.encoder, training_module._Run.take_moments, []

    class Cut(Between):
        def after_step(self, step: int) -> bool:
            if step == 3:  # of three heads of 8 the middle one goes
                remove_heads(encoder, find_heads(encoder), [Variant(1, 1)])
            return step == 3

    def moments(run) -> dict[str, dict[str, torch.Tensor]]:
        state = run.optimizer.state
        return {
            name: {key: value.clone() for key, value in state[one].items()}
            for name, one in run.named.items()
            if one in state
        }

    def noted(run) -> None:
        seen.append(moments(run))
        take(run)
        seen.append(moments(run))

    monkeypatch.setattr(training_module._Run, "take_moments", noted)
    train(solver, examples, [], recipe(epochs=1), seed=9, between=Cut(), device="cpu")
    before, after = seen
    left, attention, cut = torch.tensor([*range(8), *range(16, 24)]), "layer.1.attention.", 0
    for name, own in before.items():
        axis = 0 if f"{attention}self." in name else 1
        if axis == 0 or f"{attention}output.dense.weight" in name:
            cut += 1
            own = {
                key: one.index_select(axis, left) if one.ndim else one for key, one in own.items()
            }
        assert same(own, after[name]), name
    assert cut == 7 and before.keys() == after.keys()


def test_patience_ends_training_and_takes_the_best_epoch():
    solver, examples = setup()
    accuracies = iter([3, 5, 5, 4, 5, 9])
    kept = {}

    class Scripted(MathSolver):
        def verdicts(self, examples):
            right = next(accuracies)
            kept[right] = kept.get(right) or weights(self)
            return [Verdict("", "low", None, place < right, True) for place in range(10)]

    scripted = Scripted(solver.athena, solver.tokenizer, solver.constants, solver.settings)
    result = train(
        scripted, examples, examples[:10], recipe(epochs=9, patience=3), seed=9, device="cpu"
    )
    assert (result.best, len(result.epochs)) == (2, 5)
    assert [epoch.dev_strict for epoch in result.epochs] == [0.3, 0.5, 0.5, 0.4, 0.5]
    assert same(weights(solver), kept[5])


def test_without_patience_the_development_part_is_looked_at_once():
    _, examples = setup()
    seen = [epoch.dev_strict for epoch in fit(dev=examples[:9])[1].epochs]
    assert seen[:2] == [None, None] and seen[2] is not None
    assert same(fit(dev=examples[:9])[0], fit()[0])


def test_patience_without_a_development_part_is_refused():
    with pytest.raises(ModelError, match="patience needs a development part"):
        fit(recipe(patience=2))


def test_a_loss_that_is_no_number_is_one_clear_line():
    with pytest.raises(ModelError, match=r"^the task part of the loss is nan at step 1; lower "):
        fit(objective=lambda *both: {"task": task(*both)["task"] * float("nan")})


def test_mixed_precision_trains_too():
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        trained, result = fit(recipe(precision="bf16"))
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
    assert result.epochs[-1].losses["task"] < result.epochs[0].losses["task"]
    assert {tensor.dtype for tensor in trained.values() if tensor.is_floating_point()} == {
        torch.float32
    }
