"""The pool: limits, kills, what workers must not do, and what it leaves behind."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap

import psutil
import pytest

from headsweep.errors import GradingError
from headsweep.grading import worker_process
from headsweep.grading.pool import JudgedPair, Limits, close_kept, judge_pairs
from processes import alive, wait_until

LIMITS = Limits(cpu_seconds=0.5, wall_seconds=20, memory_mib=256)
PATIENT = LIMITS._replace(cpu_seconds=10.0, wall_seconds=300.0)
"""For what takes a machine that is slow to import, or to give memory, longer."""
RIGHT, WRONG = JudgedPair("judged", True), JudgedPair("judged", False)
TIMEOUT = JudgedPair("timeout", False)


@pytest.fixture(autouse=True)
def own_workers():
    """No worker of another test: a test may replace what workers are."""
    close_kept()
    yield
    close_kept()


def test_results_do_not_depend_on_the_number_of_workers_or_on_the_order():
    pairs = [(f"{number / 4}", rf"\frac{{{number % 8}}}{{4}}") for number in range(97)]
    pairs[40] = ("9**9**9**9", "x")
    alone = judge_pairs(pairs, "math", "authors", workers=1, limits=LIMITS)
    assert judge_pairs(pairs[::-1], "math", "authors", workers=2, limits=LIMITS) == alone[::-1]
    assert {RIGHT, WRONG, TIMEOUT} == set(alone)


@pytest.mark.parametrize("killed", ["child", "parent", "both"])
def test_a_worker_killed_from_outside_takes_no_pair_with_it(killed, monkeypatch):
    give = worker_process.Worker.give
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

    monkeypatch.setattr(worker_process.Worker, "give", give_and_kill)
    pairs = [(f"{number}.0", f"{number}") for number in range(50)]
    assert judge_pairs(pairs, "math", "default", workers=2) == [RIGHT] * 50
    assert len(kills) >= 3  # two threads count


def test_children_killed_in_a_row_before_they_answer_take_no_pair_with_them(monkeypatch):
    give, kills = worker_process.Worker.give, []

    def give_and_kill(self, batch):
        give(self, batch)
        while len(kills) < 4:
            (child,) = wait_until(lambda: psutil.Process(self.process.pid).children())
            child.kill()
            child.wait(300)  # until the parent has noticed
            kills.append(child.pid)

    monkeypatch.setattr(worker_process.Worker, "give", give_and_kill)
    pairs = [(f"{number}.0", f"{number}") for number in range(9)]
    assert judge_pairs(pairs, "math", "default") == [RIGHT] * 9
    assert len(set(kills)) == 4


def test_a_worker_killed_at_its_start_is_started_again(monkeypatch):
    start, starts = worker_process.Worker.start, []

    def start_and_kill(self):
        start(self)
        starts.append(self)
        if len(starts) < 4:
            self.process.kill()

    monkeypatch.setattr(worker_process.Worker, "start", start_and_kill)
    assert judge_pairs([("1.0", "1")], "numeric", "default") == [RIGHT]
    assert len(starts) == 4


def test_a_worker_that_cannot_start_is_an_error_of_one_line(monkeypatch):
    monkeypatch.setattr(worker_process, "_COMMAND", ["/bin/false"])
    with pytest.raises(GradingError, match=r"^a grading worker ended with status 1 before .*$"):
        judge_pairs([("x", "y")], "math", "default", workers=2)


ATTACKABLE = """
IMPORTS
import contextlib
from headsweep.grading import worker

def run(answer, gold):
    with contextlib.suppress(BaseException):  # only the end of the process counts
        exec(answer, {"worker": worker})
    return answer == gold

worker.load = lambda step, family, preset: run
worker.main()
"""
"""A worker whose judge runs the answer as Python code."""


def attacked(monkeypatch, *codes, limits=LIMITS):
    """Return the verdicts on attacks, sure that the sound answers among them are judged rightly."""
    # Modules that are loaded already are no import, which would be forbidden by itself.
    imports = {line for code in codes for line in re.findall(r"^import .+?;", code)}
    command = [
        sys.executable,
        "-B",
        "-P",
        "-c",
        ATTACKABLE.replace("IMPORTS", "".join(sorted(imports))),
    ]
    monkeypatch.setattr(worker_process, "_COMMAND", command)
    pairs = [pair for code in codes for pair in (("1", "1"), (code, code), ("2", "3"))]
    found = judge_pairs(pairs, "math", "authors", limits=limits)
    assert found[0::3] == [RIGHT] * len(codes)
    assert found[2::3] == [WRONG] * len(codes)
    return [attack.verdict for attack in found[1::3]]


FORBIDDEN = {
    "files": [
        "open('/etc/passwd')",
        "open('FOLDER/new.py', 'w')",
        "open('FOLDER/secret.py')",
        "import os; os.open('FOLDER/sympy/part.py', os.O_RDWR)",
        "import os; os.open('FOLDER/sympy/part.py', os.O_RDONLY | os.O_TRUNC)",
        "import os; os.open('FOLDER/sympy/part.txt', os.O_RDONLY)",
        "open('FOLDER/sympy/../secret.py')",
        "import os; os.mkfifo('FOLDER/new')",
        "import posix; posix.mknod('FOLDER/new')",
        "import os; os.remove('FOLDER/secret.py')",
        "import os; os.listdir('FOLDER')",
        "import mmap; mmap.mmap(-1, 4096)",
        "import _posixshmem; _posixshmem.shm_unlink('/headsweep-test')",
    ],
    "processes": [
        "import os; os.system('touch FOLDER/new')",
        "import os; os.fork()",
        "import subprocess; subprocess.run(['touch', 'FOLDER/new'])",
        "import _posixsubprocess; _posixsubprocess.fork_exec()",
        "import os; os.kill(os.getpid(), 0)",
        "import os; os.setsid()",
        "import signal, threading; signal.pthread_kill(threading.get_ident(), 0)",
        "import _thread; _thread.start_new_thread(print, ())",
    ],
    "network": [
        "import socket; socket.socket().connect(('127.0.0.1', 9))",
        "import _socket; _socket.socket()",
    ],
    "limits": [
        "import signal; signal.setitimer(signal.ITIMER_PROF, 0)",
        "import signal; signal.alarm(0)",
        "import signal; signal.signal(signal.SIGPROF, signal.SIG_IGN)",
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])",
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    ],
    "memory": [
        "import ctypes; ctypes.CDLL(None)",
        "import sys; sys.addaudithook(print)",
        "import gc; gc.get_objects()",
        "import pickle; pickle.loads(b'cos\\nsystem\\n.')",
        "import wave",
        "input()",
    ],
}
"""One attack for each condition of the audit hook and each function that is taken away, and one or
two of each kind that meet no condition but the last."""


@pytest.mark.parametrize("kind", FORBIDDEN)
def test_code_that_an_answer_runs_reaches_nothing_outside_the_worker(kind, monkeypatch, tmp_path):
    """Attacks go to a folder of the test, in which modules lie as in a library's."""
    contents = {"secret.py": "secret", "sympy/part.py": "part = 1", "sympy/part.txt": "text"}
    (tmp_path / "sympy").mkdir()
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setenv("PYTHONPATH", f"{os.environ.get('PYTHONPATH', '')}:{tmp_path}")
    codes = [code.replace("FOLDER", str(tmp_path)) for code in FORBIDDEN[kind]]
    verdicts = dict(zip(codes, attacked(monkeypatch, *codes), strict=True))
    assert not {code: verdict for code, verdict in verdicts.items() if verdict != "error"}
    left = {str(file.relative_to(tmp_path)): file for file in tmp_path.rglob("*.*")}
    assert {name: file.read_text() for name, file in left.items()} == contents
    assert len(list(tmp_path.rglob("*"))) == 4


def test_a_judge_may_import_what_is_left_of_its_libraries(monkeypatch):
    codes = ["import sympy; import sympy.stats", "import sympy; import sympy.physics.units"]
    assert attacked(monkeypatch, *codes, limits=PATIENT) == ["judged", "judged"]


STOP_TIMERS = "import os; worker._setitimer(0, 0); worker._setitimer(2, 0); "
ENDLESS = {
    "cpu": "while True: pass",
    "wall": "import os; os.read(os.pipe()[0], 1)",  # sleep is forbidden from Python 3.13 on
    "all cpu": STOP_TIMERS + "exec('while True: pass')",
    "silent": STOP_TIMERS + "os.read(os.pipe()[0], 1)",
}
"""Answers that never come to an end, by what ends them."""


@pytest.fixture
def causes(monkeypatch):
    """Return the causes of the ends of children, as they come to be known."""
    proved, noted = worker_process.Worker._proved, []

    def note(self, cause):
        noted.append(cause)
        return proved(self, cause)

    monkeypatch.setattr(worker_process.Worker, "_proved", note)
    return noted


@pytest.mark.parametrize("cause", ENDLESS)
def test_an_answer_that_never_ends_is_ended_even_if_it_stops_its_timers(cause, causes, monkeypatch):
    monkeypatch.setattr(worker_process, "_PATIENCE_SECONDS", 2.0 if cause == "silent" else 300.0)
    limits = LIMITS._replace(cpu_seconds=0.1, wall_seconds=0.5 if "cpu" not in cause else 300)
    assert attacked(monkeypatch, ENDLESS[cause], limits=limits) == ["timeout"]
    assert cause in causes


def test_an_answer_that_is_killed_above_the_limit_of_memory_counts_at_once(causes, monkeypatch):
    code = "held = b'x' * (300 << 20); worker.signal.raise_signal(9)"
    assert attacked(monkeypatch, code, limits=PATIENT) == ["memory"]
    assert causes == 2 * ["memory"]  # among others, and alone


def test_an_answer_at_which_the_worker_is_killed_again_and_again_counts(causes, monkeypatch):
    assert attacked(monkeypatch, "worker.signal.raise_signal(9)") == ["memory"]
    assert causes == 6 * ["killed"]


@pytest.mark.parametrize(
    ("sent", "kill"),
    [(signal.SIGKILL, os.kill), (signal.SIGINT, os.killpg)],
)
def test_no_worker_outlives_its_parent(sent, kill):
    code = """
        from headsweep.grading.pool import judge_pairs, Limits
        pairs, limits = [("9**9**9**9", "x")] * 99, Limits(cpu_seconds=2)
        judge_pairs(pairs, "math", "authors", workers=2, limits=limits)
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
