"""Whatever befalls a run, the next one goes on and ends with the files of an undisturbed run.

Ten seeded rounds in CI; `make faults` does 200, `make faults FROM=120` the last 80 of them.
"""

import os
import random
import shutil
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from mini import MINIATURE, Snakemake, contents, different

from faults import FAULTS, HungError, Run, rounds
from headroom import paths
from headroom.config import Reasoner, parse
from headroom.plan import batches
from headroom.resolve import resolve

ROUNDS = int(os.environ.get("HEADROOM_FAULTS", "2"))
FROM = int(os.environ.get("HEADROOM_FAULTS_FROM", "0"))
SEED = int(os.environ.get("HEADROOM_FAULTS_SEED", "0"))
NEEDED = {
    "fill the disk": "mount",
    "make a file immutable": "chattr",
    "move the clock": "faketime",
}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A sweep of two heads on a model that is there."""
    from headroom.reasoner.training import train_reasoner

    folder = tmp_path_factory.mktemp("model") / "tiny"
    trained = MINIATURE["models"]["tiny"]
    train_reasoner(folder, Reasoner(**trained["train"] | {"steps": 2}), threads=1)
    model = {key: value for key, value in trained.items() if key != "train"}
    return {
        "run": "mini",
        "models": {"tiny": {**model, "source": str(folder)}},
        "questions": {"test": MINIATURE["questions"]["test"]},
        "decodings": {"greedy": {"max_new_tokens": 40}},
        "sweeps": {"math": {"model": "tiny", "questions": "test", "layers": [1], "heads": [2, 5]}},
    }


def test_no_fault_loses_or_spoils_anything(
    sweep: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = resolve(parse(sweep))
    (batch,) = batches(config)
    target = paths.ACCURACY.format(run="mini", **batch.wildcards(config))
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    begin = time.monotonic()
    Snakemake(quiet)(sweep, "--cores", "2", target)
    seconds = time.monotonic() - begin
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # what the quiet run has compiled is kept
    befallen: Counter[str] = Counter()
    failed: list[str] = []
    for number, fault in islice(rounds(ROUNDS, SEED), FROM, None):
        outcome = f"round {number}, {fault}: "
        needed = NEEDED.get(fault)
        if needed and not (os.geteuid() == 0 and shutil.which(needed)):
            with capsys.disabled():
                print(f"{outcome}left out: it needs root and {needed}", flush=True)
            continue
        folder = tmp_path / f"round{number}"
        folder.mkdir()
        run = Run(folder, sweep, target, random.Random(f"{SEED} {number}"), seconds)
        try:
            FAULTS[fault](run)
            removed = run.finish()
            assert_undisturbed(run, quiet, removed)
            outcome += (
                f"as undisturbed; named as damaged: {removed}" if removed else "as undisturbed"
            )
        except (AssertionError, HungError) as error:
            outcome += str(error)
            failed.append(outcome)
        befallen[fault] += 1
        with capsys.disabled():
            print(outcome, flush=True)
        run.kill()
        shutil.rmtree(folder)
    with capsys.disabled():
        print(f"\n{befallen.total()} rounds, {len(failed)} failed: {dict(befallen)}")
    assert not failed, "\n".join(failed)


def assert_undisturbed(run: Run, quiet: Path, removed: list[str]) -> None:
    """Hold a folder against that of an undisturbed run."""
    mine, theirs = contents(run.folder / "results"), contents(quiet / "results")
    lost = theirs.keys() - mine.keys()
    assert not lost, f"lost: {sorted(lost)}"
    wrong = different(quiet / "results", run.folder / "results")
    assert not wrong, f"wrong: {sorted(wrong)}; removed before: {removed}"
    left = [
        str(file)
        for file in (run.folder / "results").rglob("*")
        if file.suffix in (".tmp", ".jsonl", ".sock")
    ]
    assert not left, f"left behind: {left}"
