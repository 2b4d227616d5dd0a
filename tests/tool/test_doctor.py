"""What a bug report needs, and what a config still has to fetch."""

from pathlib import Path

import pytest
import yaml

from example_config import VALUES
from headroom import cli


def test_the_doctor_says_what_runs_where_and_check_what_is_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["doctor"]) == 0
    said = capsys.readouterr().out
    for word in ("python 3", "torch", "snakemake", "cores", "GB free", "HF_HUB_OFFLINE", "SLURM"):
        assert word in said
    assert not list(tmp_path.iterdir())

    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(VALUES))
    assert cli.main(["check", str(file)]) == 0
    said = capsys.readouterr().out
    for name in ("models.big (owner/big)", "embedders.minilm", "questions.test (math500)"):
        assert f"missing: {name}" in said
    assert "models.tiny" not in said  # in the package
    assert "is sound: run 'mini' can start" in said
