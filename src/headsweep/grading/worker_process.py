"""A grading worker as its parent sees it: a process that may die.

An item that exceeds a limit ends the worker's child process. The number of replies before shows
which item it was; the next child works on the rest of the batch. Each child starts with the same
hash seed and memory, CPU time is limited (wall time only as a last resort), and an item counts as
failed only on proof, as `_PROOF` says. What is killed from outside is tried again.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from typing import Any, NamedTuple

from headsweep.errors import GradingError
from headsweep.grading.worker import FROM_OUTSIDE, Limits

_LEAVING_SECONDS = 10.0
_PATIENCE_SECONDS = 10.0  # for a reply after twice the wall time of an item
_STARTS = 5  # in a row that may be killed from outside
_KEPT_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
_COMMAND = (sys.executable, "-P", "-m", "headsweep.grading.worker")

Step = tuple[str, str, str]
"""What a worker does, as `headsweep.grading.worker.load`: a step, a grader's name, a preset."""


class Outcome(NamedTuple):
    """What became of an item."""

    failure: str | None
    """``timeout``, ``memory`` or ``error``; None if the step went through."""
    value: Any = None
    """What the step returned."""


_PROOF = {
    "cpu": ("timeout", 0),
    "all cpu": ("timeout", 1),
    "wall": ("timeout", 2),  # here and below the machine may have been busy
    "silent": ("timeout", 2),
    "memory": ("memory", 1),
    "fault": ("error", 1),
    "killed": ("memory", 5),  # by the kernel, when memory runs out again and again
}
"""By the cause of a child's end: what it proves of the item at work, and how many children in a row
it has to end as the first of their items; 0: it need not be the first."""


class Worker:
    """A worker process; if it is killed from outside, another takes its place."""

    def __init__(self, step: Step, limits: Limits) -> None:
        self.command = [*_COMMAND, *step, *map(str, limits)]
        self.patience = 2 * limits.wall_seconds + _PATIENCE_SECONDS
        self.busy = self.ended = False
        self.starts = 0  # in a row without getting ready
        self.causes: Counter[str] = Counter()  # of the ends of children with the same first item
        self.start()

    def start(self) -> None:
        """Start the process, and let its first child begin.

        The process forks its children itself, one after the other, and counts them from 0. A child
        begins when it reads its number; what stands before that was meant for an earlier one.
        """
        kept = {key: os.environ[key] for key in _KEPT_ENVIRONMENT if key in os.environ}
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=kept | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
            cwd="/",
            process_group=0,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.unread = b""
        self.ready = False
        self.starts += 1
        self.child_number = 0
        self.answered = 0  # items, by the latest child
        self._write(f"{self.child_number}")
        if self.ended:  # by `end` in another thread, which has not seen this process
            self.end()

    def perform(self, batch: list[tuple[str, ...]]) -> list[Outcome]:
        """Work on a batch; its end is missing if `end` was or is called."""
        outcomes: list[Outcome] = []
        if self.ended:
            return outcomes
        self.busy = True
        try:
            self.give(batch)
            while len(outcomes) < len(batch) and not self.ended:
                outcomes += self._next(batch[len(outcomes) :])
        finally:
            self.busy = False
            if self.ended:  # `end` leaves it open to who reads from it
                self._close()
        return outcomes

    def _next(self, rest: list[tuple[str, ...]]) -> list[Outcome]:
        """Return the outcome of the first item of the rest, if the next reply tells it."""
        outcomes: list[Outcome] = []
        match self._reply():
            case ["ready"]:
                self.ready, self.starts = True, 0
            case ["done", value]:
                outcomes.append(self._answered(Outcome(None, value)))
            case ["failed", *_]:
                outcomes.append(self._answered(Outcome("error")))
            case ["ended" | "gone" as state, cause] if not self.ended:
                outcomes += self._proved(cause)
                if state == "gone":
                    self._replace()
                else:
                    self.child_number += 1
                    self.answered = 0
                    self._write(f"{self.child_number}")
                self.give(rest[len(outcomes) :])
        return outcomes

    def _answered(self, outcome: Outcome) -> Outcome:
        self.answered += 1
        self.causes.clear()
        return outcome

    def give(self, batch: list[tuple[str, ...]]) -> None:
        """Send a batch, or the rest of one, to the child."""
        self._write(json.dumps(batch))

    def _proved(self, cause: str) -> list[Outcome]:
        """Return the outcome of the item at work if the end of its child proves one."""
        was_first_item = self.answered == 0
        if was_first_item:
            self.causes[cause] += 1
        failure, needed = _PROOF[cause]
        if self.causes[cause] < needed:
            return []
        self.causes.clear()
        return [Outcome(failure)]

    def _reply(self) -> list[Any]:
        """Return the next reply, or ["gone", cause] if there is none."""
        while b"\n" not in self.unread:
            pipe = select.poll()
            pipe.register(self.stdout, select.POLLIN)
            if not pipe.poll(1000 * self.patience if self.ready else None):
                os.killpg(self.process.pid, signal.SIGKILL)
                return ["gone", "silent"]
            if not (read := os.read(self.stdout.fileno(), 65536)):
                return ["gone", "killed"]
            self.unread += read
        line, _, self.unread = self.unread.partition(b"\n")
        try:
            return list(json.loads(line))
        except ValueError:  # what a killed child has left
            return []

    def _write(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has died: `_reply` sees its closed output
            self.stdin.write(f"{line}\n".encode())
            self.stdin.flush()

    def _replace(self) -> None:
        """Start another process after this one has ended, which happens only by a kill."""
        status = self.process.wait()
        if not self.ready and (-status not in FROM_OUTSIDE or self.starts == _STARTS):
            raise GradingError(
                f"a grading worker ended with status {status} before its first answer; "
                "see its message above, and check the installation of mpmath"
            )
        self._close()
        self.start()

    def _close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()

    def end(self) -> None:
        """End the process by closing its input; kill it and its child if they are busy or stuck."""
        self.ended = True
        with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
            if not self.busy:
                self.stdin.close()
                self.process.wait(_LEAVING_SECONDS)
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if not self.busy:
            self._close()
