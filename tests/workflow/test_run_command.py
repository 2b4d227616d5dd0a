"""`headsweep run CONFIG` from an installed package and any folder: the workflow that ships."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from headsweep.config.files import read_values
from headsweep.errors import ConfigError
from headsweep.files import paths
from headsweep.machine.host import host_cores
from headsweep.workflow import start
from mini import ROOT, planned

BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
PROFILE = """\
__use_yte__: true
quiet: ?__import__("pathlib").Path("STOLEN").touch() or "all"
default-resources:
  mem_mb: __import__("pathlib").Path("STOLEN").touch() or 7
"""
"""Snakemake evaluates this when it reads the profile, and for each job."""


def tracked(*places):
    """Return the tracked files of some places."""
    listed = subprocess.check_output(["git", "ls-files", "-z", *places], cwd=ROOT, text=True)
    return [Path(name) for name in listed.split("\0") if name]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the package as its wheel installs it, made of tracked files alone."""
    folder = tmp_path_factory.mktemp("installed")
    for name in tracked():
        if name.parts[0] not in ("results", "tests"):
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / "source" / name, follow_symlinks=False)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, folder], cwd=folder / "source", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    shutil.rmtree(folder / "source")
    return folder / "site"


def test_a_wheel_has_every_file_of_the_package_and_of_the_workflow_and_no_link(installed):
    own = [file.relative_to("src") for file in tracked("src")]
    assert [file for file in own if not (installed / file).exists()] == []
    shipped = installed / "headsweep/shipped"
    files = tracked("Snakefile", "workflow", "config")
    assert {Path("Snakefile"), Path("config/demo.yaml")} <= {*files}
    for file in files:
        assert (shipped / file).read_bytes() == (ROOT / file).read_bytes(), file
        assert not (shipped / file).is_symlink()


def test_in_a_clone_it_is_the_workflow_at_the_top():
    assert ROOT == paths.SHIPPED
    profile = str(ROOT / "workflow/profiles/default")
    assert start.command("a.yaml", ["-n"])[-4:] == [profile, "--cores", str(host_cores()), "-n"]
    for place in (["--cores=3"], ["-c", "3"], ["--workflow-profile", "slurm"], ["-e", "slurm"]):
        assert start.command("a.yaml", place)[-len(place) - 1 :] == [profile, *place]
    for fixed in ("--snakefile=x", "-s", "--configfile"):
        with pytest.raises(ConfigError, match="runs its own workflow with CONFIG alone"):
            start.command("a.yaml", [fixed])


@pytest.fixture
def received(tmp_path):
    """A folder of a stranger's, which runs code if it is let."""
    for folder in ("profiles/default", "default"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "config.yaml").write_text(PROFILE)
    for name in ("snakemake.py", "yte.py", "torch.py", "sitecustomize.py", "Snakefile"):
        (tmp_path / name).write_text('import pathlib\npathlib.Path("STOLEN").touch()\n')
    return tmp_path


def test_snakemake_alone_runs_a_stranger_s_code(received):
    """What the next test holds of `headsweep run` is no matter of course."""
    config = str(ROOT / "config/published.yaml")
    words = ["--snakefile", str(ROOT / "Snakefile"), "--configfile", config, "--dry-run"]
    program = Path(sys.executable).with_name("snakemake")
    subprocess.run([program, *words], cwd=received, capture_output=True, check=False)
    assert (received / "STOLEN").exists()


def test_an_installed_package_runs_in_any_folder_and_takes_no_stranger_s_profile(
    installed, received
):
    config = installed / "headsweep/shipped/config/published.yaml"
    command = [sys.executable, "-P", "-m", "headsweep", "run", config]
    environment = os.environ | {"PYTHONPATH": str(installed), "HEADSWEEP_QUIET": ""}

    command += ["--dry-run", "--quiet"]
    dry = subprocess.run(command, cwd=received, env=environment, capture_output=True, text=True)
    assert dry.returncode == 0, dry.stderr
    assert planned(dry)["audit"] == 1
    assert f"specific profile {installed}/headsweep/shipped/workflow/profiles/default" in dry.stderr
    assert not (received / "STOLEN").exists()


@pytest.mark.parametrize(
    ("options", "is_mistake"),
    [([], True), (["--dry-run"], True), (["-d", "{run}"], False), (["--directory=."], False)],
)
def test_the_config_that_a_run_keeps_is_not_run_elsewhere_by_mistake(
    options, is_mistake, tmp_path, monkeypatch
):
    became = Mock()
    monkeypatch.setattr(os, "execve", became)
    kept = tmp_path / "a run/results/published/config.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps(read_values(ROOT / "config/published.yaml")))
    monkeypatch.chdir(tmp_path)
    given = [option.format(run=tmp_path / "a run") for option in options]
    if is_mistake:
        with pytest.raises(ConfigError, match=f"add --directory '{tmp_path}/a run', or"):
            start.run(kept, None, given)
        monkeypatch.chdir(tmp_path / "a run")
    start.run(kept, None, given)
    became.assert_called_once()


def test_the_command_becomes_snakemake_whose_status_is_its_own(monkeypatch):
    became = []
    monkeypatch.setattr(os, "execve", lambda *given: became.append(given))
    config = ROOT / "config/published.yaml"
    start.run(config, 3, [])
    ((program, words, environment),) = became
    assert words == start.command(config, ["--cores", "3"])
    assert (program, environment["PYTHONSAFEPATH"]) == (sys.executable, "1")
