"""The pool: limits, kills, what workers must not do, and what it leaves behind."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from headsweep.errors import GradingError
from headsweep.grading import pool, worker
from headsweep.grading.pool import Judgement, Limits, judge_pairs
from processes import wait_until

LIMITS = Limits(cpu_seconds=0.5, wall_seconds=20, memory_mib=256)
RIGHT, WRONG = Judgement("judged", True), Judgement("judged", False)
TIMEOUT = Judgement("timeout", False)


def test_a_pair_that_waits_without_computing_ends_by_wall_time(monkeypatch):
    give = pool._Worker.give

    def give_and_stop(self, batch):
        give(self, batch)
        os.killpg(self.process.pid, signal.SIGSTOP)
        time.sleep(1.5)
        os.killpg(self.process.pid, signal.SIGCONT)

    monkeypatch.setattr(pool._Worker, "give", give_and_stop)
    limits = Limits(cpu_seconds=20, wall_seconds=1, memory_mib=256)
    # The tower is what keeps the worker busy until it is stopped.
    assert judge_pairs([("9**9**9**9", "x")], "authors", limits=limits) == [TIMEOUT]


def test_results_do_not_depend_on_the_number_of_workers_or_on_the_order():
    pairs = [(f"{number / 4}", rf"\frac{{{number % 8}}}{{4}}") for number in range(97)]
    pairs[40] = ("9**9**9**9", "x")
    alone = judge_pairs(pairs, "authors", workers=1, limits=LIMITS)
    assert judge_pairs(pairs[::-1], "authors", workers=3, limits=LIMITS) == alone[::-1]
    assert {RIGHT, WRONG, TIMEOUT} == set(alone)


@pytest.mark.parametrize("killed", ["child", "parent", "both"])
def test_a_worker_killed_from_outside_takes_no_pair_with_it(killed, monkeypatch):
    give = pool._Worker.give
    kills = []

    def give_and_kill(self, batch):
        give(self, batch)
        if self.answered and len(kills) < 3:
            kills.append(killed)
            if killed != "parent":
                with contextlib.suppress(psutil.NoSuchProcess):  # it ends by itself just now
                    for child in psutil.Process(self.process.pid).children():
                        child.kill()
            if killed != "child":
                self.process.kill()

    monkeypatch.setattr(pool._Worker, "give", give_and_kill)
    pairs = [(f"{number}.0", f"{number}") for number in range(50)]
    assert judge_pairs(pairs, "authors", workers=2) == [RIGHT] * 50
    assert len(kills) == 3


def test_a_worker_that_cannot_start_is_an_error_of_one_line(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(GradingError, match=r"^a grading worker ended with status 1 before .*$"):
        judge_pairs([("x", "y")], "default", workers=2)


FORBIDDEN = [
    *("open('/etc/passwd')", "open('new.txt', 'w')", "open('new.py', 'w')", "os.system('true')"),
    *("os.remove('new.txt')", "os.fork()", "subprocess.run(['true'])"),
    "socket.socket().connect(('127.0.0.1', 9))",
]


@pytest.mark.parametrize("attempt", [*FORBIDDEN, "import decimal, fractions, statistics"])
def test_a_worker_reaches_neither_files_nor_network_nor_processes(attempt, tmp_path):
    code = f"""
        import os, socket, subprocess, sys
        from headsweep.grading import worker
        sys.addaudithook(worker._watch)
        {attempt}
    """
    command = [sys.executable, "-B", "-c", textwrap.dedent(code)]
    status = subprocess.run(command, cwd=tmp_path, check=False).returncode
    assert status == (worker.EXIT_FORBIDDEN if attempt in FORBIDDEN else 0)
    assert not list(tmp_path.iterdir())


def alive(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("kill", [os.kill, os.killpg])
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_its_parent(sent, kill):
    code = """
        from headsweep.grading.pool import judge_pairs, Limits
        judge_pairs([("9**9**9**9", "x")] * 99, "authors", workers=2, limits=Limits(cpu_seconds=2))
    """
    parent = subprocess.Popen(
        # A background job of a shell ignores interrupts, and so would this.
        ["env", "--default-signal=INT", sys.executable, "-c", textwrap.dedent(code)],
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    family = psutil.Process(parent.pid)
    try:
        wait_until(lambda: len(family.children(recursive=True)) == 4)  # two workers that compute
        workers = family.children(recursive=True)
        kill(parent.pid, sent)
        assert parent.wait(300) == -sent
        wait_until(lambda: not any(map(alive, workers)))
    finally:
        parent.kill()
        parent.wait()
