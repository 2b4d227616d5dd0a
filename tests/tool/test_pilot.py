import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from example_config import VALUES as EXAMPLE
from headsweep import cli
from headsweep.config import parse
from headsweep.generation import client
from headsweep.planning.inputs import resolve
from headsweep.planning.store import check_version
from headsweep.tool.sweep import answer
from mini import REASONER

VALUES = yaml.safe_load(
    """
    run: mine
    questions: {test: {benchmark: generated_math, split: test, n: 60}}
    decodings: {greedy: {max_new_tokens: 30}, T0.6: {temperature: 0.6}}
    sweeps: {math: {model: tiny, questions: test, layers: [1, 4]}}
    """
)
VALUES["models"] = {"tiny": REASONER}
ONE = {**VALUES["questions"]["test"], "n": 1}
BESIDE = {"math": {"model": "tiny", "questions": "test", "layers": [1], "heads": [2]}}
SBATCH = """
import os, sys, pathlib
pathlib.Path("asked").write_text("\\n".join(sys.argv[1:]))
(out,) = [word[9:] for word in sys.argv if word.startswith("--output=")]
pathlib.Path(out).write_text("tiny 57\\n")
sys.exit(int(os.environ["STATUS"]))
"""


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(VALUES))
    return file


def test_a_pilot_measures_base_and_two_heads_and_projects_the_whole(config, capsys, monkeypatch):
    small = resolve(parse({**VALUES, "questions": {"test": ONE}, "sweeps": BESIDE}))
    client.begin_run()
    answer(small, 1, stay=True)  # a run beside it has an engine of the same model here
    beside = os.environ["HEADSWEEP_RUN"]
    assert cli.main(["pilot", str(config), "--cores", "1"]) == 0
    said = capsys.readouterr().out
    row = re.search(r"^tiny +54 +([\d,]+) +\d+ +([\d.]+) +([\d,]+) +([\d.]+) +", said, re.M)
    assert row  # 3 variants × 20 questions, but for two that warm the engine up
    tokens, seconds, rate = (float(cell.replace(",", "")) for cell in row.groups()[:3])
    slow, fast = tokens / (seconds + 0.05), tokens / max(seconds - 0.05, 0.01)
    assert slow - 1 <= rate <= fast + 1  # seconds are printed with one decimal
    assert 0.2 < float(row[4]) < 20
    answers = sorted(file.stem for file in Path("results/store").glob("tiny-*/*/*/L*.parquet"))
    assert answers == 2 * ["L01H00"] + ["L01H02"] + 2 * ["L04H03"]
    assert "tiny: the engine ran on cpu" in said
    (seen,) = re.findall(r"^math +8 +60 +(\d+)% +(\d+)% +(\S+) points +([\d,]+)$", said, re.M)
    right, changed, gain, needed = (float(cell.replace(",", "")) for cell in seen)
    assert "outcomes changed are those of the pilot" in said
    assert right % 5 == 0  # of 20 questions
    assert changed <= 100
    assert 0 < gain < 60
    assert needed > 60
    bundle = json.loads(Path("results/pilot/bundle.json").read_text())
    assert "for a report of a fault: results/pilot/bundle.json" in said
    assert bundle["engines"]["tiny"]["device"] == "cpu"
    assert bundle["engines"]["tiny"]["path"] == "dense"
    assert bundle["rates"]["tiny"]["answers"] == "54"
    assert "torch" in bundle["versions"]
    assert not Path("results/pilot/config.json").exists()
    check_version()  # the run that follows takes the store for one of today
    assert [engine["model"][:4] for engine in client.status()] == ["tiny"]  # not the pilot's to end
    monkeypatch.setenv("HEADSWEEP_RUN", beside)
    client.end_run()
    assert cli.main(["engine", "status"]) == 0
    assert "no engine runs" in capsys.readouterr().out


def test_slurm_runs_it_in_one_allocation(config, monkeypatch, capsys):
    tmp_path = config.parent
    monkeypatch.setenv("PATH", "")
    assert cli.main(["pilot", str(config), "--slurm"]) == 2
    assert "there is no sbatch on the path" in capsys.readouterr().err
    stub = tmp_path / "bin" / "sbatch"
    stub.parent.mkdir()
    stub.write_text(f"#!{sys.executable}\n{SBATCH}")
    stub.chmod(0o755)
    profile = tmp_path / "workflow/profiles/slurm/config.yaml"
    profile.parent.mkdir(parents=True)
    resources = {"slurm_partition": "gpus", "slurm_account": "CHANGE-ME"}
    profile.write_text(yaml.safe_dump({"default-resources": resources}))
    monkeypatch.setenv("PATH", f"{stub.parent}{os.pathsep}{os.defpath}")
    monkeypatch.setenv("STATUS", "0")
    assert cli.main(["pilot", str(config), "--slurm"]) == 0
    assert "tiny 57" in capsys.readouterr().out
    asked = Path("asked").read_text().splitlines()
    assert asked[0] == "--wait"
    assert "--partition=gpus" in asked
    assert not [word for word in asked if "account" in word or "gres" in word]  # a CPU's model
    assert not [word for word in asked if word.startswith("--gpus")]
    assert "--time=15" in asked  # a small model's pilot
    assert asked[-1].endswith(f"-m headsweep.cli pilot {config}")
    big = {**REASONER, "device": "balanced", "billions": 70.0, "dtype": "float16"}
    config.write_text(yaml.safe_dump({**VALUES, "models": {"tiny": big}}))
    assert cli.main(["pilot", str(config), "--slurm"]) == 0
    words = dict(word.partition("=")[::2] for word in Path("asked").read_text().splitlines())
    assert int(words["--gpus"]) == 3  # 140 GB of weights on cards of 80: as the executor asks
    assert "--gres" not in words
    config.write_text(yaml.safe_dump(VALUES))
    monkeypatch.setenv("STATUS", "1")
    assert cli.main(["pilot", str(config), "--slurm"]) == 2
    assert "the job has failed (tiny 57)" in capsys.readouterr().err
    config.write_text(yaml.safe_dump({**VALUES, "sweeps": {}}))
    assert cli.main(["pilot", str(config)]) == 2
    assert "no model of this config has heads to prune" in capsys.readouterr().err


def test_the_doctor_says_what_runs_where_and_check_what_is_not_fetched(config, capsys):
    assert cli.main(["doctor"]) == 0
    said = capsys.readouterr().out
    for word in ("python 3", "torch", "snakemake", "cores", "GB free", "HF_HUB_OFFLINE", "SLURM"):
        assert word in said
    assert list(config.parent.iterdir()) == [config]

    config.write_text(yaml.safe_dump(EXAMPLE))
    assert cli.main(["check", str(config)]) == 0
    said = capsys.readouterr().out
    for name in ("models.big (owner/big)", "embedders.minilm", "questions.test (math500)"):
        assert f"missing: {name}" in said
    assert "models.tiny" not in said  # in the package
    assert "is sound: run 'mini' can start" in said


def test_a_cached_gguf_file_of_any_commit_is_not_said_to_be_missing(
    config, monkeypatch, tmp_path, capsys
):
    models = {"big": EXAMPLE["models"]["big"] | {"gguf_file": "big.gguf", "revision": "5a" * 32}}
    config.write_text(yaml.safe_dump(EXAMPLE | {"models": EXAMPLE["models"] | models}))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    snapshot = tmp_path / f"cache/models--owner--big/snapshots/{'7' * 40}"
    snapshot.mkdir(parents=True)
    for name, missing in {"other.gguf": True, "big.gguf": False}.items():
        (snapshot / name).touch()
        assert cli.main(["check", str(config)]) == 0
        assert ("missing: models.big" in capsys.readouterr().out) is missing


def test_too_small_a_disk_is_said_in_one_line(config, monkeypatch, capsys):
    usage = shutil.disk_usage(".")._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert cli.main(["check", str(config)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"error: .* has 0\.0 GB free, .* needs about", line)
