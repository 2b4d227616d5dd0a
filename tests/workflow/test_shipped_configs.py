import os
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from example_config import SHIPPED, put_data
from headsweep.cli.store_files import contents
from headsweep.config import load
from headsweep.store.batches import arm_files, batches
from headsweep.store.layout import Store
from headsweep.store.revisions import resolve
from mini import ROOT, Snakemake, planned

CODER = "qwen2.5-coder-0.5b"
NAMES = {"laptop": CODER, "frontier-laptop": f"{CODER}-families"}
NAMES["map-laptop"] = f"{CODER}-map"
NAMES["math500-laptop"] = "qwen2.5-coder-1.5b-math500"
BY_DAY = ["demo", "sprint", "compression", "frontier", "math500-laptop", "published"]
"""Of others test_shell_commands.py makes the rules, with their commands, without Snakemake."""
NIGHTLY = "HEADSWEEP_NIGHTLY" in os.environ
PLANNED = [file for file in SHIPPED if NIGHTLY or file.stem in BY_DAY]


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


def outputs(said):
    """Return the files that a dry run would make."""
    lines = re.findall(r"^ +output: (.*)$", said, re.MULTILINE)
    return {Path(each) for line in lines for each in line.split(", ")}


def test_a_shipped_config_names_its_run_after_itself_or_its_model():
    for config in SHIPPED:
        assert load(config).run == NAMES.get(config.stem, config.stem)


@pytest.mark.parametrize("config", PLANNED, ids=lambda file: file.stem)
def test_a_shipped_config_can_be_planned_and_asks_for_every_stored_file(
    config, planning, tmp_path, monkeypatch
):
    loaded = load(config)
    monkeypatch.chdir(tmp_path)
    put_data(loaded, tmp_path)
    loaded = resolve(loaded)  # without sweeps whose heads another one has still to choose
    counts = planned(planning(config.stem))
    assert counts.get("generate", 0) == sum(
        len(batch.variants) for batch in batches(Store(loaded)).values()
    )
    trained = {file for name in loaded.compressions for file in arm_files(loaded, name)}
    assert counts.get("compress", 0) == len(trained)
    assert counts["report_page"] == 1

    for file in outputs(planning(config.stem)):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    held = contents({"it": Store(loaded)})
    stored = loaded.models or loaded.compressions
    assert {needing for _, _, needing in held} == ({("it",)} if stored else set())


def test_the_papers_exhibits_are_drawn_without_a_run(tmp_path):
    said = Snakemake(tmp_path)(ROOT / "config/published.yaml", "printed", "--dry-run")
    counts = planned(said.stdout + said.stderr)
    assert counts == {"draw_printed": 1, "printed": 1, "total": 2}


def test_both_papers_run_together_from_their_two_configs(planning, tmp_path):
    """Snakemake merges config files key by key: what both name must be the same."""
    papers = ("sprint", "compression")
    files = [ROOT / f"config/{name}.yaml" for name in papers]
    first, second = (yaml.safe_load(file.read_text()) for file in files)
    for section in (first.keys() & second.keys()) - {"run"}:
        for name in first[section].keys() & second[section].keys():
            assert first[section][name] == second[section][name], (section, name)

    put_data(load(files[1]), tmp_path)
    told = ["--configfile", *map(str, files), "--config", "run=paper", "--dry-run"]
    both = outputs(Snakemake(tmp_path)(None, *told).stdout)
    assert {file.parts[1] for file in both} == {"paper", "store"}
    apart = [file for name in papers for file in outputs(planning(name))]
    of_both = [Path("results/paper", *file.parts[2:]) for file in apart if file.parts[1] in papers]
    of_store = [file for file in apart if file.parts[1] == "store"]
    assert len(of_store) > len({*of_store})  # answers that both need are generated once
    assert both == {*of_both, *of_store}


def test_readme_states_the_number_of_jobs_of_the_paper(planning):
    counts = planned(planning("sprint"))
    stated = re.search(r"plans ([\d,]+) jobs, ([\d,]+) of them", (ROOT / "README.md").read_text())
    assert stated, "README.md does not say how many jobs config/sprint.yaml plans"
    numbers = [int(number.replace(",", "")) for number in stated.groups()]
    assert numbers == [counts["total"], counts["generate"]]


def test_the_demo_is_the_default(planning, tmp_path):
    assert planned(planning(None)) == planned(planning("demo"))
    named = Snakemake(tmp_path, snakefile="workflow/Snakefile")(None, "--dry-run")
    assert planned(named) == planned(planning(None))
    assert outputs(named.stdout + named.stderr) == outputs(planning(None))
