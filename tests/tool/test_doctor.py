"""The doctor: a report for bug reports, and what a config lacks."""

from pathlib import Path

import pytest
import yaml

from example_config import VALUES
from headroom import cli


def test_the_report_says_what_runs_where_and_what_a_config_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["doctor"]) == 0
    said = capsys.readouterr().out
    for word in ("python 3", "torch", "snakemake", "cores", "GB free", "HF_HUB_OFFLINE", "SLURM"):
        assert word in said
    assert not list(tmp_path.iterdir())
    file = tmp_path / "config.yaml"
    for keys, lack in (
        ({"run": "a b"}, "run: String should match"),
        ({"questions": {**VALUES["questions"], "test": {"n": 501}}}, "missing: "),
    ):
        file.write_text(yaml.safe_dump({**VALUES, **keys}))
        assert cli.main(["doctor", str(file)]) == 0  # and a config that is wrong does not stop it
        assert lack in capsys.readouterr().out
