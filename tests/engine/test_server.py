"""The engine process: real processes, a tiny model, and everything that may go wrong."""

import contextlib
import json
import logging
import multiprocessing
import os
import re
import shutil
import signal
import socket
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

import forked
import inline
import warm
from batch_of import batch_of
from comparing import check, same_answers
from headsweep.answers import client, engine_sockets, job_request, progress, server, worker
from headsweep.answers.job_request import JobRequest
from headsweep.answers.schedule import Schedule
from headsweep.answers.work import Work
from headsweep.answers.worker_processes import WorkerProcess
from headsweep.cli import main as cli
from headsweep.cli.without_snakemake import answer
from headsweep.config import Sweep, load
from headsweep.engine import devices
from headsweep.engine.batch import DecodingBatch
from headsweep.errors import EngineError
from headsweep.files import paths
from headsweep.files.locks import Locks
from headsweep.files.record import record_path
from headsweep.files.safe_files import read_table, write_json
from headsweep.files.tables import ANSWERS
from headsweep.machine import fork_server, sockets
from headsweep.store import journal, layout
from headsweep.store.keys import key
from headsweep.store.layout import Store, mark_version, write_config
from headsweep.variants import BASE, Variant
from processes import alive, python, wait_until, working_in

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of forking
HEADS = [Variant(1, 0), Variant(1, 4)]
OTHER = Variant(3, 2)  # in no plan


@pytest.fixture
def spawned(run_config, monkeypatch):
    """A config; at the end nothing of an engine may be left, however busy the machine is."""
    monkeypatch.setattr(client, "_SECONDS_TO_STOP", 120.0)
    write_config(Store(run_config))
    yield run_config
    client.stop()
    assert engines() == []
    assert not engine_sockets.names()


@pytest.fixture
def served(spawned, monkeypatch):
    """The same, with engines that have torch loaded as they start: they take no seconds."""
    monkeypatch.setattr(fork_server, "ask", forked.ask)
    return spawned


def engines():
    return working_in(Path.cwd(), "sweep-engine")


def written(values):
    """Write a config, as its run does; not again, because threads would be in each other's way."""
    file = Path(paths.CONFIG.format(run=values.run))
    if not file.exists() or load(file) != values:
        write_config(Store(values))
    return file


def run(values, variant, questions="small", cores=2):
    written(values)
    client.run(batch_of(values, "tiny", "greedy", questions), variant, cores)


def work_on(values, questions="small"):
    return Work(batch_of(values, "tiny", "greedy", questions))


def of_model(values, **changed):
    model = values.models["tiny"].model_copy(update=changed)
    return values.model_copy(update={"models": {"tiny": model}})


def asked(values, cores=2, variant=BASE, questions="small"):
    config = str(written(values))
    batch = work_on(values, questions).batch.keys
    section = values.models["tiny"].model_dump(mode="json")
    return JobRequest(config, section, batch, str(variant), cores, "a run")


def connected(values):
    return sockets.connect(asked(values).engine)


def message(values, variant, questions="small"):
    return json.dumps(asked(values, 2, variant, questions)._asdict()).encode() + b"\n"


def answered_here(config, *variants):
    """Return the tables of answers made without an engine, and leave none of them."""
    tables = []
    for variant in variants:
        inline.run(config, "tiny", "greedy", "small", variant)
        tables.append(read_table(work_on(config).output(variant), ANSWERS))
        work_on(config).output(variant).unlink()
    shutil.rmtree("results/store/.journal")
    return tables


def test_one_engine_answers_all_jobs_and_works_ahead(spawned, capsys):
    served = spawned
    outputs = [work_on(served).output(variant) for variant in (BASE, *HEADS)]
    expected = answered_here(served, BASE, *HEADS)
    run(served, HEADS[0])
    wait_until(lambda: not work_on(served).unanswered(HEADS[1]))  # ahead, and base with it
    assert not outputs[2].exists()
    assert len(engines()) == 1 + 2
    (first, *_) = engines()
    for variant in (HEADS[1], BASE, OTHER):
        run(served, variant)
    run(served, BASE, "large")
    assert engines()[0] == first
    assert asked(served).log.read_text().count("begins") == 1
    compared = Counter()
    for file, table in zip(outputs, expected, strict=True):
        assert same_answers(table, read_table(file, ANSWERS), compared)
    check(compared)
    assert not list(Path(paths.RESULTS).rglob("*.jsonl"))
    record = json.loads(Path(f"{outputs[0]}.run.json").read_text())
    assert record["threads"] == 1
    assert record["prompt"]["example"].startswith("Please reason")

    told = f"process {first.pid}: {work_on(served).batch.keys.model}, 2 workers, 0 jobs"
    for command, said in (
        ("status", told),
        ("stop", "1 engine stopped\n"),
        ("stop", "no engine runs in this folder; that of a sweep runs in its --out\n"),
        ("status", "no engine"),
    ):
        cli.main(["engine", command])
        assert said in capsys.readouterr().out


def test_an_engine_forks_from_the_server_of_a_run_s_jobs_and_is_nobody_s_child(
    spawned, monkeypatch
):
    monkeypatch.setenv(fork_server.ADDRESS, warm.environment()[fork_server.ADDRESS])
    at_interrupt = signal.getsignal(signal.SIGINT)
    run(spawned, HEADS[0])
    assert signal.getsignal(signal.SIGINT) == at_interrupt
    engine, *workers = engines()
    assert len(workers) == 2
    assert "warm.py" in " ".join(engine.cmdline())
    assert os.getsid(engine.pid) == os.getpgid(engine.pid) == engine.pid
    assert "warm.py" not in " ".join(engine.parent().cmdline())
    os.kill(engine.pid, signal.SIGINT)
    run(spawned, HEADS[1])
    assert alive(engine)
    answered = read_table(work_on(spawned).output(HEADS[1]), ANSWERS)
    assert client.stop() == 1
    (expected,) = answered_here(spawned, HEADS[1])
    compared = Counter()
    assert same_answers(answered, expected, compared)
    check(compared)


def test_an_engine_that_cannot_begin_is_told_in_one_line(run_config, tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(EngineError, match=r"^the engine has ended with status -9 before it could"):
        run(run_config, BASE)


def test_an_engine_whose_fork_is_killed_is_told_in_one_line(run_config, monkeypatch):
    monkeypatch.setattr(fork_server, "ask", lambda *_, **__: -signal.SIGKILL)
    with pytest.raises(EngineError, match=r"^the engine has ended with status -9 .* say why"):
        run(run_config, BASE)


def test_a_job_names_no_log_that_is_not_there(run_config):
    """An engine prints into the run whose job has started it, which may be another's."""
    request = asked(run_config)
    assert request.last_words == Path("results/*/logs/engine", request.log.name).absolute()
    request.log.parent.mkdir(parents=True)
    request.log.touch()
    assert request.last_words == request.log.absolute()


def test_what_a_job_waits_for_goes_before_what_is_worked_ahead(run_config):
    locks = Locks(Path(paths.STORE_LOCKS))
    ahead = Schedule(work_on(run_config, "small"), HEADS, 1, locks)
    wanted = Schedule(work_on(run_config, "large"), HEADS, 1, locks)
    with socket.socket(socket.AF_UNIX) as listener:
        engine = server.Server(listener, "tiny", 1.0, "a run")
        engine._schedules = {("small",): ahead, ("large",): wanted}
        engine._jobs = {server._Job(Mock(), schedule=wanted)}
        engine._workers = [WorkerProcess(Mock(), Mock(), is_ready=True)]
        engine._feed()
    assert engine._workers[0].schedule is wanted


def test_a_worker_that_dies_before_it_is_given_work_is_told_of_as_such(run_config):
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    schedule = Schedule(work_on(run_config, "small"), HEADS, 1, Locks(Path(paths.STORE_LOCKS)))
    with socket.socket(socket.AF_UNIX) as listener, ours:
        engine = server.Server(listener, "tiny", 1.0, "a run")
        engine._schedules = {("small",): schedule}
        engine._workers = [WorkerProcess(Mock(exitcode=-9), ours, is_ready=True)]
        with pytest.raises(EngineError, match="died with status -9, perhaps for lack of memory"):
            engine._feed()


def test_a_changed_config_is_worked_ahead_and_not_that_of_a_killed_run(run_config, monkeypatch):
    def planned_heads(*heads):
        sweep = Sweep(model="tiny", questions="small", layers=(1,), heads=heads)
        return run_config.model_copy(update={"sweeps": {"some": sweep}})

    def ask_engine(config):
        job = server._Job(Mock(fileno=listener.fileno))
        engine._jobs.add(job)
        engine._answer(job, asked(config))
        return job

    read = Mock(wraps=load)
    monkeypatch.setattr(layout, "load", read)
    before, after = planned_heads(0, 4), planned_heads(0, 2)
    with socket.socket(socket.AF_UNIX) as listener:
        engine = server.Server(listener, work_on(before).batch.keys.model, 1.0, "a run")
        engine._workers = [WorkerProcess(Mock(), Mock())]
        waits = ask_engine(before)
        assert ask_engine(after).schedule is waits.schedule  # one plan while somebody waits for it
        (busy,) = engine._workers
        busy.schedule = waits.schedule
        engine._jobs.clear()
        assert ask_engine(after).schedule is waits.schedule  # or while a worker is at it
        busy.is_ready = True
        engine._jobs.clear()
        schedule = ask_engine(after).schedule
        assert [*engine._schedules.values()] == [schedule]
    assert read.call_count == 2  # each config once
    variants = {variant for unit in iter(schedule.next, None) for variant, _ in unit.requests}
    assert variants == {BASE, Variant(1, 0), Variant(1, 2)}


def test_a_job_hears_of_tokens_before_the_first_answer(served, monkeypatch, caplog):
    def slow_step(batch):
        time.sleep(0.05)
        return step(batch)

    step = DecodingBatch.step
    monkeypatch.setattr(DecodingBatch, "step", slow_step)
    monkeypatch.setattr(worker, "_SECONDS_BETWEEN_COUNTS", 0.02)
    monkeypatch.setattr(server, "_SECONDS_BETWEEN_WORDS", 0.02)
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_REPORTS", 0.0)
    caplog.set_level(logging.INFO, logger=client.__name__)
    run(served, BASE)
    found = re.findall(r"writing the first of \d+ answers, (\d+) tokens", caplog.text)
    counts = [int(count) for count in found]
    assert counts == sorted(counts)
    assert 0 < counts[0] < counts[-1]


def test_another_engine_goes_on_from_what_a_killed_one_had_begun(served, tmp_path, monkeypatch):
    (expected,) = answered_here(served, BASE)
    step, halted = DecodingBatch.step, tmp_path / "halted"

    def step_or_halt(batch):
        if len(batch._rows[0].tokens) == 4 and not halted.exists():
            halted.touch()
            time.sleep(600)
        return step(batch)

    monkeypatch.setattr(DecodingBatch, "step", step_or_halt)
    monkeypatch.setattr(worker, "_SECONDS_BETWEEN_COUNTS", 0.01)
    monkeypatch.setattr(worker, "_FEWEST_KEPT", 3)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(run, served, BASE, cores=1)
        wait_until(lambda: halted.exists() and work_on(served).begun(BASE))
        engines()[0].kill()
        with contextlib.suppress(EngineError):
            waiting.result()
    begun = work_on(served).begun(BASE)
    for (question, _), kept in begun.items():
        (whole,) = expected.loc[expected["question_id"] == question, "token_ids"]
        assert kept.token_ids == list(whole[: len(kept.token_ids)])
    # One of them goes on with tokens that the model would not have written.
    (question, sample), kept = next(iter(begun.items()))
    forged = [*kept.token_ids, 7, 8, 7]
    record = {"question_id": question, "sample": sample, "token_ids": forged, "margin": 1.0}
    journal.append(work_on(served).journal(BASE), [record])
    run(served, BASE, cores=1)
    table = read_table(work_on(served).output(BASE), ANSWERS)
    is_forged = table["question_id"] == question
    (whole,) = table.loc[is_forged, "token_ids"]
    assert list(whole[: len(forged)]) == forged
    compared = Counter()
    assert same_answers(expected[~is_forged], table[~is_forged], compared)
    check(compared)


def test_a_job_that_finds_an_engine_needs_no_config_class(served):
    config = Path(paths.CONFIG.format(run=served.run))
    write_config(Store(served))
    keys = work_on(served).batch.keys
    assert not client.collect(config, keys, str(HEADS[0]), 2)  # no engine runs
    run(served, BASE)
    assert not client.collect(config, keys, str(HEADS[0]), 1)  # none with one core
    code = (
        "import sys; from headsweep.cli import main as cli; status = cli.main(sys.argv[1:]); "
        "print(status, *sorted(sys.modules))"
    )
    given = {"config": config, **keys._asdict(), "variant": HEADS[0], "cores": 2}
    options = [text for name, value in given.items() for text in (f"--{name}", str(value))]
    for _ in range(2):  # and once more after Snakemake has removed the table
        status, *loaded = python("-c", code, "job", "generate", *options).split()
        assert status == "0"
        assert "headsweep.answers.client" in loaded
        assert not {"pydantic", "yaml", "pyarrow", "numpy"} & set(loaded)
        output = work_on(served).output(HEADS[0])
        assert len(read_table(output, ANSWERS)) == 4
        assert json.loads(record_path(output).read_text())["answers"] == 4
        output.unlink()
    for other in (Path("a.yaml"), Path("results", "a.json")):  # which no run has written
        shutil.copy(config, other)
        assert not client.collect(other, keys, str(HEADS[0]), 2)


def test_each_device_has_a_worker_that_loads_the_model_itself(served, monkeypatch):
    (expected,) = answered_here(served, HEADS[0])
    right = worker.load

    def told(section, model, device):
        Path(f"loaded-{os.getpid()}").write_text(device)
        return right(section, model, device)

    monkeypatch.setattr(
        devices, "devices", lambda _, together: 2 * [devices.Device("cpu")] * together
    )
    monkeypatch.setattr(worker, "load", told)
    run(served, HEADS[0], cores=1)
    wait_until(lambda: len([*Path().glob("loaded-*")]) == 2)
    loaded = {int(file.name.partition("-")[2]) for file in Path().glob("loaded-*")}
    assert loaded == {process.pid for process in engines()[1:]}
    found = read_table(work_on(served).output(HEADS[0]), ANSWERS)
    assert same_answers(expected, found, Counter())


@pytest.mark.parametrize(
    ("victim", "how", "cause"),
    [
        (0, signal.SIGKILL, "has died, .*memory.*is kept"),
        (2, signal.SIGKILL, "status -9.*memory.*is kept"),
        (0, signal.SIGTERM, "was stopped; .*is kept"),
    ],
)
def test_after_a_death_jobs_fail_with_its_cause_and_the_next_run_goes_on(
    served, victim, how, cause
):
    run(served, BASE)
    processes = engines()
    for process in processes[1:]:
        process.suspend()
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(run, served, variant, "large") for variant in HEADS]
        try:
            wait_until(lambda: client.status()[0]["jobs"] == 2)
        finally:  # or the pool would wait for ever
            processes[victim].send_signal(how)
    for job in jobs:
        with pytest.raises(EngineError, match=f"^.*{cause}.*$"):
            job.result()
    wait_until(lambda: not engines())
    run(served, HEADS[0], "large")
    assert work_on(served, "large").output(HEADS[0]).exists()
    assert len(engines()) == 3


def test_a_model_that_cannot_be_loaded_is_the_jobs_error_and_an_idle_engine_leaves(
    served, monkeypatch
):
    file = Path(paths.MODEL.format(model=key(served, "models", "tiny")))
    right = file.read_text(encoding="utf-8")
    file.write_text('{"folder": "absent/model"}', encoding="utf-8")
    folder = Path(served.models["tiny"].source)
    moved = folder.rename(folder.with_name("moved"))
    try:
        with pytest.raises(EngineError, match="absent/model"):
            run(served, BASE)
    finally:
        moved.rename(folder)  # other tests read it, too
    wait_until(lambda: not engines())
    file.write_text(right, encoding="utf-8")
    monkeypatch.setattr(client, "IDLE_SECONDS", 0.5)
    client.ask(work_on(served), BASE, cores=1)
    wait_until(lambda: not engines() and not engine_sockets.names())
    assert client.status() == []


def test_a_job_hears_the_last_word_of_an_engine_that_hangs_up_before_it_is_asked(run_config):
    job, engine = socket.socketpair(socket.AF_UNIX)
    engine.sendall(b'{"error": "no model"}\n')
    engine.close()
    with pytest.raises(EngineError, match="no model"):
        client._ask(job, asked(run_config), "it answers")


def test_an_engine_that_fails_waits_for_its_first_job_and_not_for_its_workers(monkeypatch):
    monkeypatch.setattr(server, "_SECONDS_TO_BE_CALLED", 300.0)
    name = f"\0headsweep-test-{os.getpid()}"
    pipe, ended = multiprocessing.Pipe()
    ended.close()
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as job:
        listener.bind(name)
        listener.listen()
        engine = server.Server(listener, "tiny", 60.0, "a run")
        engine._listen(pipe, Mock())
        with ThreadPoolExecutor() as pool:
            closing = pool.submit(engine.close, "no model")
            time.sleep(0.2)
            job.connect(name)
            closing.result()
        assert [*client._messages(job)] == [{"error": "no model"}]


def test_a_job_that_was_stopped_for_long_hears_the_last_word():
    with socket.socket(socket.AF_UNIX) as listener:
        engine = server.Server(listener, "tiny", 60.0, "a run")
    theirs, ours = socket.socketpair(socket.AF_UNIX)
    schedule = Mock(done=1, total=2, seconds=3.0, elsewhere=[])
    schedule.work.decoding.max_new_tokens = 4
    job = server._Job(ours, schedule=schedule, variant=BASE)
    for _ in range(1000):
        engine._tell_progress(job)
    job.tell(complete=2)
    ours.close()
    with theirs:
        first, *_, last = client._messages(theirs)
    assert first["done"] == 1 and last == {"complete": 2}


def test_an_engine_outlives_killed_jobs_senseless_messages_and_tables_it_cannot_write(served):
    run(served, BASE)
    with connected(served) as connection:
        connection.sendall(message(served, OTHER, "large"))
    wait_until(lambda: not work_on(served, "large").unanswered(OTHER))
    for said, cause in (
        (b"{}\n", "not a message"),
        (b"\x80\x04K\x01.\n", "not a message"),
        (b"[1]\n", "not a message"),
        (message(served, Variant(9, 9)), ""),
        (message(of_model(served, dtype="bfloat16"), BASE), "this engine serves"),
    ):
        with connected(served) as connection:
            connection.sendall(said)
            assert cause in [*client._messages(connection)][-1]["error"]
    with connected(served) as connection, contextlib.suppress(ConnectionError):
        for _ in range(40):
            connection.sendall(b"x" * (job_request.LINE_LIMIT // 8))
        assert connection.recv(1) == b""
    output = work_on(served).output(HEADS[0])
    output.mkdir()
    with pytest.raises(EngineError, match=r"L01H00 cannot be written: .*directory"):
        client.ask(work_on(served), HEADS[0], 2)
    client.ask(work_on(served), HEADS[1], 2)
    output.rmdir()
    client.ask(work_on(served), HEADS[0], 2)
    assert len(read_table(output, ANSWERS)) == 4
    assert len(engines()) == 3


def test_a_bug_of_the_engine_is_told_with_its_log_and_what_to_do(served, monkeypatch):
    monkeypatch.setattr(worker, "load", lambda *_: 1 / 0)
    cause = "the engine failed: ZeroDivisionError: division by zero"
    log = asked(served).log.absolute()
    told = f"^{cause}; {log} has more; run again: what it has answered is kept$"
    with pytest.raises(EngineError, match=told):
        run(served, BASE)
    wait_until(lambda: not engines())


def test_other_settings_and_other_folders_have_engines_of_their_own(served, tmp_path, monkeypatch):
    names = {asked(served, cores).engine for cores in (1, 2)}
    updates = {"dtype": "bfloat16", "batch_size": 5, "graphs": "off", "tensor_parallel": 2}
    for name, value in updates.items():
        names.add(asked(of_model(served, **{name: value})).engine)
    assert all(name.startswith(engine_sockets.prefix()) for name in names)
    (tmp_path / "elsewhere").mkdir()
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path / "elsewhere")
        names.add(asked(served).engine)
    assert len(names) == 7


def test_a_run_that_ends_leaves_the_engine_to_the_run_beside_it(served, monkeypatch):
    def as_run(name):
        monkeypatch.setenv("HEADSWEEP_RUN", name)

    mark_version()
    as_run("first")
    run(served, BASE)
    (engine, *_) = engines()
    as_run("second")
    answer(Store(served), 2)  # with the engine that is there; then the second run has ended
    assert engines()[0] == engine
    as_run("third")
    run(served, OTHER)
    as_run("first")
    client.end_run()
    assert engines()[0] == engine
    as_run("third")
    run(served, OTHER, "large")
    with ThreadPoolExecutor() as pool:
        for process in engines()[1:]:
            process.suspend()
        waiting = pool.submit(run, served, HEADS[0], "large")  # of the run that ends
        try:
            wait_until(lambda: client.status()[0]["jobs"] == 1)
        finally:  # or the pool would wait for ever
            client.end_run()
        with pytest.raises(EngineError, match=r"was stopped; .*is kept"):
            waiting.result()
    wait_until(lambda: not engines())
    run(served, HEADS[0], "large")


def test_an_engine_whose_plan_is_done_makes_room_for_another_models(served):
    other = of_model(served, attention="eager")
    file = Path(paths.MODEL.format(model=key(other, "models", "tiny")))
    write_json(file, {"folder": served.models["tiny"].source})
    run(served, BASE)
    (first, *_) = engines()
    wait_until(lambda: not any(work_on(served).unanswered(variant) for variant in HEADS))
    run(other, BASE, "large")  # not all that is planned for `other`
    wait_until(lambda: not alive(first))
    second = engines()
    assert len(second) == 3
    run(served, OTHER, "large")
    assert engines()[0] == second[0]
    assert len(engines()) == 6


def test_an_idle_engine_leaves_for_a_large_model_though_its_plan_is_not_done(served):
    unasked = served.sweeps["some"].model_copy(update={"questions": "other"})
    planned = served.model_copy(update={"sweeps": {**served.sweeps, "unasked": unasked}})
    run(planned, BASE)
    with ThreadPoolExecutor() as pool:
        for process in engines()[1:]:
            process.suspend()
        waiting = pool.submit(run, planned, HEADS[0], "large")
        try:
            wait_until(lambda: client.status()[0]["jobs"] == 1)
            client.ask_idle_engines_to_leave()
        finally:  # or the pool would wait for ever
            for process in engines()[1:]:
                process.resume()
        assert waiting.result() is None  # it stays for whom it has
    wait_until(lambda: not any(work_on(planned).unanswered(variant) for variant in HEADS))
    client.ask_for_room()
    assert len(engines()) == 3  # nobody has asked for `unasked`
    client.ask_idle_engines_to_leave()
    wait_until(lambda: not engines())


def test_engines_of_two_models_wait_for_each_other_on_one_gpu(
    served, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(devices, "LOCKS", tmp_path / "gpus")
    monkeypatch.setattr(devices, "_SECONDS_BETWEEN_TRIES", 0.05)
    monkeypatch.setattr(devices, "devices", lambda *_: [devices.Device("cpu", ("GPU-1",))])
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_REPORTS", 0.0)
    right = worker.load

    def loads(section, model, device):
        Path(f"loaded-{section.attention}").touch()
        return right(section, model, device)

    monkeypatch.setattr(worker, "load", loads)
    other = of_model(served, attention="eager")
    file = Path(paths.MODEL.format(model=key(other, "models", "tiny")))
    write_json(file, {"folder": served.models["tiny"].source})
    run(served, OTHER)
    first, at_work = engines()
    at_work.suspend()
    caplog.set_level(logging.INFO)
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(run, served, BASE, "large")]
        # What forks while another thread works may take a lock along that nobody frees.
        wait_until(lambda: client.status()[0]["jobs"] == 1)
        jobs.append(pool.submit(run, other, BASE, "large"))
        told = "waiting for GPU GPU-1, where another model is loaded"
        try:
            wait_until(lambda: told in caplog.text)
            assert not Path("loaded-eager").exists()
        finally:  # or the pool would wait for ever
            at_work.resume()
        for job in jobs:
            job.result()
    assert first not in engines()
    assert Path("loaded-eager").exists()


def test_stopping_waits_for_an_engine_that_begins_and_starting_tells_of_one_that_never_does(
    served, tmp_path, monkeypatch
):
    (tmp_path / "elsewhere").mkdir()
    with socket.socket(socket.AF_UNIX) as holds:  # its name, and does not listen
        holds.bind(f"\0{asked(served).engine}")
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path / "elsewhere")
            assert client.stop() == 0  # is of another folder, and waits for nothing
        stopping = threading.Thread(target=client.stop)
        stopping.start()
        time.sleep(4 * client._SECONDS_BETWEEN_TRIES)
        assert stopping.is_alive()
        with monkeypatch.context() as patch:
            patch.setattr(client, "_SECONDS_TO_LISTEN", 4 * client._SECONDS_BETWEEN_TRIES)
            with pytest.raises(EngineError, match="does not listen"):
                run(served, BASE)
    stopping.join()
    run(served, BASE)


def test_stopping_tells_of_an_engine_that_still_begins(run_config, monkeypatch, capsys):
    monkeypatch.setattr(client, "_SECONDS_TO_STOP", 0.1)
    with socket.socket(socket.AF_UNIX) as holds:
        holds.bind(f"\0{asked(run_config).engine}")
        assert cli.main(["engine", "stop"]) == 2
    told = capsys.readouterr()
    assert "no engine runs" not in told.out
    assert "engines that do not listen yet: 1; wait" in told.err


def test_jobs_hear_of_progress_every_two_seconds_whatever_comes_between(monkeypatch):
    now, heard = [0.0], []

    def select(timeout):
        now[0] += min(timeout, 1.3)  # then a worker has an answer
        return []

    def told(_job):
        heard.append(now[0])
        idle._leaving = len(heard) == 5

    idle = object.__new__(server.Server)
    vars(idle).update(_idle=60.0, _leaving=False, _jobs=[None], _schedules={})
    vars(idle).update(_selector=SimpleNamespace(select=select), _feed=int, _sync=int)
    vars(idle).update(_tell_progress=told)
    monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=lambda: now[0]))
    idle.run()
    assert heard == pytest.approx([2.0, 4.0, 6.0, 8.0, 10.0])
