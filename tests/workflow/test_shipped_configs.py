import re
from functools import cache
from pathlib import Path

import pytest

from example_config import SHIPPED, put_data
from headroom.config import load
from headroom.planning.batches import batches, histories
from headroom.planning.inputs import resolve
from headroom.tool.store import contents
from mini import ROOT, Snakemake, planned

CODER = "qwen2.5-coder-0.5b"
NAMES = {"laptop": CODER, "frontier-laptop": f"{CODER}-families"}


@pytest.fixture(scope="module")
def planning(tmp_path_factory):
    """What a dry run of a shipped config says, by the config's name; None: of no config."""

    @cache
    def dry_run(name):
        folder = tmp_path_factory.mktemp("planning")
        file = ROOT / f"config/{name}.yaml" if name else None
        if file:
            put_data(load(file), folder)
        done = Snakemake(folder)(file, "--dry-run")
        return done.stdout + done.stderr

    return dry_run


@pytest.mark.parametrize("config", SHIPPED, ids=lambda file: file.stem)
def test_a_shipped_config_can_be_planned_and_asks_for_every_stored_file(
    config, planning, tmp_path, monkeypatch
):
    loaded = load(config)
    assert loaded.run == NAMES.get(config.stem, config.stem)
    counts = planned(planning(config.stem))
    assert counts.get("generate", 0) == sum(len(batch.variants) for batch in batches(loaded))
    trained = {file for name in loaded.compressions for file in histories(loaded, name)}
    assert counts.get("compress", 0) == len(trained)
    assert counts["report_page"] == 1

    monkeypatch.chdir(tmp_path)
    put_data(loaded, tmp_path)
    lines = re.findall(r"^ +output: (.*)$", planning(config.stem), re.MULTILINE)
    for file in (Path(each) for line in lines for each in line.split(", ")):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    held = contents({"it": resolve(loaded)})
    assert {needing for _, _, needing in held} == {("it",)}


def test_the_paper_is_both_papers_configs_in_one():
    parts = [load(ROOT / f"config/{name}.yaml") for name in ("sprint", "compression")]
    paper = load(ROOT / "config/paper.yaml")
    for section in type(paper).model_fields:
        found = getattr(paper, section)
        if isinstance(found, dict):
            assert found == {**getattr(parts[0], section), **getattr(parts[1], section)}, section
            for name, value in found.items():
                for part in parts:
                    assert getattr(part, section).get(name, value) == value


def test_readme_states_the_number_of_jobs_of_the_paper(planning):
    counts = planned(planning("sprint"))
    stated = re.search(r"plans ([\d,]+) jobs, ([\d,]+) of them", (ROOT / "README.md").read_text())
    assert stated, "README.md does not say how many jobs config/sprint.yaml plans"
    numbers = [int(number.replace(",", "")) for number in stated.groups()]
    assert numbers == [counts["total"], counts["generate"]]


def test_the_demo_is_the_default(planning):
    assert planned(planning(None)) == planned(planning("demo"))
