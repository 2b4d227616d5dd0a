import math

import pytest
import torch
from beartype import beartype
from jaxtyping import TypeCheckError, jaxtyped

from headroom.sprint.loss import agreement, alignment, separation, solvable, squared_distances

QUESTIONS, POOL, DIMENSION = 13, 7, 3


@pytest.fixture
def points() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    queries = torch.randn(QUESTIONS, DIMENSION, generator=draw, dtype=torch.float64)
    heads = torch.randn(POOL, DIMENSION, generator=draw, dtype=torch.float64)
    correct = torch.rand(QUESTIONS, POOL, generator=draw) < 0.4
    correct[2] = False
    correct[5] = True
    return queries, heads, correct


def as_printed(q: list, v: list, z: list, weight: float) -> float:
    """The paper's formula, one sum at a time; questions that no head solves are left out."""

    def squared(a: list, b: list) -> float:
        return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))

    terms = []
    for i in range(len(q)):
        solving = [j for j in range(len(v)) if z[i][j]]
        if solving:
            above = sum(math.exp(-squared(q[i], v[j])) for j in solving)
            below = sum(math.exp(-squared(q[i], v[j])) for j in range(len(v)))
            terms.append(-math.log(above / below))
    apart = 0.0
    for j in range(len(v)):
        for k in range(j + 1, len(v)):
            s = sum(z[i][j] == z[i][k] for i in range(len(q))) / len(q)
            apart += s * squared(v[j], v[k])
    return sum(terms) / len(terms) - weight * apart


def test_loss_equals_the_formula_summed_one_term_at_a_time(points: tuple) -> None:
    queries, heads, correct = points
    kept = solvable(correct)
    weights = agreement(correct).double()
    for diversity in (0.0, 0.3):
        total = alignment(squared_distances(queries, heads)[kept], correct[kept])
        total = total - diversity * separation(heads, weights)
        wanted = as_printed(queries.tolist(), heads.tolist(), correct.tolist(), diversity)
        assert total.item() == pytest.approx(wanted, abs=1e-6)  # s_jk is float32


def test_only_the_question_that_no_head_solves_is_left_out(points: tuple) -> None:
    kept = solvable(points[2])
    assert not kept[2]
    assert kept.sum() == QUESTIONS - 1


def test_a_question_that_all_heads_solve_has_no_loss_and_no_gradient(points: tuple) -> None:
    queries, heads, correct = points
    heads.requires_grad_()
    value = alignment(squared_distances(queries[[5]], heads), correct[[5]])
    value.backward()
    assert value.item() == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(heads.grad, torch.zeros_like(heads))


def test_alignment_survives_distances_that_underflow() -> None:
    distances = torch.tensor([[4000.0, 1000.0, 1003.0]])
    correct = torch.tensor([[True, False, True]])
    wanted = 3 + math.log1p(math.exp(-3))
    assert alignment(distances, correct).item() == pytest.approx(wanted, rel=1e-4)


def test_descent_pushes_heads_that_agree_apart_and_without_bound(points: tuple) -> None:
    _, heads, correct = points
    weights = agreement(correct).double()
    heads.requires_grad_()
    (-separation(heads, weights)).backward()
    downhill = heads - heads.grad
    assert separation(downhill, weights) > separation(heads, weights)
    assert separation(1000 * heads, weights) > 1e5 * separation(heads, weights)


def test_shapes_of_questions_and_pool_are_checked(points: tuple) -> None:
    queries, heads, correct = points
    checked = jaxtyped(typechecker=beartype)(alignment)
    checked(squared_distances(queries, heads), correct)
    with pytest.raises(TypeCheckError):
        checked(squared_distances(heads, queries), correct)
