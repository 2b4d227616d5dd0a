"""The workflow as a module of one's own Snakefile, and with what it refuses before any job."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

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


def test_the_card_of_an_export_names_the_command_that_is_printed():
    """test_run_command.py holds that it runs no code of the folder."""
    _, _, text = export._CARD.partition("    headsweep")
    words, _, _ = text.partition("\n\n")
    printed = shlex.split(commands._again(Path(), "config.json"))
    assert printed == [*shlex.split("headsweep" + words), "--directory", "."]


def test_jobs_of_a_run_import_nothing_from_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    session.checked(MINIATURE, [], look=True)
    Path("colour.py").write_text('import pathlib\npathlib.Path("STOLEN").touch()\n')
    subprocess.run([sys.executable, "-m", "colour"], capture_output=True, check=False)
    assert not Path("STOLEN").exists()
