from pathlib import Path

import pytest
import torch

from headroom.errors import TableError
from headroom.sprint.model import HeadSelector, Setting, load, rank, save

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


def test_bounded_geometries_stay_bounded_wherever_their_points_are() -> None:
    for geometry, bounded in (("sphere", True), ("ball", True), ("literal", False)):
        selector = make(geometry)
        with torch.no_grad():
            selector.heads.mul_(1e4)
        widest = selector.distances(questions(1e3)).max()
        assert (widest <= 4 + 1e-5) == bounded


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


def test_the_seed_decides_the_initial_weights_and_the_global_generator_is_untouched() -> None:
    before = torch.get_rng_state()
    one, same, other = make("ball", 3), make("ball", 3), make("ball", 4)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.heads, same.heads)
    assert not torch.equal(one.heads, other.heads)


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


@pytest.mark.parametrize("content", [None, b"", b"\x08\0\0\0\0\0\0\0{}      ", b"no tensors"])
def test_a_file_that_is_no_selector_is_refused_in_one_line(
    content: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "selector.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TableError, match=r"selector\.safetensors is not a head selector") as caught:
        load(path)
    assert "\n" not in str(caught.value)
