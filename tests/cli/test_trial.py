"""A trial of software on this machine: what it checks first, what it times, and how it fails."""

import io
import json
import os
import re
import sys
import time
from itertools import product
from pathlib import Path

import pytest
import yaml

from headsweep.answers.worker import Worker
from headsweep.cli import pilot
from headsweep.cli import pilot_trial as trials
from headsweep.cli.without_snakemake import prepared
from headsweep.config import parse
from headsweep.engine import check
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


def test_a_trial_has_the_answers_of_all_variants_and_checks_itself_in_half_precision(little):
    config = little(dtype="bfloat16", batch_size=5)
    (batch,) = batches(Store(config)).values()
    found = trials.measure(Store(config), 3, time.time())
    assert found.facts["check"]["audited"] >= 4
    assert (found.facts["path"], found.facts["device"]) == ("dense", "cpu")
    assert list(found.answers) == list(map(str, batch.variants))
    asked = Store(config).read(QUESTIONS, questions="test")["question_id"]
    for rows in found.answers.values():
        assert sorted(row["question_id"] for row in rows) == sorted(asked)
        assert all(0 < len(row["token_ids"]) <= 30 for row in rows)
    assert found.base > 0 and found.head > 0 and found.start > 0
    assert trials.Trial(**json.loads(json.dumps(found._asdict()))).facts == found.facts


def test_answers_of_the_base_and_of_heads_are_timed_apart_without_start_or_check(
    little, monkeypatch
):
    """A base answer takes 3 s, one of a head 0.5 s if its draft is there; the first is slow."""
    clock = [0.0]
    asked = []

    def answer(_, work, variants, questions, drafts):
        if not asked:
            clock[0] += 7.0
        asked.append((len(questions), len(variants)))
        answers = []
        for question, variant in product(questions, variants):
            clock[0] += 0.5 if question in drafts and variant != BASE else 3.0
            row = {"question_id": question, "token_ids": [5, 6]}
            row["engine"] = {"backend": "vllm 9", "device": "cuda:0", "threads": 1}
            answers.append((variant, row))
        return answers

    monkeypatch.setattr(trials._Workers, "answer", answer)
    monkeypatch.setattr(trials.time, "perf_counter", lambda: clock[0])
    for dtype, cores, first in (("bfloat16", 1, 8), ("float32", 2, 2)):
        asked.clear()
        found = trials.measure(Store(little(dtype=dtype)), cores, time.time())
        assert asked == [(first, 3), (20, 1), (20, 2)]
        assert (found.base, found.head) == pytest.approx((3.0, 0.5))
        assert found.facts == {"version": "vllm 9", "device": "cuda:0"}


def test_a_worker_that_dies_is_told_and_one_that_cannot_answer_says_why(little, monkeypatch):
    def refused(*_):
        raise ModelError("the model's logits are not finite")

    config = little()
    monkeypatch.setattr(Worker, "run", refused)
    with pytest.raises(EngineError, match=r"^the model's logits are not finite$"):
        trials.measure(Store(config), 2, time.time())
    monkeypatch.setattr(Worker, "run", lambda *_: os._exit(9))
    with pytest.raises(EngineError, match="has died with status 9, perhaps for lack of memory"):
        trials.measure(Store(config), 1, time.time())


def test_software_that_fails_its_check_or_cannot_start_is_said_to_have_failed(
    little, monkeypatch, capsys
):
    half = little(dtype="bfloat16")
    monkeypatch.setattr(check, "_SLACK", 0.0)  # nothing is as near to the truth
    with pytest.raises(
        EngineError, match=r"the self-check has failed, and .* slowly: dense to mod"
    ):
        trials.measure(Store(half), 1, time.time())
    Path(Store(half).path(QUESTIONS, questions="test")).unlink()
    order = {"config": half.model_dump(mode="json"), "cores": 1, "begun": time.time()}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(order)))
    capsys.readouterr()
    trials.main()
    said = capsys.readouterr().out
    assert re.search(r"questions.*missing", json.loads(said)["error"])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path.cwd()), *sys.path]))
    for code, why in (
        (f"print({said!r}, flush=True)\nos._exit(0)", "[^:]*questions.*missing"),
        ("os._exit(9)", "it ended with status 9$"),
        ("os.write(2, b'no  room')\nos._exit(1)", "no room$"),
    ):
        Path("sitecustomize.py").write_text(f"import os\n{code}\n")
        with pytest.raises(EngineError, match=f"^headsweep: {why}"):
            trials.attempt(Store(half), 1)
