"""An interrupt of Snakemake ends in a line, before its first job as later."""

import signal
import subprocess
import sys

import pytest

BEGIN = """
import os, signal
from headsweep.workflow.interrupts import end_in_a_line
interrupt = lambda: os.kill(os.getpid(), signal.{name})
"""
WAITING = """
end_in_a_line()
try:
    interrupt()
except KeyboardInterrupt:
    interrupt()  # while it waits for jobs
    print("has waited", flush=True)
    raise
"""
FAILING = """
end_in_a_line()
try:
    interrupt()
except KeyboardInterrupt:
    raise ValueError("else")
"""
IGNORING = """
signal.signal(signal.{name}, signal.SIG_IGN)
end_in_a_line()
interrupt()
print("goes on")
"""


@pytest.mark.parametrize(
    ("code", "status", "printed", "said"),
    [
        (
            WAITING,
            -signal.SIGINT,
            "has waited\n",
            ["headsweep: interrupted; give the same command again to go on"],
        ),
        (FAILING, 1, "", ["Traceback (most recent call last):", "ValueError: else"]),
        (IGNORING, 0, "goes on\n", []),
    ],
)
@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_only_the_first_interrupt_counts(code, status, printed, said, name):
    """An interrupt of the keyboard, or the end of the terminal."""
    program = (BEGIN + code).format(name=name)
    command = ["env", "--default-signal=INT,HUP", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout, lines[:1] + lines[1:][-1:]) == (status, printed, said)
