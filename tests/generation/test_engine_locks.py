"""Locks and sockets of engines: what is removed, and what is waited for."""

import threading
import time
from pathlib import Path

import pytest

from headroom.generation import client


def test_stopping_removes_what_dead_engines_left_and_nothing_else(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    left = client._private_folder() / f"{client._folder_digest()}-dead.lock"
    left.with_suffix(".sock").touch()
    left.touch()
    others = left.with_name("other-folder.lock")
    others.touch()
    held = left.with_name(f"{client._folder_digest()}-live.lock")
    listens = held.with_suffix(".sock")
    listens.touch()
    with client._locked(held):
        assert client.stop() == 0
        assert set(left.parent.iterdir()) == {held, listens, others}


def test_stopping_waits_for_an_engine_that_is_about_to_end(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    leaving = client._private_folder() / f"{client._folder_digest()}-leaving.lock"
    stopping = threading.Thread(target=client.stop)
    with client._locked(leaving):
        stopping.start()
        time.sleep(4 * client._SECONDS_BETWEEN_TRIES)
        assert stopping.is_alive()
    stopping.join()
    assert not leaving.exists()


def test_a_lock_that_was_removed_meanwhile_is_nobodys(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = runtime / "engine.lock"
    monkeypatch.setattr(client.fcntl, "flock", lambda *_: path.unlink())
    with client._locked(path) as lock:
        assert lock is None
