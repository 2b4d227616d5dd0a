"""Bad input is refused before any job, in one line that names the value and the next step."""

import os
import re
import shutil
from pathlib import Path

import yaml

from example_config import changed
from headroom import cli
from mini import MINIATURE


def refused(values, capsys):
    """Check config values with the command line; return the one line that refuses them."""
    file = Path("config.yaml")
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    assert cli.main(["check", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("headroom: error: ")
    return line


def test_a_machine_that_lacks_something(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if not any(Path("/dev").glob("nvidia[0-9]")):  # the refusal is for machines without a GPU
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "which", lambda _: None)  # where SLURM is, jobs may have one
            on_gpu = changed(MINIATURE, "models/tiny/device", "cuda")
            assert "cuda" in refused(on_gpu, capsys)
    with monkeypatch.context() as patch:
        usage = shutil.disk_usage(".")._replace(free=1 << 20)
        patch.setattr(shutil, "disk_usage", lambda _: usage)
        assert re.search(r"has 0\.0 GB free, .* needs about", refused(MINIATURE, capsys))
    results = tmp_path / "results"
    if os.geteuid() == 0:  # root may write into any folder, but not into a file
        results.touch()
    else:
        results.mkdir(mode=0o555)
    assert f"{results} cannot be written" in refused(MINIATURE, capsys)


def test_the_workflow_refuses_before_any_job(snakemake, tmp_path):
    done = snakemake(MINIATURE, "--cores", "0", check=False)
    assert done.returncode != 0
    assert "core" in done.stdout + done.stderr
    done = snakemake(changed(MINIATURE, "models/tiny/dytpe", "float32"), check=False)
    text = done.stdout + done.stderr
    assert done.returncode != 0
    assert "unknown key 'models.tiny.dytpe'; allowed here: attention" in text
    assert "Traceback" not in text
    assert not (tmp_path / "results").exists()
