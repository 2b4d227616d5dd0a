"""`headsweep.grade`: verdicts with their causes, one pool for threads, calls and forks."""

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

import headsweep
from headsweep.errors import GradingError
from headsweep.grading import pool
from headsweep.grading.pool import Limits
from processes import alive, python, wait_until

LIMITS = Limits(cpu_seconds=0.05, wall_seconds=60, memory_mib=256)
MANY = [rf"\binom{{x}}{{y+{place}}}+z!" for place in range(59)]
SLOW, SLOW_GOLD = ",".join([*MANY, "a"]), ",".join([*MANY[::-1], "b"])
"""Lists of 60 things in other orders, of which only the last is not in both."""


@pytest.fixture(autouse=True)
def ended():
    yield
    pool.close_kept()


def workers():
    """Return the grading workers of this process that live; other tests leave other children."""
    return [each for each in psutil.Process().children() if is_worker(each)]


def is_worker(process):
    try:
        return "headsweep.grading.worker" in process.cmdline()  # which a zombie has not
    except psutil.NoSuchProcess:
        return False


def causes(*arguments, **options):
    return [verdict.cause for verdict in headsweep.grade(*arguments, **options)]


def test_verdicts_are_in_order_and_name_their_cause():
    answers = [r"so \boxed{0.50}", r"\boxed{2/3}", "half", None, rf"\boxed{{{SLOW}}}"]
    golds = ["1/2"] * 4 + [SLOW_GOLD, "1/2"]
    found = headsweep.grade([*answers, r"\boxed{\frac12}"], golds, limits=LIMITS)
    wanted = ["right", "wrong", "no answer", "no answer", "time", "right"]
    assert [verdict.cause for verdict in found] == wanted
    assert [verdict.correct for verdict in found] == [cause == "right" for cause in wanted]
    assert [verdict.answer for verdict in found[:3]] == ["0.50", "2/3", None]
    assert found[0].form == found[5].form != found[1].form


def test_each_grader_has_its_rules():
    answers = ["about 3.5, or 7/2"] * 2  # the last number is 7/2
    assert causes(answers, ["3.5", "2"], "numeric") == ["right", "wrong"]
    answers = ["Well.\nNew  York", ""]
    assert causes(answers, ["new york"] * 2, "exact") == ["right", "no answer"]


def test_a_final_answer_needs_no_box():
    answers = [r"\frac{1}{2}", r"\boxed{0.5}", " ", "0.25"]
    assert causes(answers, ["0.5"] * 4) == ["no answer", "right", "no answer", "no answer"]
    assert causes(answers, ["0.5"] * 4, final=True) == ["right", "right", "no answer", "wrong"]


def test_memory_is_a_cause():
    many = "1+" * 30_000_000
    limits = Limits(60.0, 300.0, memory_mib=128)
    assert causes([many, "7"], ["x", "7"], final=True, limits=limits) == ["memory", "right"]


def test_threads_share_one_pool_and_get_the_verdicts_of_one():
    golds = [rf"\frac{{{number}}}{{7}}" for number in range(64)]
    answers = [rf"\boxed{{{number + number % 3}/7}}" for number in range(64)]
    alone = headsweep.grade(answers, golds, workers=2)
    before = {each.pid for each in workers()}
    with ThreadPoolExecutor(32) as threads:
        found = list(threads.map(lambda pair: headsweep.grade(*pair), pairs(answers, golds)))
    assert [verdict for (verdict,) in found] == alone
    assert [verdict.correct for verdict in alone] == [not number % 3 for number in range(64)]
    assert {each.pid for each in workers()} == before
    assert len(before) <= 4  # two that read, two that judge


def pairs(answers, golds):
    return [([answer], [gold]) for answer, gold in zip(answers, golds, strict=True)]


def in_a_fork(pipe):
    pipe.send((causes([r"\boxed{1/2}"], ["0.5"]), {each.pid for each in workers()}))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_starts_a_pool_of_its_own_and_leaves_its_parent_s():
    assert causes([r"\boxed{1/3}"], ["1/3"]) == ["right"]
    mine = {each.pid for each in workers()}
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=in_a_fork, args=(send,))
    child.start()
    found, others = receive.recv()
    child.join()
    assert child.exitcode == 0
    assert found == ["right"]
    assert not others & mine
    assert causes([r"\boxed{1/4}"], ["1/3"]) == ["wrong"]
    assert {each.pid for each in workers()} == mine


def test_a_fork_that_lives_on_keeps_no_worker_of_a_parent_that_was_killed():
    code = """
        import os, signal, time, headsweep
        from headsweep.grading import pool
        headsweep.grade(["x"], ["x"], final=True)
        held = [each for one in pool._POOLS.values() for each in one._workers]
        if not os.fork():
            time.sleep(300)
        print(*(each.process.pid for each in held), flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    """
    lines = "\n".join(line.strip() for line in code.splitlines())
    lines = lines.replace("time.sleep", "    time.sleep")
    parent = psutil.Popen([os.sys.executable, "-c", lines], stdout=-1, text=True)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    held = [psutil.Process(pid) for pid in pids]
    child = next(each for each in parent.children() if each.pid not in pids)
    try:
        parent.kill()
        parent.wait()
        wait_until(lambda: not any(map(alive, held)))
    finally:
        child.kill()
        parent.stdout.close()


def test_a_call_that_is_interrupted_leaves_the_pool_usable():
    class StopError(Exception):
        pass

    def stop(judged, of):
        raise StopError

    golds = [rf"\frac{{{number}}}{{7}}" for number in range(300)]
    with pytest.raises(StopError):
        headsweep.grade([f"{number}/7" for number in range(300)], golds, final=True, progress=stop)
    assert causes(["1/7"], golds[1:2], final=True) == ["right"]


def test_progress_counts_distinct_pairs_up_to_all():
    told = []
    answers = [f"{number % 90}/7" for number in range(180)]
    golds = ["x", *[rf"\frac{{{number % 90}}}{{7}}" for number in range(1, 180)]]
    headsweep.grade(
        answers, golds, final=True, workers=1, progress=lambda done, of: told.append((done, of))
    )
    assert {of for _, of in told} == {91}
    assert sorted(told) == told
    assert told[-1] == (91, 91)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["1"], ["1"], "maths"), "'maths' is unknown; choose one of math, numeric"),
        ((["1", "2"], ["1"]), "2 answers and 1 gold answers"),
        ((["1", 2], ["1", "2"]), "pair 1 holds 2, which is no text"),
        ((["1"], [None]), "pair 0 holds None"),
    ],
)
def test_what_cannot_be_graded_is_refused(arguments, message):
    with pytest.raises(GradingError, match=message):
        headsweep.grade(*arguments)


@pytest.mark.parametrize("workers", [0, -1])
def test_fewer_workers_than_one_are_refused(workers):
    with pytest.raises(GradingError, match=f"^workers is {workers}; give 1 or more"):
        headsweep.grade([r"\boxed{x}"], ["y"], workers=workers)


def test_no_answers_have_no_verdicts_and_grading_loads_no_torch():
    code = "import sys, headsweep; print(headsweep.grade([], []), *sys.modules)"
    found = python("-c", code).split()
    assert found[0] == "[]"
    assert not {"torch", "transformers", "pandas"} & {*found}
