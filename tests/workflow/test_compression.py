import json
import os
import shutil
import signal
from pathlib import Path

import pandas as pd
import pytest
import yaml

from comparing import assert_same, contents
from headsweep.cli.export import export
from headsweep.config import parse
from headsweep.files import paths
from headsweep.files.locks import Locks
from headsweep.files.record import read_record
from headsweep.store.batches import arms
from mini import Snakemake, left_over, planned_again
from processes import wait_until

SEED = 3
COMPRESSION = yaml.safe_load(
    """
    run: words
    problems: {made: {dataset: generated, n: 84, partition: {ratios: [4, 1, 1]}}}
    solvers:
      small:
        profile: fixture
        encoder: {width: 24, intermediate: 20, heads: 3}
        training: &short {epochs: 2, batch_size: 11, checkpoint_steps: 1}
    compressions:
      made:
        {solver: small, data: made, method: {ratio: 0.4, rounds: 2, training: *short},
         arms: [baseline, full, small_from_scratch], int8: [full], seeds: [3],
         tokens: [9], batches: [1, 3], repeats: 2}
    """
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compression")
    Snakemake(folder)(COMPRESSION)
    return folder


def test_every_arm_and_seed_answers_the_test_part_and_is_measured(finished):
    (data,) = (finished / "results/store/problems").glob("made-*.parquet")
    problems, run = pd.read_parquet(data), finished / "results/words"
    test = problems[problems["part"] == "test"]
    outcomes = pd.read_parquet(run / "compression/made/outcomes.parquet")
    counts = outcomes.groupby(["arm", "seed", "quantised"]).size().to_dict()
    scratch = "small_from_scratch"
    wanted = (("baseline", False), ("full", False), ("full", True), (scratch, False))
    assert counts == {(arm, SEED, int8): len(test) for arm, int8 in wanted}
    assert set(outcomes["example_id"]) == set(test["example_id"])
    assert set(outcomes["stratum"]) <= {"low", "medium", "high"}

    rows = pd.read_csv(run / "compression/made/measurements.csv")
    assert len(rows) == 4 * 2
    sizes = rows.drop_duplicates(["arm", "quantised"]).set_index(["arm", "quantised"])
    assert sizes["heads"].tolist() == [6, 4, 4, 4]
    # A head of 8 dimensions: its slices of three projections with biases, and of the output.
    base, full = sizes["parameters"].iloc[[0, 1]]
    assert base - full == 2 * (4 * 24 * 8 + 3 * 8)
    (trained,) = json.loads((run / "compression/made/histories.json").read_text())[scratch].values()
    assert len(trained["rounds"][0]["epochs"]) == 4  # of solver and method

    assert not left_over(finished)
    found = planned_again(finished, COMPRESSION)
    assert [file for file, again in found.items() if not again] == []


def test_an_exported_compression_is_remade_without_its_solvers(finished, tmp_path):
    first, exported = finished / "results/words", tmp_path / "exported"
    files = export(first, exported)
    for place, file in enumerate(sorted(files, key=lambda file: file.name != "history.json")):
        os.utime(file, (1e9 - place,) * 2)  # what others are made from is the newest
    kept = {"compression/made/measurements.csv", "compression/made/outcomes.parquet"}
    remade = exported / "results/words"
    assert set(contents(remade)) == kept
    (remade / "compression/made/outcomes.parquet").unlink()
    Snakemake(exported)(exported / "config.json")
    assert not [*exported.rglob("*.safetensors")]
    assert not (exported / "results/store/problems").exists()
    assert_same(first, remade, frozenset({"report.html"}))  # it states times


def test_a_killed_compression_goes_on_and_ends_with_the_same_files(finished, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    _, full, _ = arms(parse(COMPRESSION), "made")
    target = full.file(paths.HISTORY, SEED)
    before = contents(folder / Path(target).parent)
    del before["int8.parquet"]  # another job's
    shutil.rmtree(folder / Path(target).parent)
    journal = folder / "results/store/.journal/compressed"

    run = Snakemake(folder)
    held = Locks(folder / paths.RUN_LOCK)
    killed = run.start(COMPRESSION, "--cores", "1", target)
    wait_until(lambda: killed.poll() is not None or list(journal.rglob("*.safetensors")), 900)
    assert killed.poll() is None, "the job ended before it could be killed"
    assert held.are_held()
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not held.are_held()

    run(COMPRESSION, "--unlock")
    run(COMPRESSION, "--cores", "1", "--rerun-incomplete", target)
    after = contents(folder / Path(target).parent)
    for texts in (before, after):
        texts["history.json"] = json.loads(texts["history.json"])
        assert texts["history.json"].pop("seconds") > 0
    assert after == before
    assert read_record(folder / target)["seed"] == SEED
    assert list(journal.rglob("*")) == []
