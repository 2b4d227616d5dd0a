"""The engine is killed in the middle of a sweep, again and again: the next run just goes on."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import yaml

import warm
from comparing import assert_same
from headsweep.answers.client import IDLE_SECONDS
from headsweep.machine import fork_server
from mini import MINIATURE, REASONER, Snakemake, left_over
from processes import wait_until, working_in

KILLS = int(os.environ.get("HEADSWEEP_KILLS", "1"))
"""How often the engine is killed; `make nightly` does it 20 times."""
SWEEP = yaml.safe_load(
    """
    run: sweep
    questions:
      test: {benchmark: generated_math, sampling: first, split: test, n: 20}
      train: {benchmark: generated_math, sampling: first, split: train, n: 11}
    decodings:
      greedy: {max_new_tokens: 80}
      T0.6: {temperature: 0.6, samples: 2, max_new_tokens: 80}
    sweeps:
      math: {model: tiny, questions: test, layers: [1], heads: [0, 2, 3]}
      other: {model: eager, questions: train, layers: [2], heads: [0]}
    """
)
SWEEP |= {name: MINIATURE[name] for name in ("embedders", "selectors")}
SWEEP["questions"]["test"]["n"] *= 1 if KILLS == 1 else 2  # many kills need many answers
SWEEP["models"] = {"tiny": REASONER, "eager": {**REASONER, "attention": "eager"}}
"""Of three heads on two question sets, with samples of the base model; two models."""
STAYING = """
import pathlib, socket, sys
from headsweep.answers import engine_sockets
listener = socket.socket(socket.AF_UNIX)
listener.bind(chr(0) + engine_sockets.prefix() + "beside")
listener.listen()
print("listens", flush=True)
while True:
    connection, _ = listener.accept()
    with connection, open(sys.argv[1], "ab") as heard:
        heard.write(connection.recv(1 << 10))
        connection.sendall(b'{"stays": true}' + bytes([10]))
"""
"""An engine that another run uses: it keeps what it hears."""
OPTIONS = ("--keep-going", "--rerun-incomplete", "answers", "--cores")


@pytest.fixture
def moments(tmp_path, monkeypatch):
    """A file that says what befalls the engines of this test (see `deaths/sitecustomize.py`)."""
    file = tmp_path / "moments.json"
    file.write_text("{}")
    found = os.environ.get("PYTHONPATH")
    folder = str(Path(__file__).parent / "deaths")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [folder, found])))
    monkeypatch.setenv("HEADSWEEP_TEST_DEATHS", str(file))
    address = warm.begin()  # of a server whose forks are told of this file
    server = fork_server._begun.pop()
    monkeypatch.setattr(warm, "_address", lambda: address)
    yield file
    server.communicate()  # it leaves as its standard input is closed


def journaled(moments):
    count = Path(f"{moments}.count")
    return count.stat().st_size if count.exists() else 0


def test_a_sweep_interrupted_and_its_engine_killed_ends_with_the_same_answers(moments, tmp_path):
    quiet, disturbed = tmp_path / "quiet", tmp_path / "disturbed"
    engines = partial(working_in, disturbed, "sweep-engine")
    for folder in (quiet, disturbed):
        folder.mkdir()
    Snakemake(quiet)(SWEEP, *OPTIONS, "2")
    total = journaled(moments)
    Path(f"{moments}.count").unlink()

    first = total // (KILLS + 2)
    moments.write_text(json.dumps({first: "wait"}))
    log = disturbed / "snakemake.log"
    running = Snakemake(disturbed).start(SWEEP, *OPTIONS, "2", log=log)
    wait_until(lambda: journaled(moments) >= first or running.poll() is not None, 1800)
    os.killpg(running.pid, signal.SIGINT)
    # Whoever presses Ctrl-C twice does not see Snakemake's loops fail to close.
    wait_until(lambda: "Terminating processes on user request" in log.read_text())
    running.send_signal(signal.SIGINT)
    running.wait(timeout=300)
    assert "Cannot close a running event loop" not in log.read_text()
    wait_until(lambda: not engines())
    kept = journaled(moments)
    assert first <= kept < total - 2 * KILLS

    step = (total - kept) // (KILLS + 1)
    kills = {kept + step * n: ("worker", "cut")[n % 2] for n in range(1, KILLS + 1)}
    moments.write_text(json.dumps(kills))
    failures = 0
    # Runs go on with one worker in place of two, then with two.
    while Snakemake(disturbed)(SWEEP, *OPTIONS, "12"[failures % 2], check=False).returncode:
        failures += 1
        assert failures <= KILLS, "a run fails though no engine was killed"
        wait_until(lambda: not engines(), IDLE_SECONDS / 2)  # a run that fails asks them to leave
    wait_until(lambda: not engines())
    assert not left_over(disturbed)
    # Nothing that was journaled is lost and answered again, but for the records that were cut: so
    # the engine was killed, even where it died between two jobs, working ahead, and no run failed.
    assert journaled(moments) == total + (KILLS + 1) // 2
    assert_same(quiet / "results/store", disturbed / "results/store")


def test_a_run_that_ends_asks_an_engine_beside_it_and_stops_none_that_stays(tmp_path):
    heard = tmp_path / "heard"
    command = [sys.executable, "-c", STAYING, str(heard)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as engine:
        assert engine.stdout.readline() == b"listens\n"
        try:
            Snakemake(tmp_path)({**SWEEP, "run": "short"}, "--cores", "1", "fetch")
            assert engine.poll() is None
        finally:  # or its end would be waited for, for ever
            engine.kill()
    asked = [json.loads(line) for line in heard.read_text().splitlines()]
    assert [*map(list, asked)] == [["ended"]]
