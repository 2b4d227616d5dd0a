"""The engine is killed in the middle of a sweep, again and again: the next run just goes on."""

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from mini import Snakemake, contents, different

from headroom import paths
from headroom.config import Reasoner, parse
from headroom.generation import journal
from headroom.plan import batches
from headroom.resolve import resolve

SHAPE: dict[str, Any] = {
    "steps": 2,
    "layers": 3,
    "hidden": 40,
    "query_heads": 6,
    "kv_heads": 2,
    "head_dim": 8,
    "intermediate": 56,
    "vocabulary": 300,
    "batch_size": 4,
}

KILLS = int(os.environ.get("HEADROOM_KILLS", "4"))
"""How often the engine is killed; a sweep survives ten times as well, but that takes a while."""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A sweep of 18 heads and of two question sets, with samples of the base model; two models."""
    from headroom.reasoner.training import train_reasoner

    folder = tmp_path_factory.mktemp("model") / "tiny"
    train_reasoner(folder, Reasoner(**SHAPE), threads=1)
    generated = {"benchmark": "generated_math", "sampling": "first"}
    model = {
        "source": str(folder),
        "layers": 3,
        "heads": 6,
        "kv_heads": 2,
        "billions": 0.0001,
        "dtype": "float32",
        "device": "cpu",
    }
    return {
        "run": "sweep",
        "engine": "server",
        "models": {"tiny": model, "eager": {**model, "attention": "eager"}},
        "questions": {
            "test": {**generated, "split": "test", "n": 40},
            "train": {**generated, "split": "train", "n": 11},
        },
        "decodings": {
            "greedy": {"max_new_tokens": 48},
            "T0.6": {"temperature": 0.6, "samples": 4, "max_new_tokens": 48},
        },
        "embedders": {"tiny": {"model": "tiny"}},
        "sweeps": {
            "math": {"model": "tiny", "questions": "test", "layers": "all"},
            "other": {"model": "eager", "questions": "train", "layers": [2]},
        },
        "selectors": {
            "math": {
                "model": "tiny",
                "train": "train",
                "test": "test",
                "embedder": "tiny",
                "layers": [1],
                "sampling": ["T0.6"],
                "max_n": 2,
            }
        },
    }


def start(values: dict[str, Any], folder: Path) -> subprocess.Popen[bytes]:
    """Start the sweep's generate jobs."""
    options = ("--cores", "2", "--keep-going", "--rerun-incomplete")
    return Snakemake(folder).start(values, *options, "answers")


def processes(folder: Path) -> list[psutil.Process]:
    """Return the engine processes of a folder, the engine itself first."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            engine = "headroom.generation.server" in process.cmdline()
            if engine and process.cwd() == str(folder):
                found.append(process)
    return sorted(found, key=lambda process: process.create_time())


def answered(values: dict[str, Any], folder: Path) -> int:
    """Return how many answers are on disk."""
    config = resolve(parse(values))
    count = 0
    for batch in batches(config):
        keys = batch.wildcards(config)
        section = config.questions[batch.questions]
        each = (section.n or 0) * config.decodings[batch.decoding].samples
        for variant in batch.variants:
            if (folder / paths.ANSWERS.format(variant=variant, **keys)).exists():
                count += each
            else:
                records = journal.read(folder / paths.JOURNAL.format(variant=variant, **keys))
                count += sum("text" in record for record in records)
    return count


def assert_nothing_is_left(folder: Path) -> None:
    deadline = time.monotonic() + 10
    while processes(folder):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not list(folder.rglob("*.jsonl"))


def test_a_sweep_whose_engine_is_killed_ends_with_the_same_files(
    sweep: dict[str, Any], tmp_path: Path
) -> None:
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    quiet.mkdir()
    killed.mkdir()
    Snakemake(quiet)(sweep, "--cores", "8", "answers")
    assert_nothing_is_left(quiet)
    total = answered(sweep, quiet)
    choose = random.Random(7)
    running = start(sweep, killed)
    for _ in range(KILLS):
        moment = answered(sweep, killed) + choose.randint(1, total // (KILLS + 2))
        while (done := answered(sweep, killed)) < moment or not (found := processes(killed)):
            if running.poll() is not None:  # all jobs have failed that could
                running = start(sweep, killed)
            time.sleep(0.01)
        with contextlib.suppress(psutil.NoSuchProcess):
            choose.choice(found).kill()  # an engine, or one of its workers
        assert done < total
    running.wait(timeout=300)  # jobs that no engine was dead for are finished
    assert not processes(killed), "a run that fails stops its engines"
    assert done <= answered(sweep, killed)
    Snakemake(killed)(sweep, "--cores", "1", "--rerun-incomplete", "answers")
    assert_nothing_is_left(killed)
    assert answered(sweep, killed) == total
    assert contents(quiet / "results").keys() == contents(killed / "results").keys()
    assert not different(quiet / "results", killed / "results")


def test_an_interrupted_run_leaves_no_engine(sweep: dict[str, Any], tmp_path: Path) -> None:
    running = start(sweep, tmp_path)
    while answered(sweep, tmp_path) < 100:
        assert running.poll() is None
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGINT)
    running.wait(timeout=60)
    deadline = time.monotonic() + 10
    while processes(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.05)
