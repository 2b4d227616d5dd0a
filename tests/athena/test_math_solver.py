"""A solver as a learner: its verdicts, and its copies with other weights."""

import pytest
import torch

from headroom.athena.batches import Example
from headroom.athena.equations import NUMBER, Problem, parse
from headroom.athena.generated import generate
from headroom.athena.solver import MathSolver, new_solver
from headroom.config.compression import Encoder, Solver
from headroom.models.geometry import find_heads
from headroom.models.learner import accuracy, copied
from headroom.models.removal import remove_heads
from headroom.variants import Variant

SMALL = Solver(encoder=Encoder(layers=2, width=24, heads=3, intermediate=20, min_count=1), depth=4)
N = 7


@pytest.fixture(scope="module")
def solver() -> MathSolver:
    return new_solver(SMALL, generate(N, seed=5), 1)


@pytest.fixture(scope="module")
def examples(solver: MathSolver) -> list[Example]:
    return solver.prepare(generate(N, seed=5))


def test_verdicts_are_its_solutions_by_complexity(solver: MathSolver) -> None:
    problems = [
        Problem(str(place), f"{NUMBER} and {NUMBER} ?", 0, (3.0, 4.0), parse(equation), 7.0, "0")
        for place, equation in enumerate(
            ["n0+n1", "(n0+n1)*n0", "n0+n1+n0+n1", "((n0+n1)*n0-n1)*n0"]
        )
    ]
    examples = solver.prepare(problems)
    solutions = solver.answers(examples)
    verdicts = solver.verdicts(examples)
    assert [one.stratum for one in verdicts] == ["low", "medium", "medium", "high"]
    for verdict, solution in zip(verdicts, solutions, strict=True):
        assert (verdict.example_id, verdict.answer) == (solution.problem_id, solution.expression)
        assert (verdict.strict, verdict.lenient) == (solution.strict, solution.lenient)
    assert accuracy(solver, examples) == sum(one.strict for one in solutions) / 4
    assert accuracy(solver, []) is None


def test_random_weights_have_all_heads_again(solver: MathSolver) -> None:
    smaller = copied(solver)
    remove_heads(smaller.encoder, find_heads(smaller.encoder), [Variant(1, 2)])
    first, again, other = (smaller.untrained(seed) for seed in (4, 4, 5))
    assert [layer.query_heads for layer in find_heads(first.encoder).layers] == [3, 3]
    weights, same, different = (one.network.state_dict() for one in (first, again, other))
    assert all(torch.equal(weights[name], same[name]) for name in weights)
    whole = solver.network.state_dict()
    for name, tensor in weights.items():
        if tensor.ndim > 1 and len(tensor) and tensor.is_floating_point():
            assert not torch.equal(tensor, different[name]), name
            assert not torch.equal(tensor, whole[name]), name


def test_weights_of_eight_bits_hardly_change_what_a_solver_says(
    solver: MathSolver, examples: list[Example]
) -> None:
    solver.athena.eval()
    quantised = solver.quantised()
    assert not any(isinstance(one, torch.nn.Linear) for one in quantised.network.modules())
    batch = solver.collate(examples)
    with torch.no_grad():
        own, rounded = (one.run(batch).reason for one in (solver, quantised))
    assert 0 < (own - rounded).abs().max() < 0.3
    assert len(quantised.verdicts(examples)) == N
