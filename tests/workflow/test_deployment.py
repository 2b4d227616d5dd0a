"""The workflow as a module of one's own Snakefile, and with what it refuses before any job."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from example_config import changed
from headsweep.cli import commands, export
from headsweep.workflow import session
from mini import MINIATURE, ROOT, Snakemake, planned

SNAKEFILE = f"""
configfile: "config/config.yaml"


module headsweep:
    snakefile:
        "{ROOT / "workflow/Snakefile"}"
    config:
        config


use rule * from headsweep
"""
"""What `snakedeploy deploy-workflow` writes, but for the place of the workflow."""


def test_a_deployed_workflow_runs_with_its_own_config(tmp_path):
    shutil.copytree(ROOT / "config", tmp_path / "config")
    deployed = tmp_path / "config/config.yaml"
    assert yaml.safe_load(deployed.read_text())["run"] == "demo"
    deployed.write_text(yaml.safe_dump(MINIATURE))
    (tmp_path / "workflow").mkdir()
    (tmp_path / "workflow/Snakefile").write_text(SNAKEFILE)

    snakemake = Snakemake(tmp_path, snakefile=tmp_path / "workflow/Snakefile")
    assert planned(snakemake(None, "--cores", "1", "--dry-run"))["all"] == 1
    target = "results/mini/audit/sprint.csv"
    done = snakemake(None, "--cores", "1", target)
    assert (tmp_path / target).is_file()
    assert "In the store: 0 of " in done.stdout + done.stderr  # the handlers are called
    assert (tmp_path / "results/mini/config.json").is_file()


def test_the_workflow_refuses_before_any_job(tmp_path):
    snakemake = Snakemake(tmp_path)
    done = snakemake(MINIATURE, "--cores", "0", check=False)
    assert done.returncode != 0
    assert "core" in done.stdout + done.stderr
    done = snakemake(changed(MINIATURE, "models/tiny/dytpe", "float32"), check=False)
    text = done.stdout + done.stderr
    assert done.returncode != 0
    assert "'models.tiny.dytpe' (did you mean 'dtype'?); allowed here: attention" in text
    assert "Traceback" not in text
    assert not (tmp_path / "results").exists()


PROFILE = """\
__use_yte__: true
quiet: ?__import__("pathlib").Path("STOLEN").touch() or "all"
default-resources:
  mem_mb: __import__("pathlib").Path("STOLEN").touch() or 7
"""
"""Snakemake evaluates this when it reads the profile, and for each job."""
MODULE = """\
import pathlib
pathlib.Path("STOLEN").touch()
"""


def printed():
    return shlex.split(commands._again(Path(), "config.json"))


def of_the_card():
    _, _, text = export._CARD.partition("    headsweep")
    words, _, _ = text.partition("\n\n")
    return shlex.split("headsweep" + words)


def unsafe():
    return ["snakemake", "--snakefile", str(ROOT / "Snakefile"), "--configfile", "config.json"]


def test_the_card_of_an_export_names_the_command_that_is_printed():
    assert printed() == [*of_the_card(), "--directory", "."]


@pytest.mark.parametrize(("words", "runs"), [(printed, False), (unsafe, True)])
def test_a_received_export_runs_no_code(words, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("profiles/default", "default"):
        Path(folder).mkdir(parents=True)
        Path(folder, "config.yaml").write_text(PROFILE)
    for name in ("snakemake", "yte", "headsweep", "torch", "sitecustomize"):
        Path(f"{name}.py").write_text(MODULE)
    Path("Snakefile").write_text(MODULE)
    Path("config.json").write_text(json.dumps(MINIATURE))
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [*words(), "--dry-run", "--quiet"], capture_output=True, text=True, env=environment
    )
    assert Path("STOLEN").exists() == runs, done.stderr
    assert runs or done.returncode == 0, done.stderr


def test_jobs_of_a_run_import_nothing_from_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    session.checked(MINIATURE, [], look=True)
    Path("colour.py").write_text(MODULE)
    subprocess.run([sys.executable, "-m", "colour"], capture_output=True, check=False)
    assert not Path("STOLEN").exists()
