"""Answers that an engine has begun, and that another one goes on with."""

import json
import math
import zlib
from pathlib import Path

import pandas as pd
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

from batch_of import batch_of
from headsweep.answers import worker
from headsweep.answers.schedule import Schedule
from headsweep.answers.work import Work
from headsweep.config import Decoding
from headsweep.engine import check, engine
from headsweep.engine.attention import dense
from headsweep.engine.check import Check
from headsweep.engine.decoder import Decoder
from headsweep.engine.engine import Engine
from headsweep.engine.in_progress import RowsInProgress
from headsweep.engine.requests import Request, Row
from headsweep.engine.unit import Begun
from headsweep.errors import TableError
from headsweep.files import paths
from headsweep.files.locks import Locks
from headsweep.files.safe_files import write_table
from headsweep.files.tables import ANSWERS
from headsweep.store import journal
from headsweep.store.layout import journal_files
from headsweep.variants import BASE, Variant

SAMPLING = {"temperature": 0.9, "top_k": 20, "top_p": 0.9, "samples": 3, "seed": 7}


@pytest.mark.parametrize("decoding", [{}, SAMPLING], ids=["greedy", "sampled"])
def test_a_request_that_is_made_twice_is_answered_once(decoding):
    loaded = loaded_model(tiny_models.build(QWEN2), eos=tuple(range(2, 20)))
    running = Engine(loaded, Decoding(max_new_tokens=NEW_TOKENS, **decoding), 5)
    answered = [answer.request for answer in running.run([*requests(), *requests()])]
    assert len(answered) == len(set(answered))
    assert set(answered) == set(requests())


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
    for request, row in begun.items():
        whole = expected[request]
        assert row.token_ids == list(whole.token_ids[: len(row.token_ids)])
        assert row.margin >= whole.margin - 1e-4
        assert row.attempt == 0

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
        assert running.tokens_in_progress
        assert running.begun == {}


def test_a_worker_has_its_engine_go_on_and_tells_of_nothing_that_is_done(run_config):
    work = Work(batch_of(run_config, "tiny", "greedy", "small"))
    section = run_config.models["tiny"]
    loaded = worker.load(section, work.batch.keys.model, section.device)
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
    work = Work(batch_of(run_config, "tiny", "greedy", "small"))
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
    kept["attempt"] = 0
    assert schedule.begun_records(told | {(Variant(1, 4), first): Begun([1], 2.0)}) == {
        BASE: [kept]
    }


def test_of_what_several_engines_have_begun_the_last_attempt_counts_not_the_longest(run_config):
    """Each process has a file of its own, whose names are random: their order says nothing."""
    work = Work(batch_of(run_config, "tiny", "greedy", "small"))
    (first, second, third, _) = work.unanswered(BASE)

    def written_by(writer, *records):
        lines = []
        for (question, sample), tokens, attempt in records:
            record = {"question_id": question, "sample": sample, "token_ids": tokens, "margin": 0.5}
            if attempt is not None:
                record["attempt"] = attempt
            body = json.dumps(record).encode()
            lines.append(b"\n%08x %b" % (zlib.crc32(body), body))
        path = work.journal(BASE)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(f"{path.stem}.{writer}{path.suffix}").write_bytes(b"".join(lines))

    # An engine that knows no attempts; one that has gone on from there, and found it to be wrong.
    written_by("b", (first, [5, 6, 7], None), (second, [9, 9], None), (third, [4], None))
    written_by("a", (first, [5, 6, 7, 8], 0), (first, [], 1), (second, [], 1), (second, [3], 1))
    assert len(journal_files(work.journal(BASE))) == 2
    begun = work.begun(BASE)
    assert begun == {
        first: Begun([], 0.5, 1),
        second: Begun([3], 0.5, 1),
        third: Begun([4], 0.5),
    }
    handed_out = Schedule(work, [BASE], 1, Locks(Path(paths.STORE_LOCKS))).next()
    assert handed_out.begun == {(BASE, key): row for key, row in begun.items()}


def test_rows_that_are_withdrawn_begin_anew_and_what_is_kept_of_them_is_told_off():
    in_progress = RowsInProgress(lambda request: Row(request, 9, ()))
    wanted = requests()[:4]
    in_progress.resume(wanted[0], Begun([5, 6], 0.5))
    in_progress.resume(wanted[1], Begun([], math.inf, 2))
    rows = {request: in_progress.take(request) for request in wanted}
    rows[wanted[2]].tokens.append(7)
    assert in_progress.begun == {
        wanted[0]: Begun([5, 6], 0.5),
        wanted[1]: Begun([], math.inf, 2),
        wanted[2]: Begun([7], math.inf),
    }
    in_progress.withdraw()
    assert in_progress.begun == in_progress.withdrawn
    assert in_progress.withdrawn == {
        wanted[0]: Begun([], math.inf, 1),
        wanted[1]: Begun([], math.inf, 2),  # nothing was kept of this attempt
        wanted[2]: Begun([], math.inf, 1),
    }
    anew = in_progress.take(wanted[2])
    anew.tokens.append(8)
    assert in_progress.begun[wanted[2]] == Begun([8], math.inf, 1)
    anew.append(9, 0.1)
    anew.limit = 3
    anew.append(9, 0.1)
    in_progress.forget(wanted[2])
    assert wanted[2] not in in_progress.begun


def test_a_worker_tells_at_once_of_what_was_begun_anew():
    told = Begun([1] * 100, 0.5)
    assert not worker._is_news(Begun([1] * 120, 0.5), told)
    assert worker._is_news(Begun([1] * 150, 0.5), told)
    assert worker._is_news(Begun([], math.inf, 1), told)
    assert not worker._is_news(Begun([1] * 63, 0.5, 1), Begun([], math.inf, 1))
    assert worker._is_news(Begun([1] * 64, 0.5, 1), Begun([], math.inf, 1))


def test_tokens_are_kept_once_the_check_has_passed_and_withdrawn_when_the_path_falls(monkeypatch):
    monkeypatch.setitem(check._ROWS, "cpu", 2)
    monkeypatch.setattr(check, "GROUP", 1)
    broken = []

    def flash(*inputs):
        return dense(*inputs) * (-1 if broken else 1)

    held = []
    hold = Check._hold

    def told(self, answers):
        held.append(running.begun)
        hold(self, answers)

    monkeypatch.setattr(Check, "_hold", told)
    loaded = loaded_model(tiny_models.build(QWEN2), eos=tuple(range(2, 20)))
    running = Engine(
        loaded, Decoding(max_new_tokens=NEW_TOKENS), 4, Decoder(loaded, flash), checked=True
    )
    wanted = requests()
    resumed = {wanted[0]: Begun([7, 8], 0.5)}
    answers = running.run(wanted, begun=resumed)
    next(answers)
    assert held == [{}]
    before = running.begun
    assert before
    assert all(row.token_ids and row.attempt == 0 for row in before.values())
    broken.append(True)
    withdrawn = []
    fall = Engine._fall

    def falls(self, cause):
        fall(self, cause)
        withdrawn.append(self.begun)

    monkeypatch.setattr(Engine, "_fall", falls)
    left = [answer.request for answer in answers]
    assert running.facts["path"] == "dense"
    again = withdrawn[0].keys()
    assert again & set(left)
    assert all(row == Begun([], math.inf, 1) for row in withdrawn[0].values())
    # What an engine before has begun is not believed any more.
    monkeypatch.setattr(Check, "_hold", hold)
    fed = fed_texts(monkeypatch)
    assert [*running.run(wanted[:1], begun=resumed)]
    assert fed[0] == [len(wanted[0].prompt)]


def test_sampled_answers_that_go_on_are_scored_by_their_logits_too():
    loaded = loaded_model(tiny_models.build(QWEN2).bfloat16(), eos=())
    settings = Decoding(max_new_tokens=60, **SAMPLING)
    wanted = requests([Variant(0, 5)])[:5:2]  # whose prompts leave most positions free
    begun = {request: Begun([7, 8] * 20, 0.5) for request in wanted}
    running = Engine(loaded, settings, 3)
    assert len([*running.run(wanted, begun=begun)]) == len(wanted)
    facts = running.facts
    assert "falls" not in facts
    assert facts["check"]["audited"] > 0


def test_a_wrong_engine_shows_in_sampled_answers_that_go_on(monkeypatch):
    right = Decoder.logits
    loaded = loaded_model(tiny_models.build(QWEN2).bfloat16(), eos=())
    running = Engine(loaded, Decoding(max_new_tokens=60, **SAMPLING), 3)
    monkeypatch.setattr(Decoder, "logits", lambda self, hidden: right(self, hidden).roll(1, -1))
    wanted = requests([BASE])[:5:2]
    begun = {request: Begun([7, 8] * 20, 0.5) for request in wanted}
    assert len([*running.run(wanted, begun=begun)]) == len(wanted)
    assert running.facts["path"] == "modules"


def test_an_answer_given_twice_counts_once(run_config):
    """A batch that failed is asked for again, and a unit from before its failure goes on."""
    work = Work(batch_of(run_config, "tiny", "greedy", "small"))
    schedule = Schedule(work, [BASE], 1, Locks(Path(paths.STORE_LOCKS)))
    schedule.next()
    (first, *rest) = work.unanswered(BASE)
    answers = [{"question_id": key[0], "sample": key[1], "token_ids": []} for key in (first, *rest)]
    assert not schedule.answered(BASE, answers[0])
    assert not schedule.answered(BASE, answers[0])
    assert schedule.done == 1
    assert [schedule.answered(BASE, answer) for answer in answers[1:]] == [False, False, True]
    assert schedule.done == schedule.total == 4
    assert not schedule.answered(BASE, answers[1])
    assert schedule.done == 4


FORGED = [
    ({"token_ids": [999_999]}, "has token 999999, and the model has 0 to "),
    ({"token_ids": [-1]}, "has token -1, and the model has 0 to "),
    ({"token_ids": [True]}, "which are no ids"),
    ({"token_ids": "x"}, "which are no ids"),
    ({"token_ids": [1] * 10_000}, "has 10000 tokens, and "),
    ({"sample": "0"}, "has sample, prompt_tokens and attempt ['0', 1, 0]"),
    ({"prompt_tokens": 1e300}, "has sample, prompt_tokens and attempt [0, 1e+300, 0]"),
    ({"stop_reason": "x", "text": ""}, "has id, text and stop_reason ['q', '', 'x']"),
    ({"stop_reason": "eos", "text": 3}, "has id, text and stop_reason ['q', 3, 'eos']"),
    ({"margin": None}, "has margin None"),
    ({"question_id": ["q"]}, "has id, text and stop_reason [['q'], '', 'eos']"),
]


@pytest.mark.parametrize(("forged", "problem"), FORGED)
def test_a_forged_record_is_named_and_its_answer_is_made_again(forged, problem, run_config, caplog):
    work = Work(batch_of(run_config, "tiny", "greedy", "small"))
    (first, second, *_) = work.unanswered(BASE)
    sound = {"question_id": second[0], "sample": 0, "token_ids": [3, 4], "margin": 0.5}
    sound |= {"stop_reason": "eos", "text": "x"}
    question = first[0] if "question_id" not in forged and "'q'" not in problem else "q"
    record = {"question_id": question, "sample": 0, "token_ids": [1], "margin": 0.5}
    journal.append(work.journal(BASE), [record | forged, sound])
    caplog.set_level("WARNING")
    assert work.begun(BASE) == {}
    assert first in work.unanswered(BASE)
    assert second not in work.unanswered(BASE)
    assert str(work.journal(BASE)) in caplog.text
    assert problem in caplog.text


def test_a_forged_table_is_no_draft_and_is_not_taken_over(run_config, caplog):
    work = Work(batch_of(run_config, "tiny", "greedy", "small"))
    (first, *_) = work.unanswered(BASE)
    row = {"question_id": first[0], "sample": 0, "token_ids": [999_999], "margin": 0.5}
    row |= {"text": "", "stop_reason": "eos"}
    write_table(work.output(BASE), pd.DataFrame([row]), ANSWERS, {"split": work.split})
    with pytest.raises(TableError, match=r"base\.parquet: .* token 999999, .*; remove it and run"):
        work.base()
    other = work.output(BASE).parent.parent / "small-00000000/base.parquet"
    other.parent.mkdir()
    work.output(BASE).rename(other)
    caplog.set_level("WARNING")
    work.take_over(BASE)
    assert first in work.unanswered(BASE)
    assert "not reused" in caplog.text
