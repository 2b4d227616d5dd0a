"""Processes that tests start: who works in a folder, and waiting for what they do."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil


def working_in(folder, *words):
    """Return the other processes of a folder, oldest first, whose names and commands have words."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # others' processes, and those that end
            line = " ".join([process.name(), *process.cmdline()])
            near = Path(process.cwd()).is_relative_to(folder) or str(folder) in line
            if near and process.pid != os.getpid() and all(word in line for word in words):
                found.append(process)
    return sorted(found, key=lambda process: process.create_time())


def alive(process):
    """Tell whether a process lives; what has ended and is not reaped does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def wait_until(condition, seconds=300.0):
    """Wait until a condition holds, and return its value. What holds for a second is not missed."""
    begun = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - begun
        if waited > seconds:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(min(0.5, max(0.02, waited / 20)))  # a look at all processes takes 0.02 s
    return value


def python(*arguments, cwd=None, **variables):
    """Return what this Python prints, or fail with all that it said."""
    command = [sys.executable, *map(str, arguments)]
    environment = {**os.environ, **variables}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
