"""Names, signals and locks that others may have taken: no engine of another user or container."""

import logging
import os
import re
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
    monkeypatch.setattr(sockets, "_SECONDS_TO_BE_LET_IN", 0.01)
    with socket.socket(socket.AF_UNIX) as made:
        made.setblocking(False)
        yield made


def test_another_users_socket_is_left_alone_with_one_line(listener, monkeypatch, caplog):
    user = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: user)
    listener.bind(f"\0{engine_sockets.prefix()}beside")  # held by a process that is not this user's
    listener.listen(1)
    assert client.status() == []
    client.end_run()
    lines = {each.getMessage() for each in caplog.records if each.levelno == logging.WARNING}
    assert len(lines) == 1
    assert re.search(r"beside is left alone: .* is user \d+'s, not yours", lines.pop())
    assert client.stop() == 0  # by now it lets nobody in
    refuse_while_running("--prune")
    lines = {each.getMessage() for each in caplog.records if each.levelno == logging.WARNING}
    assert len(lines) == 2
    assert any("beside is left alone" in line and "lets nobody in" in line for line in lines)


def test_a_connection_that_was_let_in_may_wait(listener):
    name = f"{engine_sockets.prefix()}engine"
    listener.bind(f"\0{name}")
    listener.listen(1)
    with sockets.connect(name) as connection:
        limit = connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16)
        assert limit == bytes(16)


def test_what_takes_a_name_and_does_not_listen_holds_a_run_up_for_seconds(listener, monkeypatch):
    monkeypatch.setattr(client, "_SECONDS_TO_STOP", 0.1)
    listener.bind(f"\0{engine_sockets.prefix()}beside")
    assert client.status() == []
    client.end_run()
    refuse_while_running("--prune")
    with pytest.raises(EngineError, match="do not listen yet: 1"):
        client.stop()


def test_stopping_ends_neither_an_engine_of_another_container_nor_itself(listener, monkeypatch):
    listener.bind(f"\0{engine_sockets.prefix()}engine")
    listener.listen()
    monkeypatch.setattr(sockets, "check_peer", lambda _: 0)
    monkeypatch.setattr(os, "kill", None)
    with pytest.raises(
        EngineError, match=r"engine cannot be seen .* `headsweep engine stop` there$"
    ):
        client.stop()


def test_an_engine_of_another_container_has_the_id_0(listener):
    listener.bind(f"\0{engine_sockets.prefix()}engine")
    listener.listen()
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", STOPPING]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare failed" in done.stderr:
        pytest.skip("namespaces: this user may not make any, see `man unshare`")
    assert done.returncode == 1, done.stderr
    assert "engine cannot be seen from here" in done.stderr


def test_an_engine_that_does_not_heed_is_killed(listener, monkeypatch):
    listener.bind(f"\0{engine_sockets.prefix()}engine")
    listener.listen()
    monkeypatch.setattr(client, "_SECONDS_TO_STOP", 1.0)
    signals = []

    def told(process, number):
        signals.append((process, number))
        if number == signal.SIGKILL:
            listener.close()

    monkeypatch.setattr(os, "kill", told)
    assert client.stop() == 1
    assert signals == [(os.getpid(), signal.SIGTERM), (os.getpid(), signal.SIGKILL)]


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
