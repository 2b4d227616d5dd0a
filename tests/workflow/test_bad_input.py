"""Bad input is refused before any job, in one line that names the value and the next step."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from mini import MINIATURE, Snakemake

from headroom import cli

Values = dict[str, Any]


ABSENT = {"benchmark": "math500", "split": "test", "file": "absent.jsonl"}


def refused(values: Values, capsys: pytest.CaptureFixture[str]) -> str:
    """Check config values with the command line; return the one line that refuses them."""
    file = Path("config.yaml")
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    assert cli.main(["check", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("headroom: error: ")
    return line


def key(path: str, value: Any) -> Callable[[Values], None]:
    """Return what sets a key of a config."""

    def change(values: Values) -> None:
        *sections, last = path.split("/")
        for section in sections:
            values = values[section]
        values[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (key("sweeps/math/layer", 3), ["'sweeps.math.layer'", "layers"]),
        (key("sweeps/math/layers", [6]), [r"\[6\]", "0 to 5"]),
        (key("questions/test", ABSENT), ["absent.jsonl"]),
        (key("models/tiny/layers", 5), ["layers: 5", "says 6"]),
        (key("models/tiny/dtype", "float16"), ["float16", "float32"]),
    ],
)
def test_one_line_names_what_is_wrong(
    change: Callable[[Values], None],
    words: list[str],
    miniature: Values,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    change(miniature)
    line = refused(miniature, capsys)
    for word in words:
        assert re.search(word, line)


def test_a_machine_that_lacks_something(
    miniature: Values,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if not any(Path("/dev").glob("nvidia[0-9]")):  # the refusal is for machines without a GPU
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "which", lambda _: None)  # where SLURM is, jobs may have one
            on_gpu = {"tiny": {**miniature["models"]["tiny"], "device": "cuda"}}
            assert "cuda" in refused({**miniature, "models": on_gpu}, capsys)
    with monkeypatch.context() as patch:
        usage = shutil.disk_usage(".")._replace(free=1 << 20)
        patch.setattr(shutil, "disk_usage", lambda _: usage)
        assert re.search(r"has 0\.0 GB free, .* needs about", refused(miniature, capsys))
    results = tmp_path / "results"
    if os.geteuid() == 0:  # root may write into any folder, but not into a file
        results.touch()
    else:
        results.mkdir(mode=0o555)
    assert f"{results} cannot be written" in refused(miniature, capsys)


def test_the_workflow_refuses_before_any_job(
    snakemake: Snakemake, miniature: Values, tmp_path: Path
) -> None:
    done = snakemake(MINIATURE, "--cores", "0", check=False)
    assert done.returncode != 0
    assert "core" in done.stdout + done.stderr
    miniature["models"]["tiny"]["dytpe"] = "float32"
    done = snakemake(miniature, check=False)
    text = done.stdout + done.stderr
    assert done.returncode != 0
    assert "unknown key 'models.tiny.dytpe'; allowed here: attention" in text
    assert "Traceback" not in text
    assert not (tmp_path / "results").exists()
