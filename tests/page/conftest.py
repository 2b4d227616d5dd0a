import os
import subprocess
from contextlib import chdir

import chromium
import pytest
import scenes
from filelock import FileLock


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if not chromium.BINARY:
        pytest.skip("no Chromium is installed")
    to_browser, from_browser = os.pipe(), os.pipe()
    command = [chromium.BINARY, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += ["--disable-background-networking", "--no-first-run", "--remote-debugging-pipe"]
    command += ["--disable-dev-shm-usage"]  # a container has little of it
    command += [f"--user-data-dir={tmp_path_factory.mktemp('profile')}", "about:blank"]
    # Chromium reads commands on descriptor 3 and answers on 4.
    redirect = f'exec "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}'
    ends = (to_browser[0], from_browser[1])
    process = subprocess.Popen(
        ["bash", "-c", redirect, "bash", *command], pass_fds=ends, stderr=subprocess.DEVNULL
    )
    for end in ends:
        os.close(end)
    with os.fdopen(to_browser[1], "wb") as writer, os.fdopen(from_browser[0], "rb") as reader:
        yield chromium.Page(writer, reader)
        process.terminate()
        process.wait(timeout=300)


@pytest.fixture(scope="session")
def once(shared):
    """Return the folder and the config of a run that is filled once for all workers."""
    config = scenes.planned()
    folder, finished = shared / "scenes", shared / "scenes.finished"
    with FileLock(shared / "scenes.lock"):
        if not finished.exists():
            folder.mkdir()
            with chdir(folder):
                scenes.fill(config)
            finished.touch()
    return folder, config


@pytest.fixture
def config(once, enter_copy):
    folder, config = once
    enter_copy(folder)
    return config
