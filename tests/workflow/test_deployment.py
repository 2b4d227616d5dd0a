"""The workflow as a module of one's own Snakefile, and with what it refuses before any job."""

import shutil
import subprocess
import sys

import yaml

from example_config import changed
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

    command = [sys.executable, "-m", "snakemake", "--directory", tmp_path, "--snakefile"]
    command += [tmp_path / "workflow/Snakefile", "--cores", "1"]
    dry = subprocess.run([*command, "--dry-run"], capture_output=True, text=True, check=True)
    assert planned(dry)["all"] == 1
    target = "results/mini/audit/sprint.csv"
    done = subprocess.run([*command, target], capture_output=True, text=True, check=True)
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
    assert "unknown key 'models.tiny.dytpe'; allowed here: attention" in text
    assert "Traceback" not in text
    assert not (tmp_path / "results").exists()
