"""What another run finds in a folder where the miniature has run, or was killed."""

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pandas as pd
from mini import MINIATURE, Snakemake, facts, planned

from comparing import assert_same, contents


def test_another_config_generates_nothing_that_the_store_has(copied: Path) -> None:
    values: dict[str, Any] = {**MINIATURE, "run": "second", "selectors": {}, "comparisons": {}}
    values["sweeps"] = {"more": {"model": "tiny", "questions": "test", "layers": [1]}}
    counts = planned(Snakemake(copied)(values, "--dry-run"))
    assert counts["generate"] == 2  # heads 1 and 2; base, 0 and 3 are in the store
    assert not {"fetch_model", "source", "questions"} & set(counts)


def test_a_run_is_remade_from_an_archived_store_without_model_or_benchmark(
    finished: tuple[Path, str], copied: Path
) -> None:
    shutil.rmtree(copied / "results/mini")
    gone = [copied / "results/store/models", copied / "results/store/sources"]
    for folder in gone:
        shutil.rmtree(folder)
    Snakemake(copied)(MINIATURE)
    assert not any(folder.exists() for folder in gone)
    first = finished[0] / "results/mini"
    assert contents(copied / "results/mini").keys() == contents(first).keys()
    assert_same(first, copied / "results/mini", frozenset({"report.html"}))  # it states times


def test_growing_a_question_set_keeps_finished_answers(copied: Path) -> None:
    values = {**MINIATURE, "run": "grown", "selectors": {}, "comparisons": {}}
    values["questions"] = {"test": {**MINIATURE["questions"]["test"], "n": 18}}
    values["sweeps"] = {"math": {**MINIATURE["sweeps"]["math"], "heads": [3]}}
    Snakemake(copied)(values, "--cores", "2", "answers")
    for variant in ("base", "L01H03"):
        folder = copied / "results/store"
        files = sorted(folder.glob(f"tiny-*/greedy-*/test-*/{variant}.parquet"))
        old, new = sorted((pd.read_parquet(file) for file in files), key=len)
        assert len(old) == 15
        assert len(new) == 18
        pd.testing.assert_frame_equal(old, new.head(15))
        records = sorted(facts(file).get("reused", 0) for file in files)
        assert records == [0, 15]


def test_a_killed_run_goes_on_and_ends_with_the_same_files(
    finished: tuple[Path, str], tmp_path: Path
) -> None:
    values = {**MINIATURE, "selectors": {}, "comparisons": {}}
    target = "results/mini/controls/math/placebos.md"
    run = Snakemake(tmp_path)
    killed = run.start(values, "--cores", "2", target)
    deadline = time.monotonic() + 900
    while not list(tmp_path.glob("results/store/tiny-*/*/*/*.parquet")):
        assert killed.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    run(values, "--unlock")
    run(values, "--cores", "2", "--rerun-incomplete", target)
    assert_same(finished[0] / "results", tmp_path / "results", frozenset({"mini/config.json"}))
    assert (tmp_path / target).exists()
