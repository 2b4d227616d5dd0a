"""What config/how-to.md and config/extend.md say can be done so works as it stands there.

What needs a finished run with a selector is run in `tests/workflow/test_miniature.py`.
"""

import csv
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from safetensors.torch import load_file

import warm
from headsweep.cli import main as cli
from headsweep.workflow import start

ROOT = Path(__file__).parents[2]
EXTEND, HOW_TO = (
    (ROOT / "config" / name).read_text(encoding="utf-8") for name in ("extend.md", "how-to.md")
)
SECTION = re.compile(r"^## Add (.+?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
EDIT = re.compile(
    r"(New file|At the end of|In) `(\S+)`(?:, in place of the line that begins so)?:\n\n"
    r"```python\n(.*?)```",
    re.DOTALL,
)
CODE = re.compile(r"```\w+\n(.*?)```", re.DOTALL)
HOW_TOS = dict(SECTION.findall(EXTEND))


def extend(name, folder):
    """Change a copy of the package as a how-to says."""
    edits = EDIT.findall(HOW_TOS[name])
    assert edits
    for how, path, code in edits:
        file = folder / path
        assert file.exists() is (how != "New file")
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        if how != "In":
            text = f"{text}\n\n{code}" if text else code
        else:
            start = code.partition("=")[0] + "="
            (line,) = [line for line in text.splitlines() if line.startswith(start)]
            text = text.replace(line, code.strip())
        file.write_text(text, encoding="utf-8")


CHECKS = {
    "a grader": r"""
from headsweep.config import Questions
from headsweep.grading.graders import find_grader
from headsweep.cli.first_questions import choose_grader
from headsweep.cli.main import main, parser

name = Questions(benchmark="custom", split="x", file="a.csv", grader="items").grader_name
grader = find_grader(name, "default")
answer = grader.extract("They are \\boxed{pear, Apple}.")
words = "sweep --model m --benchmark b.csv --layers 1 --grader items".split()
print(parser().parse_args(words).grader)
print(grader.equal(answer, "apple,pear"), grader.equal(answer, "apple"))
print(choose_grader(["Paris"])[0])
print(Questions.model_fields["grader"].description)
try:
    main(["grade", "--help"])
except SystemExit:
    pass
""",
    "an importance criterion": """
import sys
from headsweep.cli.main import main

words = ["--ratio", "0.34", "--criterion", "output", "--zero", "--out", "out", "--device", "cpu"]
assert main(["prune", sys.argv[1], *words]) == 0
""",
    "a family": """
from headsweep.config import Decoding
from headsweep.engine.engine import Engine, Request
from headsweep.models.load import load_model
from headsweep.variants import BASE, FAMILIES, Pool, Variant

loaded = load_model("builtin:reasoner", device="cpu")
members = FAMILIES["pair"].members(Pool(dict.fromkeys((1, 4), range(4)), 6), 0, 5, seed=3)
assert len({*members}) == 5 and {each.head for each in members} <= {0, 1, 2}
assert [Variant.parse(str(each)) for each in members] == members
prompt = tuple(loaded.tokenizer("Compute 3 + 4 * 5.").input_ids)
wanted = [Request("q", prompt, variant) for variant in [BASE, *members]]
found = {a.request.variant: a for a in Engine(loaded, Decoding(max_new_tokens=20), 4).run(wanted)}
for variant in members:
    edit = FAMILIES["pair"].edit(variant)
    assert edit.factors == {variant.head: 0.0, variant.head + 1: 0.0}
print(len({a.token_ids for a in found.values()}))
""",
    "a figure": """
import pandas as pd
from headsweep.page.figures.draw import READERS, draw_exhibit
from headsweep.results.exhibits import find_exhibit
from headsweep.variants import BASE, heads

right = 17 * [1]
z = pd.DataFrame({"subject": "a", "level": None, "base": [1, 1, 0] + right,
    "L01H00": [0, 1, 0] + right, "L01H02": 1})
found = find_exhibit("ranks")
assert found.needs in READERS
for file in draw_exhibit(found, "r", "mine", (z, [BASE, *heads([1], [0, 2])]), []):
    print(file, file.stat().st_size > 0)
""",
}
"""What is asked of the extended package, by how-to."""


@pytest.fixture(scope="module")
def extended(llama, tmp_path_factory):
    """Return where the package, with all how-tos followed, was asked, and what it said to each."""
    folder = tmp_path_factory.mktemp("extended")
    shutil.copytree(ROOT / "src", folder / "src")  # with what is compiled
    for name in CHECKS:
        extend(name, folder)
    asked = "".join(f"{code}print('said of {name}', flush=True)\n" for name, code in CHECKS.items())
    command = [*warm.COMMAND, "other_source", str(folder / "src"), "-c", asked, str(llama)]
    done = subprocess.run(
        command, cwd=folder, env=warm.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.split(r"said of .*\n", done.stdout)
    return folder, dict(zip(CHECKS, said, strict=False))


def test_every_extension_has_a_how_to_of_less_than_60_lines_that_names_what_is_there():
    assert set(HOW_TOS) == {
        *("a benchmark", "a grader", "an importance criterion"),
        *("a family", "an architecture", "a figure"),
    }
    for name, text in HOW_TOS.items():
        assert sum(code.count("\n") for code in CODE.findall(text)) < 60, name
        for path in re.findall(r"(?<!New file )`((?:src|tests|workflow)/[\w/.]+)`", text):
            assert (ROOT / path).is_file(), path


def test_a_grader_is_added_as_the_page_says(extended):
    first, second, third, *descriptions = extended[1]["a grader"].splitlines()
    assert [first, second, third] == ["items", "True False", "exact"]
    assert " ".join(" ".join(descriptions).split()).count("lists of items (items)") == 2


def test_an_importance_criterion_is_added_as_the_page_says(llama, extended):
    out = extended[0] / "out"
    weights = load_file(llama / "model.safetensors")
    norms = {
        f"L{layer:02d}H{head:02d}": float(weight[:, 8 * head : 8 * head + 8].norm())
        for layer in range(2)  # of 6 heads of width 8
        for head in range(6)
        for weight in [weights[f"model.layers.{layer}.self_attn.o_proj.weight"]]
    }
    expected = sorted(sorted(norms, key=norms.__getitem__)[:4])
    assert json.loads((out / "pruned_heads.json").read_text())["removed"] == expected
    assert "smallest norm of the output weights" in (out / "README.md").read_text()


def test_a_family_is_added_as_the_page_says(extended):
    assert int(extended[1]["a family"]) > 1


def test_a_figure_is_drawn_as_the_page_says(extended):
    file = "results/r/figures/ranks_mine"
    drawn = [f"{file}.{suffix} True" for suffix in ("pdf", "png", "svg", "csv", "json")]
    assert extended[1]["a figure"].splitlines() == drawn
    words = json.loads((extended[0] / f"{file}.json").read_text(encoding="utf-8"))
    assert words["title"] == "mine: heads by rank"
    assert words["caption"].startswith("Accuracy without each of 2 heads")
    assert words["alt"].endswith("the best to the worst: from +5.0 points down to −5.0.")
    for words_of_drawn in ("n = ", "interval", "test"):  # tests/page/test_figures.py wants them
        assert words_of_drawn in words["caption"]
    assert len(words["alt"].split()) > 15


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", HOW_TO, re.DOTALL)


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
    for name, logs in (("before", "told2"), ("after", "told8")):
        shutil.copytree(Path(__file__).with_name("lm_eval") / logs, folder / name)
        for file in (folder / name).rglob("samples_*.jsonl"):  # a filter as GSM8K calls it
            text = file.read_text(encoding="utf-8")
            file.write_text(text.replace('"flexible"', '"flexible-extract"'), encoding="utf-8")
    return folder


@pytest.mark.usefixtures("warm_engines")
def test_every_command_and_the_python_run_as_they_stand(folder, monkeypatch):
    monkeypatch.chdir(folder)
    commands = [line for block in blocks("sh") for line in block.replace("\\\n", "").splitlines()]
    assert len(commands) == 16
    for command in commands:
        _, *words = shlex.split(command)
        if words[0] == "run":
            _, _, _, _, *words = start.command(words[1], words[2:])  # python -P -m snakemake
            subprocess.run([*warm.SNAKEMAKE, *words], env=warm.environment(), check=True)
        elif words[0] != "solve":
            assert cli.main(words) == 0, command
    for made in (
        "my-sweep/results/sweep/report.html",
        "my-export/results/sweep/report.html",
        "my-llama-smaller/README.md",
        "my-llama-recovered/recovery.json",
        "compared/pairs.csv",
    ):
        assert (folder / made).is_file(), made

    (example,) = [block for block in blocks("python") if block.startswith("import headsweep")]
    names = {}
    exec(example, names)
    assert names["z"].shape == (20, 6)  # id, subject, level, base and two heads
    assert names["figures"]

    (example,) = [block for block in blocks("python") if block.startswith("from datasets")]
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(folder / "cache"))
    exec(example, names)
    assert names["accuracy"]["test"].num_rows == 20
