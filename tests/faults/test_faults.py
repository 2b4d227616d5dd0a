"""Whatever befalls a run, the next one goes on and ends with the files of an undisturbed run.

A few seeded rounds, others with each commit; `make faults` does rounds 0 to 199, and
`make faults FROM=7100 ROUNDS=12` those from 7100 to 7111.
"""

import os
import random
import shutil
import subprocess
import time
from collections import Counter
from itertools import islice
from typing import Any

from comparing import assert_same, contents
from faults import FAULTS, Run, rounds
from headroom import paths
from headroom.config import parse
from headroom.planning.batches import batches
from headroom.planning.inputs import resolve
from headroom.planning.store import Store
from mini import MINIATURE, POOL, REASONER, ROOT, Snakemake, left_over

ROUNDS = int(os.environ.get("HEADROOM_FAULTS") or 3)  # of those that this machine can do
FROM = os.environ.get("HEADROOM_FAULTS_FROM")  # the first round; by default by the commit
SEED = int(os.environ.get("HEADROOM_FAULTS_SEED", "0"))
NEEDED = {"fill the disk": "mount", "make a file immutable": "chattr", "move the clock": "faketime"}
SWEEP: dict[str, Any] = {
    "run": "mini",
    "models": {"tiny": REASONER},
    "questions": {"test": MINIATURE["questions"]["test"]},
    "decodings": {"greedy": {"max_new_tokens": 60}},
    "sweeps": {"math": {"model": "tiny", "questions": "test", **POOL}},
}


def first_round() -> int:
    if FROM:
        return int(FROM)
    asked = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return int(said.strip() or "0", 16) % 10_000


def can_befall(fault: str) -> bool:
    return fault not in NEEDED or (os.geteuid() == 0 and shutil.which(NEEDED[fault]) is not None)


def test_rounds_are_the_same_from_any_number_and_all_faults_take_turns():
    many = list(islice(rounds(0), 40 * len(FAULTS)))
    assert [number for number, _ in many] == list(range(len(many)))
    assert list(islice(rounds(0), 71, 83)) == many[71:83]
    assert set(Counter(fault for _, fault in many).values()) == {40}
    assert many != list(islice(rounds(1), len(many)))


def test_no_fault_loses_or_spoils_anything(tmp_path, monkeypatch, capsys):
    first = first_round()
    assert first >= 0 and ROUNDS > 0, f"{ROUNDS} rounds from {first} are none"
    config = resolve(parse(SWEEP))
    (batch,) = batches(config)
    target = str(Store(config).path(paths.ACCURACY, run="mini", **batch.names))
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    begin = time.monotonic()
    Snakemake(quiet)(SWEEP, "--cores", "2", target)
    seconds = time.monotonic() - begin
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # what the quiet run has compiled is kept
    with capsys.disabled():
        print(f"\nmake faults FROM={first} ROUNDS={ROUNDS}", flush=True)
        for fault in sorted(fault for fault in FAULTS if not can_befall(fault)):
            print(f"left out: {fault} needs root and {NEEDED[fault]}")
    possible = (each for each in islice(rounds(SEED), first, None) if can_befall(each[1]))
    befallen: Counter[str] = Counter()
    failed: list[str] = []
    for number, fault in islice(possible, ROUNDS):
        outcome = f"round {number}, {fault}: "
        folder = tmp_path / f"round{number}"
        folder.mkdir()
        run = Run(folder, SWEEP, target, random.Random(f"{SEED} {number}"), seconds)
        try:
            FAULTS[fault](run)
            removed = run.finish()
            mine, theirs = contents(folder / "results"), contents(quiet / "results")
            lost = theirs.keys() - mine.keys()
            assert not lost, f"lost: {sorted(lost)}; removed before: {removed}"
            assert_same(quiet / "results", folder / "results")
            assert not (left := left_over(folder)), f"left behind: {left}"
            outcome += f"as undisturbed; named as damaged: {removed}"
        except (AssertionError, subprocess.TimeoutExpired) as error:
            outcome += str(error)
            failed.append(outcome)
        befallen[fault] += 1
        with capsys.disabled():
            print(outcome, flush=True)
        run.kill()
        shutil.rmtree(folder)
    with capsys.disabled():
        print(f"\n{befallen.total()} rounds, {len(failed)} failed: {dict(befallen)}")
    assert befallen.total() == ROUNDS
    assert not failed, "\n".join(failed)
