"""A trial of software on this machine: what it checks first, what it times, and how it fails."""

import os
import sys
import time
from pathlib import Path
from types import MappingProxyType

import pytest
import yaml

from headsweep.config import parse
from headsweep.errors import EngineError, HeadsweepError, ModelError
from headsweep.generation import check
from headsweep.generation.requests import Answer
from headsweep.planning.batches import batches
from headsweep.planning.forecast import Speed
from headsweep.planning.revisions import resolve
from headsweep.planning.store import Store
from headsweep.tables import QUESTIONS
from headsweep.tool import pilot
from headsweep.tool import trial as trials
from headsweep.tool.without_snakemake import prepared
from mini import REASONER

VALUES = yaml.safe_load(
    """
    run: mine
    questions: {test: {benchmark: generated_math, split: test, n: 60}}
    decodings: {greedy: {max_new_tokens: 30}}
    sweeps: {math: {model: tiny, questions: test, layers: [1, 4]}}
    """
)


@pytest.fixture
def little(tmp_path, monkeypatch):
    """A config of one batch: base and two heads, with model and questions in the store."""
    monkeypatch.chdir(tmp_path)

    def made(**model):
        values = {**VALUES, "models": {"tiny": {**REASONER, **model}}}
        whole = resolve(parse(values))
        found = pilot.little_config(whole, batches(whole)[0])
        prepared(found)
        return found

    return made


def test_a_trial_checks_itself_in_half_precision_and_times_two_rates(little):
    told = trials.measure(little(dtype="bfloat16", batch_size=5), 1, time.time())
    assert told["workers"] == 1
    facts, speed = told["facts"], Speed(**told["speed"])
    assert facts["check"]["audited"] >= 4
    assert facts["path"] == "dense"
    assert speed.rows == 5
    assert "check" not in trials.measure(little(batch_size=3), 1, time.time())["facts"]  # float32


def test_the_rates_of_a_trial_are_prefill_and_full_width_apart_without_start_or_check(
    little, monkeypatch
):
    """A step takes 0.5 s and 0.01 s a row, a prompt's token 1 ms; the first pass is slow once."""
    clock = [0.0]
    warming = [7.0]
    engines = []

    class Timed:
        facts = MappingProxyType({"path": "flash", "batch_size": 16, "check": "own"})

        def __init__(self, tokens, checked):
            self._tokens = tokens
            engines.append(checked)

        def run(self, requests):
            rows = len(requests)
            clock[0] += sum(warming) + 1e-3 * sum(len(request.prompt) for request in requests)
            warming.clear()
            clock[0] += (self._tokens - 1) * (0.5 + 0.01 * rows)
            tokens = tuple(range(self._tokens))
            return [Answer(request, tokens, "length", 1.0) for request in requests]

    monkeypatch.setattr(
        trials._Probe, "engine", lambda _, tokens, __, *, checked: Timed(tokens, checked)
    )
    monkeypatch.setattr(trials.time, "perf_counter", lambda: clock[0])
    told = trials.measure(little(), 1, time.time())  # float32: no check comes first
    speed = Speed(**told["speed"])
    assert speed == pytest.approx((16, 1000, 16 / 0.66, 1 / 0.51))
    assert not any(engines)
    warming.append(7.0)
    told = trials.measure(little(dtype="bfloat16"), 1, time.time())
    assert Speed(**told["speed"]) == pytest.approx(speed)
    assert [number for number, checked in enumerate(engines) if checked] == [len(engines) // 2]


def test_a_worker_that_cannot_measure_says_why():
    def measured():
        raise ModelError("the model's logits are not finite")

    for workers in (1, 2):
        with pytest.raises(HeadsweepError, match=r"^the model's logits are not finite$"):
            trials._together(workers, measured)


def test_software_that_fails_its_check_or_cannot_start_is_said_to_have_failed(little, monkeypatch):
    half = little(dtype="bfloat16")
    monkeypatch.setattr(check, "_SLACK", 0.0)  # nothing is as near to the truth
    with pytest.raises(
        EngineError, match=r"the self-check has failed, and .* slowly: dense to mod"
    ):
        trials.measure(half, 1, time.time())
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with pytest.raises(EngineError, match=r"^headsweep: .*questions.*missing"):
        Path(Store(half).path(QUESTIONS, questions="test")).unlink()
        trials.attempt(half, 1)
    (Path("sitecustomize.py")).write_text("import os\nos._exit(9)\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path.cwd()), *sys.path]))
    with pytest.raises(EngineError, match=r"^headsweep: it ended with status 9"):
        trials.attempt(half, 1)
