"""The locks, the conda environment and the image tell one truth."""

import re
import tomllib
from importlib.metadata import version as installed_version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
ENVS = ROOT / "envs"
CUDA_ONLY = re.compile(r"nvidia|cuda|triton")


def locked(name: str) -> list[Requirement]:
    return [Requirement(line) for line in (ENVS / name).read_text().splitlines() if line]


def wanted() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    texts = [*project["dependencies"], *extras["dev"], *extras["slurm"]]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("lock", ["cpu.txt", "cuda.txt"])
def test_every_dependency_is_locked_inside_its_range(lock: str) -> None:
    pins: dict[str, list[Requirement]] = {}
    for requirement in locked(lock):
        pins.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    for requirement in wanted():
        for pin in pins[canonicalize_name(requirement.name)]:
            version = str(pin.specifier).removeprefix("==")
            assert requirement.specifier.contains(version), f"{pin} is outside {requirement}"


def test_cpu_lock_is_the_cuda_lock_without_cuda() -> None:
    cuda = [str(r) for r in locked("cuda.txt") if not CUDA_ONLY.match(r.name)]
    assert [str(r) for r in locked("cpu.txt")] == cuda
    assert len(cuda) < len(locked("cuda.txt"))


def test_constraints_are_what_the_locks_pin() -> None:
    for line in (ENVS / "constraints.txt").read_text().splitlines():
        if not line.startswith("#"):
            assert line in (ENVS / "cpu.txt").read_text().splitlines()


def test_installed_packages_are_the_locked_ones() -> None:
    for requirement in locked("cpu.txt"):
        if requirement.marker is None or requirement.marker.evaluate():
            found = installed_version(requirement.name).partition("+")[0]
            assert requirement.specifier.contains(found), f"{requirement.name} {found}"


def test_conda_and_image_install_the_lock() -> None:
    conda = yaml.safe_load((ENVS / "environment.yaml").read_text())
    assert {"pip": ["--requirement cuda.txt"]} in conda["dependencies"]
    assert "--requirement /opt/headroom/envs/cuda.txt" in (ENVS / "headroom.def").read_text()
