"""The engine is killed in the middle of a sweep, again and again: the next run just goes on."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from mini import REASONER, Snakemake, left_over

from comparing import assert_same, contents
from headroom import paths
from headroom.config import parse
from headroom.generation import journal
from headroom.planning.batches import batches
from headroom.planning.resolve import resolve
from headroom.planning.store import Store

KILLS = int(os.environ.get("HEADROOM_KILLS", "2"))
"""How often the engine is killed; `make nightly` does it 20 times."""
GENERATED = {"benchmark": "generated_math", "sampling": "first"}
SWEEP: dict[str, Any] = {
    "run": "sweep",
    "engine": "server",
    "models": {"tiny": REASONER, "eager": {**REASONER, "attention": "eager"}},
    "questions": {
        "test": {**GENERATED, "split": "test", "n": 40},
        "train": {**GENERATED, "split": "train", "n": 11},
    },
    "decodings": {
        "greedy": {"max_new_tokens": 80},
        "T0.6": {"temperature": 0.6, "samples": 4, "max_new_tokens": 80},
    },
    "embedders": {"tiny": {"model": "tiny"}},
    "sweeps": {
        "math": {"model": "tiny", "questions": "test", "layers": [1, 3], "heads": [0, 2, 3]},
        "other": {"model": "eager", "questions": "train", "layers": [2], "heads": [0]},
    },
    "selectors": {
        "math": {
            "model": "tiny",
            "train": "train",
            "test": "test",
            "embedder": "tiny",
            "layers": [1],
            "heads": [0, 2, 3],
            "sampling": ["T0.6"],
            "max_n": 2,
            "redraws": 2,
            "redrawn_setting": "fixed",
        }
    },
}
"""Of 7 heads on two question sets, with samples of the base model; two models."""
OPTIONS = ("--cores", "2", "--keep-going", "--rerun-incomplete", "answers")


@pytest.fixture
def moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that says what befalls the engines of this test (see `deaths/sitecustomize.py`)."""
    file = tmp_path / "moments.json"
    file.write_text("{}")
    found = os.environ.get("PYTHONPATH")
    folder = str(Path(__file__).parent / "deaths")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [folder, found])))
    monkeypatch.setenv("HEADROOM_TEST_DEATHS", str(file))
    return file


def journaled(moments: Path) -> int:
    """Return how many answers engines have journaled."""
    count = Path(f"{moments}.count")
    return count.stat().st_size if count.exists() else 0


def processes(folder: Path) -> list[psutil.Process]:
    """Return the engine processes of a folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            engine = "headroom.generation.server" in process.cmdline()
            if engine and process.cwd() == str(folder):
                found.append(process)
    return found


def answered(folder: Path) -> int:
    """Return how many answers are on disk."""
    config = resolve(parse(SWEEP))
    count = 0
    for batch in batches(config):
        keys = Store(config).keys(**batch.names)
        section = config.questions[batch.questions]
        each = (section.n or 0) * config.decodings[batch.decoding].samples
        for variant in batch.variants:
            if (folder / paths.ANSWERS.format(variant=variant, **keys)).exists():
                count += each
            else:
                records = journal.read(folder / paths.JOURNAL.format(variant=variant, **keys))
                count += sum("text" in record for record in records)
    return count


def wait_for_engines(folder: Path) -> None:
    """Wait until no engine is left."""
    deadline = time.monotonic() + 120
    while processes(folder):
        assert time.monotonic() < deadline, "an engine is left"
        time.sleep(0.05)


def assert_nothing_is_left(folder: Path) -> None:
    wait_for_engines(folder)
    assert not left_over(folder)


def test_a_sweep_whose_engine_is_killed_ends_with_the_same_answers(
    moments: Path, tmp_path: Path
) -> None:
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    quiet.mkdir()
    killed.mkdir()
    Snakemake(quiet)(SWEEP, "--cores", "4", "answers")
    assert_nothing_is_left(quiet)
    total = journaled(moments)
    assert answered(quiet) == total

    Path(f"{moments}.count").unlink()
    kills = {total * n // (KILLS + 1): ("worker", "cut")[n % 2] for n in range(1, KILLS + 1)}
    moments.write_text(json.dumps(kills))
    failures = kept = 0
    while Snakemake(killed)(SWEEP, *OPTIONS, check=False).returncode:
        failures += 1
        assert failures <= KILLS, "a run fails though no engine was killed"
        assert not processes(killed), "a run that fails stops its engines"
        assert kept < (kept := answered(killed)), "answers are lost"
    assert_nothing_is_left(killed)
    # What was journaled is not answered again, but for the records that were cut.
    assert journaled(moments) == total + (KILLS + 1) // 2
    assert contents(quiet / "results").keys() == contents(killed / "results").keys()
    assert_same(quiet / "results", killed / "results")


def test_an_interrupted_run_leaves_no_engine(moments: Path, tmp_path: Path) -> None:
    moments.write_text(json.dumps({"100": "wait"}))
    running = Snakemake(tmp_path).start(SWEEP, *OPTIONS)
    while journaled(moments) < 100:
        assert running.poll() is None
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)
    running.wait(timeout=300)
    wait_for_engines(tmp_path)
    assert answered(tmp_path) == journaled(moments)
