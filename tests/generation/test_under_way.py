"""Answers that an engine has begun, and that another one goes on with."""

from pathlib import Path

import pytest
import tiny_models
from test_engine import (
    NEW_TOKENS,
    QWEN2,
    assert_alike,
    fed_texts,
    loaded_model,
    random_prompts,
    requests,
)

from headsweep import paths
from headsweep.config import Decoding
from headsweep.generation import engine, journal, worker
from headsweep.generation.engine import Engine
from headsweep.generation.locks import Locks
from headsweep.generation.requests import Request, Row
from headsweep.generation.schedule import Schedule
from headsweep.generation.unit import Begun
from headsweep.generation.work import Work
from headsweep.variants import BASE, Variant

SAMPLING = {"temperature": 0.9, "top_k": 20, "top_p": 0.9, "samples": 3, "seed": 7}


@pytest.mark.parametrize("decoding", [{}, SAMPLING], ids=["greedy", "sampled"])
def test_another_engine_goes_on_and_decodes_nothing_twice(decoding, monkeypatch):
    # Answers end at unlike times, so that some have begun when the first is there.
    loaded = loaded_model(tiny_models.build(QWEN2), eos=tuple(range(2, 20)))
    settings = Decoding(max_new_tokens=NEW_TOKENS, **decoding)
    wanted = [
        Request(each.question_id, each.prompt, each.variant, sample)
        for each in requests()
        for sample in range(settings.samples)
    ]
    expected = {each.request: each for each in Engine(loaded, settings, 5).run(wanted)}

    stopped = Engine(loaded, settings, 5)
    answers = stopped.run(wanted)
    ended = {answer.request: answer for answer, _ in zip(answers, range(4), strict=False)}
    begun = stopped.begun
    assert len({request.variant for request in begun}) > 1
    for request, (tokens, margin) in begun.items():
        whole = expected[request]
        assert tokens == list(whole.token_ids[: len(tokens)])
        assert margin >= whole.margin - 1e-4

    appended = []
    append = Row.append
    monkeypatch.setattr(Row, "append", lambda *said: appended.append(said) or append(*said))
    left = [request for request in wanted if request not in ended]
    resumed = {each.request: each for each in Engine(loaded, settings, 5).run(left, begun=begun)}
    assert_alike(ended | resumed, expected)
    ends = sum(answer.stop_reason == "eos" for answer in resumed.values())
    tokens = sum(len(answer.token_ids) for answer in resumed.values())
    assert len(appended) == tokens + ends - sum(len(row.token_ids) for row in begun.values())


def test_texts_enter_a_few_at_a_time_with_what_has_begun(monkeypatch):
    fed = fed_texts(monkeypatch)
    monkeypatch.setattr(engine, "PREFILLED_ON_CPU", 20)
    prompts = random_prompts((9, 8, 7, 6, 5, 25))
    wanted = [Request(f"q{number}", prompt) for number, prompt in enumerate(prompts)]
    begun = {wanted[1]: Begun([7, 8, 7, 8, 7], 0.5)}
    loaded = loaded_model(tiny_models.build(QWEN2))
    assert len([*Engine(loaded, Decoding(max_new_tokens=9), 16).run(wanted, begun=begun)]) == 6
    assert [lengths for lengths in fed if max(lengths) > 1] == [[25], [9], [13, 7], [6, 5]]


def test_what_depends_on_the_batch_or_on_edited_weights_is_not_kept():
    loaded = loaded_model(tiny_models.build(QWEN2), eos=tuple(range(2, 20)))
    for name in ("placebo01", "W17S20"):
        running = Engine(loaded, Decoding(max_new_tokens=NEW_TOKENS), 4)
        wanted = [
            Request(each.question_id, each.prompt, Variant.parse(name)) for each in requests()
        ]
        answers = running.run(wanted)
        next(answers)
        assert running.tokens_under_way
        assert running.begun == {}


def test_a_worker_has_its_engine_go_on_and_tells_of_nothing_that_is_done(run_config):
    work = Work(run_config, "tiny", "greedy", "small")
    section = run_config.models["tiny"]
    loaded = worker.load(section, work.keys["model"], section.device)
    answering = worker.Worker(loaded, batch_size=2)
    (first, *rest) = work.unanswered(BASE)
    strange = Begun([7, 8, 7], 0.0)  # which the model itself would not write
    unit = work.unit([(BASE, key) for key in (first, *rest)], {}, {(BASE, first): strange})
    answers = {}
    for _, answer in answering.run(unit):
        answers[answer["question_id"], answer["sample"]] = answer
        assert answering.begun.keys() <= {(BASE, key) for key in (first, *rest)} - answers.keys()
    assert answers[first]["token_ids"][:3] == (7, 8, 7)
    assert answers[first]["margin"] == 0.0
    assert all(answers[key]["token_ids"][:3] != (7, 8, 7) for key in rest)
    assert answering.begun == {}


def test_a_journal_gives_the_longest_of_what_has_begun_and_answers_come_first(run_config):
    work = Work(run_config, "tiny", "greedy", "small")
    (first, second, *_) = work.unanswered(BASE)

    def record(key, tokens, **more):
        question, sample = key
        return {
            "question_id": question,
            "sample": sample,
            "token_ids": tokens,
            "margin": 0.5,
            **more,
        }

    records = [record(first, [5, 6, 7]), record(first, [5, 6]), record(second, [9])]
    journal.append(work.journal(BASE), records)
    assert work.begun(BASE) == {first: Begun([5, 6, 7], 0.5), second: Begun([9], 0.5)}
    assert first in work.unanswered(BASE)
    journal.append(work.journal(BASE), [record(second, [9, 8], stop_reason="eos", text="x")])

    schedule = Schedule(work, [BASE], 1, Locks(Path(paths.STORE_LOCKS)))
    assert schedule.next().begun == {(BASE, first): Begun([5, 6, 7], 0.5)}
    told = {(BASE, key): Begun([1], 2.0) for key in (first, second)}
    question, sample = first
    kept = {"question_id": question, "sample": sample, "token_ids": [1], "margin": 2.0}
    assert schedule.begun_records(told | {(Variant(1, 4), first): Begun([1], 2.0)}) == {
        BASE: [kept]
    }
