"""Every command, config and piece of Python in config/how-to.md runs as it stands there.

What needs a finished run with a selector is run in `tests/workflow/test_miniature.py`.
"""

import csv
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from headroom import cli
from processes import python

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "config" / "how-to.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def folder(llama, tmp_path_factory):
    """Where a user stands: a model and a table of twenty questions."""
    folder = tmp_path_factory.mktemp("user")
    shutil.copytree(llama, folder / "my-llama")
    rows = [(f"{n} plus {n % 7}", n + 3, "train" if n % 2 else "test") for n in range(20)]
    with (folder / "mine.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("prompt", "gold", "part"), *rows])
    texts = [{"text": f"Question : {n} plus {n % 7} Answer : {n + 3}"} for n in range(30)]
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, texts)))
    (config,) = [block for block in blocks("yaml") if block.startswith("run:")]
    (folder / "mine.yaml").write_text(config, encoding="utf-8")
    return folder


def test_every_command_and_the_python_run_as_they_stand(folder, monkeypatch):
    monkeypatch.chdir(folder)
    commands = [line for block in blocks("sh") for line in block.replace("\\\n", "").splitlines()]
    assert len(commands) == 13
    for command in commands:
        program, *words = shlex.split(command)
        if program == "snakemake":
            own = ("--snakefile", ROOT / "Snakefile")
            python("-m", program, *words, *own, OMP_NUM_THREADS="1")
        elif words[0] != "solve":
            assert cli.main(words) == 0, command
    for made in (
        "my-sweep/results/sweep/report.html",
        "my-export/results/sweep/report.html",
        "my-llama-smaller/README.md",
        "my-llama-recovered/recovery.json",
    ):
        assert (folder / made).is_file(), made

    (example,) = [block for block in blocks("python") if block.startswith("import headroom")]
    names = {}
    exec(example, names)
    assert names["z"].shape == (20, 6)  # id, subject, level, base and two heads
    assert names["figures"]

    (example,) = [block for block in blocks("python") if block.startswith("from datasets")]
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(folder / "cache"))
    exec(example, names)
    assert names["accuracy"]["test"].num_rows == 20
