"""Bad input is refused before any job, in one line that names the value and the next step."""

import gzip
import json
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

ROW = {
    "problem": "What is 1 + 1?",
    "solution": r"\boxed{2}",
    "answer": "2",
    "subject": "Algebra",
    "level": 1,
    "unique_id": "test/algebra/1.json",
}

Check = Callable[[dict[str, Any]], str]


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Check:
    """Check config values with the command line; return the one line that refuses them."""
    monkeypatch.chdir(tmp_path)

    def check(values: dict[str, Any]) -> str:
        file = tmp_path / "config.yaml"
        file.write_text(yaml.safe_dump(values), encoding="utf-8")
        assert cli.main(["check", str(file)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("headroom: error: ")
        return line

    return check


def with_file(miniature: dict[str, Any], file: Path) -> dict[str, Any]:
    miniature["questions"]["test"] = {"benchmark": "math500", "split": "test", "file": str(file)}
    return miniature


def write_rows(file: Path, *rows: dict[str, Any]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def test_an_unknown_key(refused: Check, miniature: dict[str, Any]) -> None:
    miniature["sweeps"]["math"]["layer"] = 3
    line = refused(miniature)
    assert "'sweeps.math.layer'" in line
    assert "layers" in line


def test_a_wrong_type(refused: Check, miniature: dict[str, Any]) -> None:
    miniature["questions"]["test"]["n"] = "many"
    assert re.search(r"questions\.test\.n: .*integer.*'many'", refused(miniature))


@pytest.mark.parametrize(("key", "value", "limit"), [("layers", 6, 5), ("heads", 4, 3)])
def test_a_layer_or_head_out_of_range(
    refused: Check, miniature: dict[str, Any], key: str, value: int, limit: int
) -> None:
    miniature["sweeps"]["math"][key] = [value]
    line = refused(miniature)
    assert f"[{value}]" in line
    assert f"0 to {limit}" in line


def test_a_missing_benchmark_file(
    refused: Check, miniature: dict[str, Any], tmp_path: Path
) -> None:
    assert "absent.jsonl" in refused(with_file(miniature, tmp_path / "absent.jsonl"))


def test_an_empty_benchmark_file(refused: Check, miniature: dict[str, Any], tmp_path: Path) -> None:
    line = refused(with_file(miniature, write_rows(tmp_path / "empty.jsonl")))
    assert "empty.jsonl" in line
    assert "no questions" in line or "empty" in line.replace("empty.jsonl", "")


def test_a_truncated_gzip(refused: Check, miniature: dict[str, Any], tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(json.dumps(ROW).encode() + b"\n" for _ in range(50)))
    file = tmp_path / "cut.jsonl.gz"
    file.write_bytes(whole[: len(whole) // 2])
    line = refused(with_file(miniature, file))
    assert "cut.jsonl.gz" in line
    assert "truncated" in line or "damaged" in line


def test_a_row_without_an_answer(refused: Check, miniature: dict[str, Any], tmp_path: Path) -> None:
    second = {key: value for key, value in ROW.items() if key != "answer"}
    second["unique_id"] = "test/algebra/2.json"
    line = refused(with_file(miniature, write_rows(tmp_path / "rows.jsonl", ROW, second)))
    assert "line 2" in line
    assert "answer" in line


def test_a_duplicate_question_id(refused: Check, miniature: dict[str, Any], tmp_path: Path) -> None:
    line = refused(with_file(miniature, write_rows(tmp_path / "rows.jsonl", ROW, ROW)))
    assert "test/algebra/1.json" in line
    assert "1" in line
    assert "2" in line


def local_model(miniature: dict[str, Any], folder: Path) -> dict[str, Any]:
    miniature["models"]["tiny"] |= {"source": str(folder)}
    return miniature


def test_a_model_folder_without_weights(
    refused: Check, miniature: dict[str, Any], checkpoint: Path
) -> None:
    (checkpoint / "model.safetensors").unlink()
    assert "weights" in refused(local_model(miniature, checkpoint))


def test_a_model_folder_without_tokenizer(
    refused: Check, miniature: dict[str, Any], checkpoint: Path
) -> None:
    (checkpoint / "tokenizer.json").unlink()
    assert "tokenizer" in refused(local_model(miniature, checkpoint))


def test_a_model_of_another_geometry(
    refused: Check, miniature: dict[str, Any], checkpoint: Path
) -> None:
    miniature["models"]["tiny"]["layers"] = 5
    line = refused(local_model(miniature, checkpoint))
    assert "layers: 5" in line
    assert "says 6" in line


def test_a_device_that_is_not_there(
    refused: Check, miniature: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if any(Path("/dev").glob("nvidia[0-9]")):
        pytest.skip("this machine has a GPU; the refusal is for machines without")
    monkeypatch.setattr(shutil, "which", lambda _: None)  # where SLURM is, jobs may have one
    miniature["models"]["tiny"]["device"] = "cuda"
    assert "cuda" in refused(miniature)


def test_a_dtype_that_the_device_lacks(refused: Check, miniature: dict[str, Any]) -> None:
    miniature["models"]["tiny"]["dtype"] = "float16"
    line = refused(miniature)
    assert "float16" in line
    assert "float32" in line


def test_no_space(
    refused: Check, miniature: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(".")._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert "space" in refused(miniature)


def test_an_output_folder_that_cannot_be_written(
    refused: Check, miniature: dict[str, Any], tmp_path: Path
) -> None:
    results = tmp_path / "results"
    if os.geteuid() == 0:  # root may write into any folder, but not into a file
        results.touch()
    else:
        results.mkdir(mode=0o555)
    assert f"{results} cannot be written" in refused(miniature)


def test_zero_cores(snakemake: Snakemake) -> None:
    done = snakemake(MINIATURE, "--cores", "0", check=False)
    assert done.returncode != 0
    assert "core" in done.stdout + done.stderr


def test_the_workflow_refuses_before_any_job(
    snakemake: Snakemake, miniature: dict[str, Any], tmp_path: Path
) -> None:
    miniature["models"]["tiny"]["dytpe"] = "float32"
    done = snakemake(miniature, check=False)
    text = done.stdout + done.stderr
    assert done.returncode != 0
    assert "unknown key 'models.tiny.dytpe'; allowed here: attention" in text
    assert "Traceback" not in text
    assert not (tmp_path / "results").exists()
