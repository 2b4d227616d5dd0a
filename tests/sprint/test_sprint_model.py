"""The terms of the loss, and a selector's geometry, ranking and file."""

import math
from pathlib import Path

import pytest
import torch

from headroom.errors import TableError
from headroom.sprint.model import HeadSelector, Setting, load, rank, save, squared_distances
from headroom.sprint.training import agreement, alignment, separation

EMBEDDING_DIM, POOL, DIMENSION = 11, 7, 5
GEOMETRIES = ("sphere", "ball", "literal")


def make(geometry: str, seed: int = 0) -> HeadSelector:
    return HeadSelector(EMBEDDING_DIM, POOL, Setting(geometry, DIMENSION, 0.1), seed)


def questions(scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(13, EMBEDDING_DIM, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_distances_equal_their_definition(geometry: str) -> None:
    selector = make(geometry)
    place = {
        "sphere": lambda u: u / u.norm(),
        "ball": lambda u: u / (1 + u.norm() ** 2) ** 0.5,
        "literal": lambda u: u,
    }[geometry]
    found = selector.distances(questions())
    assert found.shape == (13, POOL)
    for i, x in enumerate(questions()):
        for j, v in enumerate(selector.heads):
            q = selector.theta_weight @ x + selector.theta_bias
            wanted = (place(q) - place(v)).square().sum()
            torch.testing.assert_close(found[i, j], wanted, atol=1e-5, rtol=1e-5)


def test_ranking_is_by_ascending_distance_and_ties_keep_the_order_of_the_pool() -> None:
    selector = make("sphere")
    with torch.no_grad():
        selector.heads[5] = selector.heads[2]
        wanted = selector.distances(questions()).clamp_min(0).numpy()
    order, distances = rank(selector, questions())
    assert (order == wanted.argsort(axis=1, kind="stable")).all()
    assert (distances[:, :-1] <= distances[:, 1:]).all()
    positions = order.argsort(axis=1)
    assert (positions[:, 5] == positions[:, 2] + 1).all()


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_saved_selector_loads_again(geometry: str, tmp_path: Path) -> None:
    facts = {"heads": ["L00H00", "L00H01"], "embedder": "e-01234567", "seed": 3}
    paths = [tmp_path / "first.safetensors", tmp_path / "second.safetensors"]
    for path in paths:
        save(path, make(geometry), facts)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    selector, found = load(paths[0])
    assert found.items() >= facts.items()
    assert selector.setting == Setting(geometry, DIMENSION, 0.1)
    assert torch.equal(selector.distances(questions()), make(geometry).distances(questions()))


@pytest.mark.parametrize("content", [None, b"\x08\0\0\0\0\0\0\0{}      ", b"no tensors"])
def test_a_file_that_is_no_selector_is_refused_in_one_line(
    content: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "selector.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TableError, match=r"selector\.safetensors is not a head selector") as caught:
        load(path)
    assert "\n" not in str(caught.value)


@pytest.fixture
def points() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    queries = torch.randn(13, DIMENSION, generator=draw, dtype=torch.float64)
    heads = torch.randn(POOL, DIMENSION, generator=draw, dtype=torch.float64)
    correct = torch.rand(13, POOL, generator=draw) < 0.4
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
    kept = correct.any(dim=1)
    weights = agreement(correct).double()
    for diversity in (0.0, 0.3):
        total = alignment(squared_distances(queries, heads)[kept], correct[kept])
        total = total - diversity * separation(heads, weights)
        wanted = as_printed(queries.tolist(), heads.tolist(), correct.tolist(), diversity)
        assert total.item() == pytest.approx(wanted, abs=1e-6)  # s_jk is float32


def test_alignment_survives_distances_that_underflow() -> None:
    distances = torch.tensor([[4000.0, 1000.0, 1003.0]])
    correct = torch.tensor([[True, False, True]])
    wanted = 3 + math.log1p(math.exp(-3))
    assert alignment(distances, correct).item() == pytest.approx(wanted, rel=1e-4)
