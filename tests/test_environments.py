import json
import re
import subprocess
import tomllib
from importlib.metadata import requires
from importlib.metadata import version as installed_version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import warm
from headsweep import __version__

ROOT = Path(__file__).parents[1]
ENVS = ROOT / "envs"
CUDA_ONLY = re.compile(r"nvidia|cuda|triton")
USER, DEVELOPER = ("cpu.txt",), ("cpu.txt", "dev.txt")
"""What `make demo` installs, and what `make test` has installed in the end."""


def locked(*names):
    lines = [line for name in names for line in (ENVS / name).read_text().splitlines()]
    return [Requirement(line) for line in lines if line]


def versions(pins):
    """Return the version, or one for each range of Pythons, of each package."""
    found = {}
    for pin in pins:
        version = str(pin.specifier).removeprefix("==")
        found.setdefault(canonicalize_name(pin.name), []).append(version)
    return found


def here(requirement, extras=frozenset()):
    """Return whether this machine needs the requirement, of a package with these extras."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *extras})


def wanted(*extras):
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
def test_every_dependency_is_locked_inside_its_range_with_all_that_it_needs(names, extras):
    """The locks are installed without resolving: what they lack, nothing else brings."""
    everywhere, pinned = versions(locked(*names)), versions(filter(here, locked(*names)))
    queue, seen = [(requirement, "headsweep") for requirement in wanted(*extras)], set()
    queue += [(Requirement(package), "the lock") for package in pinned]
    while queue:
        need, by = queue.pop()
        package, own = canonicalize_name(need.name), frozenset(need.extras)
        assert package in pinned, f"{by} needs {need}, which {' and '.join(names)} lack"
        for version in (everywhere if by == "headsweep" else pinned)[package]:
            assert need.specifier.contains(version), f"{by} needs {need}, not {version}"
        if names in (USER, DEVELOPER) and (package, own) not in seen:  # installed here
            seen.add((package, own))
            needs = [each for each in map(Requirement, requires(package) or []) if here(each, own)]
            queue += [(each, package) for each in needs if not CUDA_ONLY.match(each.name)]


def test_locks_differ_in_cuda_alone_and_a_user_gets_no_developers_tools():
    """Both locks together pin each package once: the second lies on top of the first."""

    def others(name, *left_out):
        kept = (r for r in locked(name) if not CUDA_ONLY.match(r.name) and r.name not in left_out)
        return [str(r) for r in kept]

    assert [str(r) for r in locked("cpu.txt")] == others("cuda.txt")
    assert len(locked("cpu.txt")) < len(locked("cuda.txt"))
    assert others("cpu.txt", "torch") == others("cuda12.txt", "torch")
    assert versions(locked("cuda12.txt"))["torch"] == ["2.10.0"]
    named = {r.name for r in locked("cuda12.txt") if r.name.startswith("nvidia")}
    assert named
    assert all(name.endswith("-cu12") for name in named)
    developers = versions(locked("dev.txt")).keys()
    # Developers interpret the kernels that PyTorch's CUDA builds compile.
    assert developers & versions(locked("cuda.txt")).keys() == {"triton"}
    tools = {requirement.name for requirement in wanted("dev")} - {r.name for r in wanted()}
    assert tools - developers == {"psutil"}  # Snakemake needs it too


def test_installed_packages_are_the_locked_ones():
    for requirement in filter(here, locked(*DEVELOPER)):
        found = installed_version(requirement.name).partition("+")[0]
        assert requirement.specifier.contains(found), f"{requirement.name} {found}"


def test_types_are_checked_with_both_numpys_of_the_lock():
    """Each suite does so with the numpy of its Python, at night with that of the other, too."""
    numpys = [line.marker for line in locked("cpu.txt") if line.name == "numpy"]
    assert len(numpys) == 2
    nightly = yaml.safe_load((ROOT / ".github/workflows/nightly.yaml").read_text())
    steps = nightly["jobs"]["step"]["strategy"]["matrix"]["step"]
    pythons = ["3.11", *(step.removeprefix("suite-") for step in steps if "suite-" in step)]
    for marker in numpys:
        assert any(marker.evaluate({"python_full_version": f"{one}.0"}) for one in pythons)
    makefile = (ROOT / "Makefile").read_text()
    assert {f"suite-{one}" for one in pythons[1:]} <= {
        *re.search("NIGHTLY := (.*)", makefile)[1].split()
    }
    assert re.search(r"^lint: .*\n(?:\t.*\n)*\t\$\(BIN\)/mypy$", makefile, re.M)


def test_what_is_longer_at_night_runs_at_night():
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", "")
    (files,) = re.findall(r"^LONG := (.*)", makefile, re.MULTILINE)
    steps = makefile.replace("$(LONG)", files)
    run = re.findall(r"HEADSWEEP_NIGHTLY=1 .*\$\(PYTEST\) (.*)", steps)
    places = [ROOT / place for step in run for place in step.split()]
    longer = [
        file
        for file in (ROOT / "tests").rglob("test_*.py")
        if "HEADSWEEP_NIGHTLY" in file.read_text() and file != Path(__file__)
    ]
    assert len(longer) > 5
    for file in longer:
        assert any(file.is_relative_to(place) for place in places), file


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
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step.get("uses", "a/b@v1"))
            command = step.get("run", "")
            named = re.findall(r"(?:envs|\.ci)/[\w.]+", command)
            assert [path for path in named if not (ROOT / path).exists()] == []
            assert targets.issuperset(re.findall(r"make (\w+)", command))


def test_all_descriptions_of_the_project_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    said = [cited[key] for key in ("title", "version", "license", "abstract")]
    assert said == [project[key] for key in ("name", "version", "license", "description")]
    assert f"\n## {project['version']} " in (ROOT / "CHANGELOG.md").read_text()
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert container["postCreateCommand"].startswith("make .venv/.developed ")
    conda = yaml.safe_load((ENVS / "environment.yaml").read_text())
    assert {container["name"], conda["name"], *project["scripts"]} == {project["name"]}
    catalog = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    profile = yaml.safe_load((ROOT / "workflow/profiles/default/config.yaml").read_text())
    flags = f"--scheduler {profile['scheduler']} --rerun-incomplete --logger {profile['logger']}"
    assert catalog["mandatory-flags"]["flags"] == flags


def test_a_run_has_the_default_profile_without_being_told(tmp_path):
    """Without it there is no time left, and a failure stops jobs that do not depend on it."""
    command = [*warm.SNAKEMAKE, "--snakefile", str(ROOT / "Snakefile"), "--dry-run", "--quiet"]
    how = {"capture_output": True, "text": True, "check": True, "env": warm.environment()}
    done = subprocess.run(command, cwd=tmp_path, **how)
    assert f"Using workflow specific profile {ROOT}/profiles/default" in done.stderr
    shipped = ROOT / "workflow/profiles/default/config.yaml"
    assert (ROOT / "profiles/default/config.yaml").samefile(shipped)


def test_a_release_is_what_the_snakefile_and_the_documents_name():
    """`apptainer pull` names the file of NAME:TAG after both."""
    release = (ROOT / ".github/workflows/release.yaml").read_text()
    assert release.count('"oras://ghcr.io/${GITHUB_REPOSITORY,,}:${GITHUB_REF_NAME#v}"') == 2
    assert 'f"headsweep_{__version__}.sif"' in (ROOT / "Snakefile").read_text()
    envs = (ENVS / "README.md").read_text()
    assert f"`headsweep_{__version__}.sif`" in envs
    sources = re.search(r"%files\n((?: .*\n)+)", (ENVS / "headsweep.def").read_text())
    assert sources
    for line in sources[1].splitlines():
        assert (ROOT / line.split()[0]).exists(), line
    for profile in ("default", "slurm"):
        values = yaml.safe_load((ROOT / f"workflow/profiles/{profile}/config.yaml").read_text())
        assert "software-env" not in values["rerun-triggers"]
