"""The generate job, on a tiny model in a store of its own, and the journal of what is answered."""

import errno
import json
import multiprocessing
import os
import random
import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

import inline
from batch_of import batch_of
from comparing import check, same_answers
from headsweep.answers.schedule import Schedule
from headsweep.answers.work import Work
from headsweep.benchmarks.prompts import encode_prompt
from headsweep.cli import without_snakemake
from headsweep.config import Sweep
from headsweep.files import paths
from headsweep.files.locks import Locks
from headsweep.files.record import record_path
from headsweep.files.safe_files import read_table, write_table
from headsweep.files.tables import ANSWERS, QUESTIONS
from headsweep.store import journal
from headsweep.store.hard_links import link_finished, unlink_finished
from headsweep.store.layout import Store, journal_files
from headsweep.variants import BASE, Variant
from headsweep.workflow import jobs

PRUNED = Variant(1, 4)


def answers_file(values, questions, decoding="greedy", variant=PRUNED):
    return Work(batch_of(values, "tiny", decoding, questions)).output(variant)


def run(values, questions, decoding="greedy", variant=PRUNED):
    inline.run(values, "tiny", decoding, questions, variant)
    shutil.rmtree("results/store/.journal")  # each is a whole run
    file = answers_file(values, questions, decoding, variant)
    return read_table(file, ANSWERS), json.loads(record_path(file).read_text())


def assert_alike(found, expected):
    compared = Counter()
    assert same_answers(expected.reset_index(drop=True), found, compared)
    check(compared)


FORBIDDEN = Mock(side_effect=AssertionError("the model was loaded"))


def test_answers_stand_in_the_order_of_questions_then_samples(run_config, tokenizer):
    answers, record = run(run_config, "small", "T0.6", BASE)
    assert answers["question_id"].tolist() == [f"q{n}" for n in (3, 2, 1, 0) for _ in range(3)]
    assert answers["sample"].tolist() == [0, 1, 2] * 4
    assert record["new_tokens"] == answers["token_ids"].map(len).sum()
    asked = run_config.decodings["T0.6"], run_config.questions["small"].grader_name
    prompts = [encode_prompt(tokenizer, f"w{n} w{2 * n} w7", *asked) for n in range(4)]
    assert record["prompt_tokens"] == sum(map(len, prompts)) / 4
    assert record["prompt"]["example"].startswith("Please reason")
    for tokens, text in zip(answers["token_ids"], answers["text"], strict=True):
        assert text.split() == [f"w{token - 3}" for token in tokens if token > 2]  # none special


def test_each_request_is_handed_out_once_and_the_base_models_first(run_config):
    variants = [*(Variant(1, head) for head in range(30)), BASE]
    work = Work(batch_of(run_config, "tiny", "greedy", "small"))
    schedule = Schedule(work, variants, 2, Locks(Path(paths.STORE_LOCKS)))
    units = list(iter(schedule.next, None))
    requests = [request for unit in units for request in unit.requests]
    assert len(requests) == len(set(requests)) == schedule.total == 4 * len(variants)
    assert {variant for variant, _ in units[0].requests} == {BASE, *variants[:24]}


def test_after_n_has_grown_only_new_answers_are_counted_and_drafts_are_known(run_config):
    for variant in (BASE, PRUNED):
        run(run_config, "small", variant=variant)
    new_head = Variant(1, 0)
    work = Work(batch_of(run_config, "tiny", "greedy", "large"))
    variants = [BASE, PRUNED, new_head]
    schedule = Schedule(work, variants, 1, Locks(Path(paths.STORE_LOCKS)))
    assert schedule.total == 3 + 3 + 7
    units = list(iter(schedule.next, None))
    assert schedule.total == sum(len(unit.requests) for unit in units) == 3 + 3 + 7
    drafts = {question for unit in units for question in unit.base}
    assert drafts == {f"q{n}" for n in range(4)}
    run(run_config, "large")
    run(run_config, "large", variant=BASE)
    smaller = Work(batch_of(run_config, "tiny", "greedy", "small"))
    for variant in (BASE, PRUNED):
        smaller.output(variant).unlink()
    schedule = Schedule(smaller, [BASE, PRUNED], 1, Locks(Path(paths.STORE_LOCKS)))
    assert schedule.total == 0 and schedule.next() is None


def test_a_variant_that_a_job_waits_for_is_first_once_another_engine_lets_it_go(
    run_config, monkeypatch
):
    heads = [Variant(1, head) for head in range(4)]
    locks = Locks(Path(paths.STORE_LOCKS))
    schedule = Schedule(Work(batch_of(run_config, "tiny", "greedy", "small")), heads, 1, locks)
    with monkeypatch.context() as patch:
        patch.setattr(locks, "take", lambda _: False)  # another engine has them
        assert not schedule.want(heads[2])
    assert schedule.look_elsewhere() == []
    assert schedule._queue[0] == heads[2]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of forking
def test_the_lock_of_what_another_engine_has_completed_is_let_go(run_config):
    batch = ("tiny", "greedy", "small")
    locks = Locks(Path(paths.STORE_LOCKS))
    schedule = Schedule(Work(batch_of(run_config, *batch)), [PRUNED], 1, locks)
    inline.run(run_config, *batch, PRUNED)
    assert schedule.next() is None
    with multiprocessing.get_context("fork").Pool(1) as others:
        assert not others.apply(locks.are_held)


@pytest.mark.parametrize("decoding", ["greedy", "T0.6"])
def test_a_larger_draw_takes_over_finished_answers(run_config, decoding):
    fresh, _ = run(run_config, "large", decoding)
    answers_file(run_config, "large", decoding).unlink()
    run(run_config, "small", decoding)
    samples = run_config.decodings[decoding].samples
    grown, record = run(run_config, "large", decoding)
    assert_alike(grown, fresh)
    assert record["reused"] == 4 * samples


def test_the_mean_prompt_of_a_larger_draw_is_that_of_all_its_questions(run_config, tokenizer):
    file = Store(run_config).path(QUESTIONS, questions="large")
    rows = read_table(file, QUESTIONS)
    longer = rows["question_id"] > "q3"  # which the smaller draw lacks
    rows.loc[longer, "question"] += " w1 w2 w3 w4"
    write_table(file, rows, QUESTIONS)
    for variant in (BASE, PRUNED):
        run(run_config, "small", variant=variant)
    asked = run_config.decodings["greedy"], run_config.questions["large"].grader_name
    lengths = [len(encode_prompt(tokenizer, text, *asked)) for text in rows["question"]]
    _, record = run(run_config, "large", variant=BASE)
    assert record["reused"] == 4 and record["prompt_tokens"] == sum(lengths) / 7
    assert len(set(lengths)) == 2
    _, record = run(run_config, "large", variant=PRUNED)
    assert record["reused"] == 4 and "prompt_tokens" not in record


def test_a_smaller_draw_needs_no_model_but_takes_over_nothing_else(run_config, monkeypatch, caplog):
    large, _ = run(run_config, "large")
    monkeypatch.setattr("headsweep.answers.worker.load", FORBIDDEN)
    small, record = run(run_config, "small")
    assert_alike(small, large[large["question_id"] < "q4"])
    assert record["reused"] == record["answers"] == 4
    for other in (("other",), ("small", "T0.6"), ("small", "greedy", BASE)):
        with pytest.raises(AssertionError, match="was loaded"):
            run(run_config, *other)
    answers_file(run_config, "small").unlink()
    answers_file(run_config, "large").write_bytes(b"PAR1")
    with pytest.raises(AssertionError, match="was loaded"):
        run(run_config, "small")
    assert "not reused" in caplog.text


def test_a_finished_table_that_snakemake_removes_is_put_back(run_config, monkeypatch):
    file = answers_file(run_config, "small")
    arguments = ("tiny", "greedy", "small", PRUNED)
    inline.run(run_config, *arguments)
    made, inode = file.read_bytes(), file.stat().st_ino
    monkeypatch.setattr("headsweep.answers.worker.load", FORBIDDEN)
    file.unlink()
    inline.run(run_config, *arguments)
    assert (file.read_bytes(), file.stat().st_ino) == (made, inode)
    inline.run(run_config, *arguments)  # and it stays, if it was not removed
    assert file.read_bytes() == made
    with file.open("r+b") as stream:  # damage has no second copy to hide in
        stream.seek(300)
        stream.write(bytes(4))
    with pytest.raises(AssertionError, match="was loaded"):
        inline.run(run_config, *arguments)


@pytest.mark.parametrize("snakemake", [True, False], ids=["snakemake", "headsweep sweep"])
def test_a_job_killed_between_its_table_and_its_record_gets_its_record(
    run_config, monkeypatch, snakemake
):
    batch = ("tiny", "greedy", "small")
    for other in (BASE, Variant(1, 0)):
        inline.run(run_config, *batch, other)
    work, killed = Work(batch_of(run_config, *batch)), Mock(side_effect=KeyboardInterrupt)
    file = work.output(PRUNED)
    with monkeypatch.context() as patch:
        patch.setattr("headsweep.answers.work.write_record", killed)
        with pytest.raises(KeyboardInterrupt):
            inline.run(run_config, *batch, PRUNED)
    made = file.read_bytes()
    assert journal_files(work.journal(PRUNED))
    assert not record_path(file).exists()
    monkeypatch.setattr("headsweep.answers.worker.load", FORBIDDEN)
    if snakemake:  # as a run does before its first job
        link_finished(file)
        file.unlink()
        inline.run(run_config, *batch, PRUNED)
    else:
        monkeypatch.setattr(without_snakemake, "prepared", Store)
        without_snakemake.answer(Store(run_config))
    assert file.read_bytes() == made
    assert json.loads(record_path(file).read_text())["answers"] == 4
    assert not journal_files(work.journal(PRUNED))


@pytest.mark.parametrize("linked", [True, False])
def test_a_table_that_snakemake_removes_comes_back(run_config, monkeypatch, linked):
    """As those of a group of jobs of which one fails, also on a disk without hard links."""
    batch = ("tiny", "greedy", "small")
    if not linked:
        refused = OSError(errno.EPERM, "Operation not permitted")
        monkeypatch.setattr(os, "link", Mock(side_effect=refused))
    inline.run(run_config, *batch, PRUNED)
    file = answers_file(run_config, "small")
    made = file.read_bytes()
    file.unlink()
    assert Work(batch_of(run_config, *batch)).unanswered(PRUNED) == []
    monkeypatch.setattr("headsweep.answers.worker.load", FORBIDDEN)
    inline.run(run_config, *batch, PRUNED)
    assert file.read_bytes() == made


def test_a_table_is_on_the_disk_before_its_journal_goes(run_config, monkeypatch):
    done = []
    work = Work(batch_of(run_config, "tiny", "greedy", "small"))
    for function in ("headsweep.answers.work.sync_file", "headsweep.store.journal.remove"):
        note = partial(lambda name, file: done.append((name, file)), function.rpartition(".")[2])
        monkeypatch.setattr(function, note)
    inline.run(run_config, "tiny", "greedy", "small", PRUNED)
    table = work.output(PRUNED)
    assert done == [
        ("sync_file", table),
        ("sync_file", record_path(table)),
        ("remove", work.journal(PRUNED)),
    ]


def test_nothing_is_missing_while_a_table_takes_its_journals_place(run_config, monkeypatch):
    work = Work(batch_of(run_config, "tiny", "greedy", "small"))
    with monkeypatch.context() as patch:
        patch.setattr("headsweep.answers.work.write_record", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            inline.run(run_config, "tiny", "greedy", "small", PRUNED)

    def look(work, variant):
        """Find no table; it is written, and the journal removed, right after."""
        journal.remove(work.journal(variant))
        return False

    monkeypatch.setattr(Work, "_finished_before", look)
    assert work.unanswered(PRUNED) == []
    assert len(work.unanswered(PRUNED)) == 4


def test_the_second_names_of_tables_go_when_their_jobs_have_ended(run_config, monkeypatch):
    batch = ("tiny", "greedy", "small")
    inline.run(run_config, *batch, PRUNED)
    second = Work(batch_of(run_config, *batch)).finished(PRUNED)
    answers_file(run_config, "small").unlink()
    unlink_finished(batch_of(run_config, *batch))
    assert second.exists()  # the only one left
    inline.run(run_config, *batch, PRUNED)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", Mock(side_effect=PermissionError))
        unlink_finished(batch_of(run_config, *batch))  # does not fail the run
    assert second.exists()
    unlink_finished(batch_of(run_config, *batch))
    assert not second.parent.exists()


@pytest.mark.parametrize("more", [(), ("authors",)], ids=["grade", "regrade"])
def test_a_run_killed_after_grading_leaves_no_second_name(run_config, more):
    """Snakemake has nothing to do then, so nothing of a run tidies up."""
    batch = ("tiny", "greedy", "small")
    sweep = Sweep(model="tiny", questions="small", layers=(1,), heads=(PRUNED.head,))
    config = run_config.model_copy(update={"sweeps": {"one": sweep}})
    for variant in (BASE, PRUNED):
        inline.run(config, *batch, variant)
    assert Work(batch_of(config, *batch)).finished(PRUNED).exists()
    job = jobs.regrade if more else jobs.grade
    job(batch_of(config, *batch), *more)
    assert not Work(batch_of(config, *batch)).finished(PRUNED).parent.exists()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of forking
def test_a_job_started_twice_at_once_does_no_harm(run_config):
    alone, _ = run(run_config, "large")
    file = answers_file(run_config, "large")
    file.unlink()
    # Processes: transformers cannot load models in two threads at once.
    with multiprocessing.get_context("fork").Pool(2) as twins:
        twins.starmap(inline.run, [(run_config, "tiny", "greedy", "large", PRUNED)] * 2)
    assert_alike(read_table(file, ANSWERS), alone)
    assert [each.name for each in file.parent.iterdir() if each.suffix != ".json"] == [file.name]
    assert not list(Path(paths.RESULTS).rglob("*.jsonl"))


RECORDS = [
    {"question_id": f"q{n}", "token_ids": [*range(n)], "text": "\n7 é\u2028" * n, "margin": 0.1 * n}
    for n in range(12)
]


def test_a_cut_anywhere_costs_only_the_record_that_it_meets(tmp_path):
    path, ends = tmp_path / "new" / "a.jsonl", []
    assert journal.read(path) == []
    for record in RECORDS[:6]:
        journal.append(path, [record])
        file = journal.written_here(path)
        ends.append(file.stat().st_size)
    journal.sync(path)
    journal.sync(tmp_path / "absent.jsonl")  # it has become a table
    whole = file.read_bytes()
    for length in range(len(whole) + 1):
        file.write_bytes(whole[:length])
        finished = sum(end <= length for end in ends)
        assert journal.read(path) == RECORDS[:finished]
        journal.append(path, RECORDS[6:8])
        assert journal.read(path) == [*RECORDS[:finished], *RECORDS[6:8]]


def test_a_changed_byte_costs_at_most_its_own_record_and_a_neighbour(tmp_path):
    path = tmp_path / "a.jsonl"
    journal.append(path, RECORDS)
    file = journal.written_here(path)
    whole = file.read_bytes()
    choose = random.Random(0)
    for _ in range(300):
        place = choose.randrange(1, len(whole))
        damaged = bytearray(whole)
        damaged[place] ^= choose.randrange(1, 256)
        file.write_bytes(damaged)
        found = journal.read(path)
        assert [record for record in RECORDS if record in found] == found
        assert len(RECORDS) - 2 <= len(found) < len(RECORDS)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of forking
def test_processes_write_files_of_their_own_and_read_and_remove_all(tmp_path):
    path = tmp_path / "L01H00.jsonl"
    (tmp_path / "L01H00.parquet").touch()
    journal.append(tmp_path / "L01H01.jsonl", RECORDS[8:])
    context = multiprocessing.get_context("fork")
    for first in (0, 2):
        process = context.Process(target=journal.append, args=(path, RECORDS[first : first + 2]))
        process.start()
        process.join()
    journal.append(path, RECORDS[4:5])
    journal.append(path, RECORDS[5:6])
    files = sorted(tmp_path.glob("L01H00.*.jsonl"))
    assert len(files) == 3
    path.write_bytes(files[0].read_bytes())  # a journal of before had one file
    files[0].unlink()
    found = journal.read(path)
    assert sorted(found, key=lambda record: record["margin"]) == RECORDS[:6]
    journal.remove(path)
    assert sorted(file.name[:7] for file in tmp_path.iterdir()) == ["L01H00.", "L01H01."]
    assert journal.read(path) == []


def test_asking_what_is_unanswered_writes_nothing_and_taking_over_does(run_config):
    inline.run(run_config, "tiny", "greedy", "small", PRUNED)
    work = Work(batch_of(run_config, "tiny", "greedy", "large"))
    asked_before = work.unanswered(PRUNED)
    assert not journal_files(work.journal(PRUNED))
    answered = {
        (question, 0) for question in Work(batch_of(run_config, "tiny", "greedy", "small")).texts
    }
    work.take_over(PRUNED)
    assert set(asked_before) - set(work.unanswered(PRUNED)) == answered & set(asked_before)
    assert 0 < len(work.unanswered(PRUNED)) < len(asked_before)
    lines = [file.read_bytes() for file in journal_files(work.journal(PRUNED))]
    work.take_over(PRUNED)
    assert [file.read_bytes() for file in journal_files(work.journal(PRUNED))] == lines
