"""The locks, the conda environment and the image tell one truth."""

import re
import tomllib
from importlib.metadata import requires
from importlib.metadata import version as installed_version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from headroom import __version__

ROOT = Path(__file__).parents[1]
ENVS = ROOT / "envs"
CUDA_ONLY = re.compile(r"nvidia|cuda|triton")
USER, DEVELOPER = ("cpu.txt",), ("cpu.txt", "dev.txt")
"""What `make demo` installs, and what `make test` has installed in the end."""


def locked(*names: str) -> list[Requirement]:
    lines = [line for name in names for line in (ENVS / name).read_text().splitlines()]
    return [Requirement(line) for line in lines if line]


def pins(*names: str) -> dict[str, list[str]]:
    """Return the version, or one for each range of Pythons, of each package."""
    found: dict[str, list[str]] = {}
    for pin in locked(*names):
        version = str(pin.specifier).removeprefix("==")
        found.setdefault(canonicalize_name(pin.name), []).append(version)
    return found


def here(requirement: Requirement, extras: frozenset[str] = frozenset()) -> bool:
    """Return whether this machine needs the requirement, of a package with these extras."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *extras})


def wanted(*extras: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    texts = [*project["dependencies"], *(text for extra in extras for text in optional[extra])]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize(
    ("names", "extras"),
    [
        *((lock, ["slurm"]) for lock in (USER, ("cuda.txt",), ("cuda12.txt",))),
        (DEVELOPER, ["slurm", "dev"]),
    ],
)
def test_every_dependency_is_locked_inside_its_range(names, extras):
    versions = pins(*names)
    for requirement in wanted(*extras):
        for version in versions[canonicalize_name(requirement.name)]:
            assert requirement.specifier.contains(version), f"{version} is outside {requirement}"


def test_cpu_lock_is_the_cuda_lock_without_cuda_and_cuda_12_s_has_another_torch():
    def others(name: str, *left_out: str) -> list[str]:
        kept = (r for r in locked(name) if not CUDA_ONLY.match(r.name) and r.name not in left_out)
        return [str(r) for r in kept]

    assert [str(r) for r in locked("cpu.txt")] == others("cuda.txt")
    assert len(locked("cpu.txt")) < len(locked("cuda.txt"))
    assert others("cpu.txt", "torch") == others("cuda12.txt", "torch")
    assert pins("cuda12.txt")["torch"] == ["2.10.0"]
    named = {r.name for r in locked("cuda12.txt") if r.name.startswith("nvidia")}
    assert named
    assert all(name.endswith("-cu12") for name in named)


def test_a_user_gets_no_developers_tools():
    """Both locks together pin each package once: the second lies on top of the first."""
    assert not pins("dev.txt").keys() & pins("cuda.txt").keys()
    tools = {requirement.name for requirement in wanted("dev")} - {r.name for r in wanted()}
    assert tools - pins("dev.txt").keys() == {"psutil"}  # Snakemake needs it too


@pytest.mark.parametrize("names", [USER, DEVELOPER])
def test_a_lock_holds_all_that_its_packages_need(names):
    """The locks are installed without resolving: what they lack, nothing else brings."""
    versions = {canonicalize_name(r.name): str(r.specifier)[2:] for r in locked(*names) if here(r)}
    queue = [(name, frozenset[str]()) for name in versions]
    queue += [(r.name, frozenset(r.extras)) for r in wanted()]
    seen: set[tuple[str, frozenset[str]]] = set()
    while queue:
        package, extras = queue.pop()
        if (package, extras) in seen:
            continue
        seen.add((package, extras))
        for need in map(Requirement, requires(package) or []):
            if here(need, extras) and not CUDA_ONLY.match(need.name):
                version = versions.get(canonicalize_name(need.name))
                assert version, f"{package} needs {need}, which {' and '.join(names)} lack"
                assert need.specifier.contains(version), f"{package} needs {need}, not {version}"
                queue.append((need.name, frozenset(need.extras)))


def test_installed_packages_are_the_locked_ones():
    for requirement in filter(here, locked(*DEVELOPER)):
        found = installed_version(requirement.name).partition("+")[0]
        assert requirement.specifier.contains(found), f"{requirement.name} {found}"


@pytest.mark.parametrize("file", sorted((ROOT / ".github/workflows").glob("*.yaml")))
def test_a_workflow_of_github_names_what_is_there(file):
    workflow = yaml.safe_load(file.read_text())
    targets = set(re.findall(r"^([\w.-]+(?: [\w.-]+)*):", (ROOT / "Makefile").read_text(), re.M))
    targets = {target for line in targets for target in line.split()}
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert {"runs-on", "timeout-minutes", "steps"} <= job.keys(), name
        assert job.get("needs", name) in workflow["jobs"]
        matrix = job.get("strategy", {}).get("matrix", {})
        assert targets.issuperset(matrix.get("step", ()))
        for step in job["steps"]:
            assert re.fullmatch(r"[\w-]+/[\w-]+@(release/)?v\d+", step.get("uses", "a/b@v1"))
            command = step.get("run", "")
            named = re.findall(r"(?:envs|\.ci)/[\w.]+", command)
            assert [path for path in named if not (ROOT / path).exists()] == []
            assert targets.issuperset(re.findall(r"make (\w+)", command))


def test_a_release_is_what_the_snakefile_and_the_documents_name():
    """`apptainer pull` names the file of NAME:TAG after both."""
    release = (ROOT / ".github/workflows/release.yaml").read_text()
    assert '"oras://ghcr.io/${GITHUB_REPOSITORY,,}:${GITHUB_REF_NAME#v}"' in release
    assert 'f"headroom_{__version__}.sif"' in (ROOT / "Snakefile").read_text()
    envs = (ENVS / "README.md").read_text()
    assert f"oras://ghcr.io/OWNER/headroom:{__version__}` " in envs
    assert f"`headroom_{__version__}.sif`" in envs
    sources = re.search(r"%files\n((?: .*\n)+)", (ENVS / "headroom.def").read_text())
    assert sources
    for line in sources[1].splitlines():
        assert (ROOT / line.split()[0]).exists(), line
    for profile in ("default", "slurm"):
        values = yaml.safe_load((ROOT / f"workflow/profiles/{profile}/config.yaml").read_text())
        assert "software-env" not in values["rerun-triggers"]
