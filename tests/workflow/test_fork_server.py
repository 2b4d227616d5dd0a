"""Jobs that fork from a process whose imports are done end as they would of their own."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from importlib.metadata import packages_distributions

import psutil
import pytest
from packaging.utils import canonicalize_name

import warm
from headsweep.errors import EngineError
from headsweep.machine import fork_server
from mini import ROOT
from processes import alive, wait_until, working_in

CLIENT = """\
import os, sys
from headsweep.machine.fork_server import ask
sys.exit(ask("timeit", ["timeit", "-n", "1", "-r", "1", *sys.argv[1:]], {**os.environ}))
"""
"""Has a fork do a statement: `timeit.main` does those of its command line."""
SERVER = """\
import pathlib, socket, sys, time
from headsweep.machine import fork_server
def wait():
    while not pathlib.Path("ready").exists():
        time.sleep(0.01)
fork_server._import_all = wait
fork_server.serve(socket.socket(fileno=int(sys.argv[1])))
"""
NOBODY = 65534


def ask(statement, folder, environment, **options):
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT, statement],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.fixture
def listening(monkeypatch):
    """A socket of the test's own in place of a server; what it says to who calls is its last."""
    name = f"headsweep-jobs-of-a-test-{os.getpid()}"
    monkeypatch.setenv(fork_server.ADDRESS, name)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        yield listener


def test_a_fork_has_the_streams_the_folder_and_the_environment_of_who_asks(tmp_path):
    statement = (
        "import os, sys; print(os.getcwd(), os.environ['WORD'], sys.stdin.read(), os.getppid());"
        "print('told', file=sys.stderr)"
    )
    client = ask(statement, tmp_path, {**warm.environment(), "WORD": "a word"})
    printed, told = client.communicate("read")
    folder, first, second, read, parent, *_ = printed.split()
    assert (folder, first, second, read) == (str(tmp_path), "a", "word", "read")
    assert client.returncode == 0 and told == "told\n"
    assert "warm.py" in " ".join(psutil.Process(int(parent)).cmdline())


def test_a_status_is_that_of_the_command(monkeypatch):
    monkeypatch.setenv(fork_server.ADDRESS, warm.environment()[fork_server.ADDRESS])
    handler = signal.getsignal(signal.SIGINT)
    try:
        for words, status in ((["--version"], 0), (["table", "."], 2), (["solve", "none"], 2)):
            asked = fork_server.ask("headsweep.cli.main", ["headsweep", *words], {**os.environ})
            assert asked == status
    finally:
        signal.signal(signal.SIGINT, handler)


def test_a_fork_computes_on_the_threads_of_who_asks(tmp_path):
    statement = "import torch; print(torch.get_num_threads())"
    client = ask(statement, tmp_path, {**warm.environment(), "OMP_NUM_THREADS": "3"})
    assert client.communicate()[0].split()[0] == "3"


def test_threads_of_a_fork_of_a_job_may_compute_at_once(tmp_path):
    statement = "import threads_of_a_fork as forks; assert not forks.main()"
    client = ask(statement, tmp_path, warm.environment())
    _, said = client.communicate()
    assert client.returncode == 0, said


def test_a_fork_s_libraries_are_offline_and_silent(tmp_path):
    """They have read it when the server imported them."""
    statement = (
        "import huggingface_hub, transformers;"
        "print(huggingface_hub.is_offline_mode(), transformers.logging.get_verbosity())"
    )
    client = ask(statement, tmp_path, warm.environment())
    assert client.communicate()[0].split()[:2] == ["True", str(logging.ERROR)]


def test_a_fork_that_is_killed_is_told_as_of_a_process(tmp_path):
    client = ask("import os; os.kill(os.getpid(), 9)", tmp_path, warm.environment())
    client.communicate()
    assert client.returncode == 256 - signal.SIGKILL


def test_a_fork_whose_own_fork_lives_on_has_ended(tmp_path):
    """As one that an engine has left, and that is killed before it says how it ends."""
    statement = """
import os, time
if os.fork():
    os.kill(os.getpid(), 9)
time.sleep(600)
"""
    client = ask(statement, tmp_path, warm.environment())
    assert client.wait(300) == 256 - signal.SIGKILL
    for left in working_in(tmp_path, "headsweep-jobs"):
        left.kill()
    client.communicate()


def test_a_job_whose_fork_is_killed_is_told_in_a_line(listening):
    def die():
        connection, _ = listening.accept()
        with connection:
            _, streams, _, _ = socket.recv_fds(connection, 1, 3)
            for stream in streams:
                os.close(stream)
            connection.makefile("rb").readline()  # all of it, or closing would reset
            connection.sendall(b"+")

    dying = threading.Thread(target=die, daemon=True)
    dying.start()
    at_interrupt = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(EngineError, match="the job's process was killed"):
            fork_server.run_in_fork(["job", "grade"])
    finally:
        signal.signal(signal.SIGINT, at_interrupt)
    dying.join()


def test_a_fork_ends_with_who_asks(tmp_path):
    statement = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    client = ask(statement, tmp_path, warm.environment())
    fork = psutil.Process(int(client.stdout.readline()))
    client.kill()
    wait_until(lambda: not alive(fork))
    client.communicate()


def test_without_a_server_nothing_is_asked(tmp_path, monkeypatch):
    monkeypatch.delenv(fork_server.ADDRESS, raising=False)
    assert fork_server.run_in_fork(["job", "grade"]) is None
    monkeypatch.setenv(fork_server.ADDRESS, "headsweep-jobs-of-a-server-that-left")
    assert fork_server.run_in_fork(["job", "grade"]) is None


def test_a_job_whose_server_dies_before_it_has_begun_is_left_to_its_own_process(listening):
    def die():
        connection, _ = listening.accept()
        connection.close()  # which resets it, as there is something unread

    dying = threading.Thread(target=die, daemon=True)
    dying.start()
    assert fork_server.run_in_fork(["job", "grade"]) is None
    dying.join()


def test_a_run_s_server_needs_nothing_that_only_developers_install_and_its_forks_fork_nothing(
    tmp_path, monkeypatch
):
    lines = (ROOT / "envs/dev.txt").read_text(encoding="utf-8").splitlines()
    names = {line.partition("==")[0] for line in lines}
    lacking = [
        module
        for module, of in packages_distributions().items()
        if {*map(canonicalize_name, of)} <= names
    ]
    assert {"triton", "gguf", "pytest"} <= {*lacking}
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys; sys.modules.update(dict.fromkeys({lacking}))"
    )
    monkeypatch.setenv(fork_server.ADDRESS, "")  # so that what it is afterwards is forgotten
    monkeypatch.delenv(fork_server.ADDRESS)
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        fork_server.begin()
    server = fork_server._begun.pop()
    statement = (
        "import sys; modules = {*sys.modules}; from headsweep.machine import fork_server;"
        "print('headsweep.experiments.sprint.job' in modules, fork_server.run_in_fork(['job']))"
    )
    client = ask(statement, tmp_path, {**os.environ})
    assert client.communicate()[0].startswith("True None\n")
    server.communicate()  # it leaves as its standard input is closed
    assert server.returncode == 0


def run_job(words, folder):
    command = [sys.executable, "-m", "headsweep", "job", *words, "--config", "none.json"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_job_that_needs_no_network_is_handed_over(listening, tmp_path):
    said = []

    def answer():
        connection, _ = listening.accept()
        with connection:
            _, streams, _, _ = socket.recv_fds(connection, 1, 3)
            said.append(json.loads(connection.makefile("rb").readline()))
            for stream in streams:
                os.close(stream)
            connection.sendall(b"+\x09")

    answering = threading.Thread(target=answer, daemon=True)
    answering.start()
    words = ["grade", "--model", "m", "--decoding", "d", "--questions", "q"]
    done = run_job(words, tmp_path)
    assert done.returncode == 9, done.stderr
    answering.join()
    (asked,) = said
    assert asked["arguments"][1:] == ["job", *words, "--config", "none.json"]
    assert asked["folder"] == str(tmp_path)


def test_a_job_that_needs_the_network_is_not_handed_over(listening, tmp_path):
    done = run_job(["source", "--source", "s"], tmp_path)
    assert done.returncode == 2, done.stderr
    listening.setblocking(False)
    with pytest.raises(BlockingIOError):
        listening.accept()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_is_not_served(tmp_path):
    name = warm.environment()[fork_server.ADDRESS]
    code = (
        f"import os, socket; os.setuid({NOBODY}); s = socket.socket(socket.AF_UNIX);"
        f"s.connect('\\0{name}'); print(s.recv(1))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "b''", done.stderr


RUN = f"""\
import os, subprocess, sys, time
from headsweep.machine import fork_server
fork_server.begin("-c", {SERVER!r})
print(fork_server._begun[0].pid, flush=True)
if sys.argv[1:]:
    job = subprocess.Popen([sys.executable, "-c", {CLIENT!r}, *sys.argv[1:]])
    try:
        print("waiting", flush=True)
        job.wait()
    except KeyboardInterrupt:
        print("status", job.wait(), flush=True)
        print("address", os.environ[fork_server.ADDRESS], flush=True)
time.sleep(600)
"""


@pytest.fixture
def run(tmp_path):
    """Start a run with a server of its own and a job that does a statement, in a group."""
    started = []

    def start(*statement):
        process = subprocess.Popen(
            ["env", "--default-signal=INT", sys.executable, "-c", RUN, *statement],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={key: value for key, value in os.environ.items() if key != fork_server.ADDRESS},
        )
        started.append(process)
        return process, psutil.Process(int(process.stdout.readline()))

    yield start
    (tmp_path / "ready").touch()  # a server leaves when it has imported
    for process in started:  # those of a group that are stopped, too, hold its output open
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_an_interrupt_of_the_terminal_reaches_the_fork_and_who_asks_waits_for_its_end(
    run, tmp_path
):
    statement = """
import sys, time
try:
    print("begun", flush=True); time.sleep(600)
except KeyboardInterrupt:
    time.sleep(0.2); print("ended", flush=True)
"""
    process, server = run(statement)
    assert process.stdout.readline() == "waiting\n"
    (tmp_path / "ready").touch()
    assert process.stdout.readline() == "begun\n"
    os.killpg(process.pid, signal.SIGINT)
    assert process.stdout.readline() == "ended\n"
    while (line := process.stdout.readline()) != "status 0\n":
        assert line.startswith("1 loop")
    assert alive(server)


@pytest.mark.parametrize("forked", [False, True])
def test_a_job_that_is_interrupted_before_its_fork_has_begun_is_never_done(run, tmp_path, forked):
    process, server = run("import pathlib, time; pathlib.Path('first').touch(); time.sleep(600)")
    assert process.stdout.readline() == "waiting\n"
    others = psutil.Process(process.pid).children
    (client,) = {*others()} - {server}
    wait_until(lambda: client.net_connections("unix") and client.status() == "sleeping")
    if forked:  # and calls; who asks does not hear it yet
        client.suspend()
        (tmp_path / "ready").touch()
        wait_until(lambda: [fork for fork in server.children() if fork.status() == "sleeping"])
    os.killpg(process.pid, signal.SIGINT)
    if forked:
        client.resume()
    (tmp_path / "ready").touch()
    line = next(line for line in process.stdout if line.startswith("address"))
    address = {fork_server.ADDRESS: line.split()[1]}
    second = ask(
        "import pathlib; pathlib.Path('second').touch()", tmp_path, {**os.environ, **address}
    )
    second.communicate()
    assert (tmp_path / "second").exists() and not (tmp_path / "first").exists()


def test_the_server_leaves_with_a_run_that_is_killed(run, tmp_path):
    (tmp_path / "ready").touch()
    process, server = run()
    process.kill()
    wait_until(lambda: not alive(server))
