"""Names, signals and locks that others may have taken: no engine of another user or container."""

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headsweep.answers import client, engine_sockets
from headsweep.cli.store import refuse_while_running
from headsweep.errors import ConfigError, EngineError
from headsweep.files.locks import Locks
from headsweep.machine import sockets
from processes import python

STOPPING = "from headsweep.answers import client; print(client.stop(), flush=True)"
TAKING = (
    "import sys, pathlib; from headsweep.files.locks import Locks; "
    "locks = Locks(pathlib.Path(sys.argv[1])); print(locks.take(sys.argv[2]), flush=True); "
    "sys.stdin.read()"
)


@pytest.fixture
def listener(tmp_path, monkeypatch):
    """A socket of this process, to be bound to an engine's name of this folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engine_sockets, "_LOOKS", 2)
    with socket.socket(socket.AF_UNIX) as made:
        made.setblocking(False)
        yield made


def test_another_users_socket_is_left_alone_with_one_line(listener, monkeypatch, caplog):
    user = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: user)
    listener.bind(f"\0{engine_sockets.prefix()}beside")  # held by a process that is not this user's
    listener.listen(0)
    assert client.status() == []
    assert client.stop() == 0
    client.end_run()
    refuse_while_running("--prune")
    lines = {record.getMessage() for record in caplog.records if record.levelname != "INFO"}
    assert len(lines) == 1
    assert "beside is left alone" in lines.pop()
    with pytest.raises(BlockingIOError):  # nobody has connected
        listener.accept()


def test_only_the_process_that_holds_a_socket_gets_a_signal(listener):
    name = f"{engine_sockets.prefix()}engine"
    listener.bind(f"\0{name}")
    listener.listen()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert not engine_sockets.send_signal(name, other.pid, signal.SIGKILL)
        assert other.poll() is None
        other.communicate(b"\n")
    code = (
        f"from headsweep.answers import engine_sockets as s; print(s.send_signal({name!r}, 0, 15))"
    )
    assert python("-c", code) == "False\n"  # 0 would be its own process group
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        assert engine_sockets.send_signal(name, os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [signal.SIGUSR1]


def test_stopping_refuses_a_process_that_does_not_hold_the_socket(listener, monkeypatch):
    listener.bind(f"\0{engine_sockets.prefix()}engine")
    listener.listen()
    monkeypatch.setattr(sockets, "check_peer", lambda _: 0)  # as of another container
    monkeypatch.setattr(client, "_SECONDS_TO_STOP", 0.2)
    with pytest.raises(EngineError, match=r"^.*engine does not hold .* `headsweep engine stop`.*$"):
        client.stop()


def test_stopping_from_another_container_ends_neither_the_engine_nor_itself(listener):
    listener.bind(f"\0{engine_sockets.prefix()}engine")
    listener.listen()
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", STOPPING]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare failed" in done.stderr:
        pytest.skip("namespaces: this user may not make any, see `man unshare`")
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    assert "engine is left alone" in done.stderr


def test_a_lock_is_one_process_s_until_it_dies_and_holds_back_pruning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = Path("results/store/.locks")
    command = [sys.executable, "-c", TAKING, str(file), "model/greedy/test/L05H03"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"True\n"
        locks = Locks(file)
        assert not locks.take("model/greedy/test/L05H03")
        assert locks.take("model/greedy/test/L05H04")
        locks.release("model/greedy/test/L05H04")
        assert locks.are_held()
        with pytest.raises(ConfigError, match="--prune: an engine answers into this store"):
            refuse_while_running("--prune")
        holder.kill()
        holder.wait()
    assert not locks.are_held()
    assert locks.take("model/greedy/test/L05H03")
    assert file.stat().st_size == 0


@pytest.mark.parametrize("plant", [Path.mkdir, os.mkfifo, lambda file: file.symlink_to("target")])
def test_a_file_that_others_have_planted_is_not_locked(tmp_path, monkeypatch, plant):
    monkeypatch.chdir(tmp_path)
    plant(Path("locks"))
    with pytest.raises(EngineError, match=r"^locks cannot be locked .*plain file.*$"):
        Locks(Path("locks"), shared=True)
    assert not Path("target").exists()


def test_all_users_may_lock_what_they_share_and_only_that(tmp_path):
    before = os.umask(0o077)
    try:
        Locks(tmp_path / "shared", shared=True)
        Locks(tmp_path / "own")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("shared", "own")]
    assert modes == [0o666, 0o600]
