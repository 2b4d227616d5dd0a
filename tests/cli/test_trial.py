"""A trial of software on this machine: what it checks first, what it times, and how it fails."""

import os
import sys
import time
from pathlib import Path
from types import MappingProxyType

import pytest
import yaml

from headsweep.cli import pilot
from headsweep.cli import pilot_trial as trials
from headsweep.cli.without_snakemake import prepared
from headsweep.config import parse
from headsweep.engine import check
from headsweep.engine.requests import Answer
from headsweep.errors import EngineError, ModelError
from headsweep.files.tables import QUESTIONS
from headsweep.store.batches import batches
from headsweep.store.layout import Store
from headsweep.store.revisions import resolve
from headsweep.variants import BASE
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
        found = pilot.little_config(next(iter(batches(Store(whole)).values())))
        prepared(Store(found))
        return found

    return made


@pytest.mark.parametrize("workers", [1, 3])
def test_a_trial_has_the_answers_of_all_variants_and_checks_itself_in_half_precision(
    workers, little
):
    config = little(dtype="bfloat16", batch_size=5)
    (batch,) = batches(Store(config)).values()
    found = trials.measure(Store(config), workers, time.time())
    assert found.facts["check"]["audited"] >= 4
    assert (found.facts["path"], found.facts["batch_size"]) == ("dense", 5)
    assert list(found.answers) == list(map(str, batch.variants))
    asked = Store(config).read(QUESTIONS, questions="test")["question_id"]
    for rows in found.answers.values():
        assert sorted(row["question_id"] for row in rows) == sorted(asked)
        assert all(0 < len(row["token_ids"]) <= 30 for row in rows)
    assert found.base > 0 and found.head > 0 and found.start > 0
    assert (
        "check" not in trials.measure(Store(little(batch_size=3)), 1, time.time()).facts
    )  # float32


def test_answers_of_the_base_and_of_heads_are_timed_apart_without_start_or_check(
    little, monkeypatch
):
    """A base answer takes 3 s, one of a head 0.5 s if its draft is there; the first is slow."""
    clock = [0.0]
    warming = [7.0]

    class Timed:
        facts = MappingProxyType({"path": "flash", "batch_size": 16, "check": "own"})

        def run(self, requests, drafts=MappingProxyType({})):
            clock[0] += sum(warming)
            warming.clear()
            for request in requests:
                known = request.question_id in drafts and request.variant != BASE
                clock[0] += 0.5 if known else 3.0
            return [Answer(request, (5, 6), "length", 1.0) for request in requests]

    monkeypatch.setattr(trials._Asked, "engine", lambda *_, **__: Timed())
    monkeypatch.setattr(trials.time, "perf_counter", lambda: clock[0])
    found = trials.measure(Store(little()), 1, time.time())
    assert (found.base, found.head) == pytest.approx((3.0, 0.5))


def test_a_worker_that_dies_is_told_and_one_that_cannot_answer_says_why(little, monkeypatch):
    def refused(*_):
        raise ModelError("the model's logits are not finite")

    config = little()
    for workers in (1, 2):
        with monkeypatch.context() as patch:
            patch.setattr(trials._Asked, "answer", refused)
            with pytest.raises(ModelError, match=r"^the model's logits are not finite$"):
                trials.measure(Store(config), workers, time.time())
    monkeypatch.setattr(trials._Asked, "answer", lambda *_: os._exit(9))
    with pytest.raises(EngineError, match="a worker has died, perhaps for lack of memory"):
        trials.measure(Store(config), 2, time.time())


def test_software_that_fails_its_check_or_cannot_start_is_said_to_have_failed(little, monkeypatch):
    half = little(dtype="bfloat16")
    monkeypatch.setattr(check, "_SLACK", 0.0)  # nothing is as near to the truth
    with pytest.raises(
        EngineError, match=r"the self-check has failed, and .* slowly: dense to mod"
    ):
        trials.measure(Store(half), 1, time.time())
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with pytest.raises(EngineError, match=r"^headsweep: .*questions.*missing"):
        Path(Store(half).path(QUESTIONS, questions="test")).unlink()
        trials.attempt(Store(half), 1)
    (Path("sitecustomize.py")).write_text("import os\nos._exit(9)\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path.cwd()), *sys.path]))
    with pytest.raises(EngineError, match=r"^headsweep: it ended with status 9"):
        trials.attempt(Store(half), 1)
