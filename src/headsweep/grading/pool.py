"""Grading in worker processes that may die.

Each worker takes batches of items: texts to read, or pairs to judge. An item that exceeds a limit
ends the worker's child process. The number of replies before shows which item it was; the next
child works on the rest of the batch. Results do not depend on the number of workers or on the
batches: each child starts with the same hash seed and memory, CPU time is limited (wall time only
as a last resort), and an item counts as failed only on proof, as `_PROOF` says. What is killed from
outside is tried again.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from queue import SimpleQueue
from typing import Any, NamedTuple

from headsweep.errors import GradingError
from headsweep.grading.worker import FROM_OUTSIDE, Limits

_BATCH_ITEMS = 64
_BATCH_CHARACTERS = 16_384  # so that a batch fits into a pipe, unless a single item does not
_LEAVING_SECONDS = 10.0
_PATIENCE_SECONDS = 10.0  # for a reply after twice the wall time of an item
_STARTS = 5  # in a row that may be killed from outside
_KEPT_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
_COMMAND = (sys.executable, "-P", "-m", "headsweep.grading.worker")

Pair = tuple[str, str]
"""An answer and the gold answer."""


class Judgement(NamedTuple):
    """The outcome of one pair."""

    verdict: str
    """``judged``, or ``timeout``, ``memory``, ``error`` if the judge failed."""
    correct: bool
    """Whether the answer equals the gold answer; False unless `verdict` is ``judged``."""


class Reading(NamedTuple):
    """What a text answers."""

    verdict: str
    """``read``, ``no_answer``, or ``timeout``, ``memory``, ``error`` if reading failed."""
    answer: str | None = None
    """The final answer; this and the forms are None unless `verdict` is ``read``."""
    canonical: str | None = None
    """Its form for judging."""
    form: str | None = None
    """Its form for votes: answers of equal form are one."""


class _Outcome(NamedTuple):
    failure: str | None  # `timeout`, `memory` or `error`
    value: Any = None


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


def read_texts(
    texts: Sequence[str],
    family: str,
    preset: str,
    *,
    workers: int = 1,
    limits: Limits | None = None,
) -> list[Reading]:
    """Extract the final answers of texts, in order, in processes that can be killed.

    Family and preset are those of `find_grader`; the texts are any.

    Raises:
        GradingError: no worker can be started.
    """
    outcomes = _perform(("read", family, preset), [(text,) for text in texts], workers, limits)
    return [
        Reading(failure or "no_answer") if value is None else Reading("read", *value)
        for failure, value in outcomes
    ]


def judge_pairs(
    pairs: Sequence[Pair],
    family: str,
    preset: str,
    *,
    workers: int = 1,
    limits: Limits | None = None,
) -> list[Judgement]:
    """Judge pairs of (answer, gold), in order, in processes that can be killed.

    Family and preset are those of `find_grader`; the texts are any.

    Raises:
        GradingError: no worker can be started.
    """
    outcomes = _perform(("judge", family, preset), pairs, workers, limits)
    return [Judgement(failure or "judged", value is True) for failure, value in outcomes]


def _perform(
    step: tuple[str, str, str],
    items: Sequence[tuple[str, ...]],
    workers: int,
    limits: Limits | None,
) -> list[_Outcome]:
    batches = _batches(items, workers)
    everyone: list[_Worker] = []
    free: SimpleQueue[_Worker] = SimpleQueue()

    def performed(batch: list[tuple[str, ...]]) -> list[_Outcome]:
        worker = free.get()
        try:
            return worker.perform(batch)
        finally:
            free.put(worker)

    with ThreadPoolExecutor(workers) as threads:
        try:
            for _ in range(min(workers, len(batches))):
                everyone.append(_Worker(step, limits or Limits()))
                free.put(everyone[-1])
            return list(chain.from_iterable(threads.map(performed, batches)))
        finally:
            for worker in everyone:
                worker.end()


class _Worker:
    """A worker process; if it is killed from outside, another takes its place."""

    def __init__(self, step: tuple[str, str, str], limits: Limits) -> None:
        self.command = [*_COMMAND, *step, *map(str, limits)]
        self.patience = 2 * limits.wall_seconds + _PATIENCE_SECONDS
        self.busy = self.ended = False
        self.starts = 0  # in a row without getting ready
        self.causes: Counter[str] = Counter()  # of the ends of children with the same first item
        self.start()

    def start(self) -> None:
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
        self.child = 0
        self.answered = 0  # items, by the latest child
        self._write(f"{self.child}")
        if self.ended:  # meanwhile
            self.end()

    def perform(self, batch: list[tuple[str, ...]]) -> list[_Outcome]:
        """Work on a batch; its end is missing if `end` is called meanwhile."""
        found: list[_Outcome] = []
        self.busy = True
        try:
            self.give(batch)
            while len(found) < len(batch) and not self.ended:
                found += self._next(batch[len(found) :])
        finally:
            self.busy = False
            if self.ended:  # `end` leaves it open to who reads from it
                self._close()
        return found

    def _next(self, rest: list[tuple[str, ...]]) -> list[_Outcome]:
        """Return the outcome of the first item of the rest, if the next reply tells it."""
        outcomes: list[_Outcome] = []
        match self._reply():
            case ["ready"]:
                self.ready, self.starts = True, 0
            case ["done" | "failed" as state, *value]:
                outcomes.append(_Outcome("error") if state == "failed" else _Outcome(None, *value))
                self.answered += 1
                self.causes.clear()
            case ["ended" | "gone" as state, cause] if not self.ended:
                outcomes += self._proved(cause)
                if state == "gone":
                    self._replace()
                else:
                    self.child += 1
                    self.answered = 0
                    self._write(f"{self.child}")
                self.give(rest[len(outcomes) :])
        return outcomes

    def give(self, batch: list[tuple[str, ...]]) -> None:
        self._write(json.dumps(batch))

    def _proved(self, cause: str) -> list[_Outcome]:
        """Return the outcome of the item at work if the end of its child proves one."""
        self.causes[cause] += not self.answered
        failure, times = _PROOF[cause]
        if self.causes[cause] < times:
            return []
        self.causes.clear()
        return [_Outcome(failure)]

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
                "see its message above, and check the installation of math-verify"
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


def _batches(items: Sequence[tuple[str, ...]], workers: int) -> list[list[tuple[str, ...]]]:
    size = min(_BATCH_ITEMS, 1 + len(items) // (4 * workers))
    batches: list[list[tuple[str, ...]]] = []
    room = -1
    for item in items:
        room -= sum(map(len, item))
        if room < 0 or len(batches[-1]) == size:
            batches.append([])
            room = _BATCH_CHARACTERS - sum(map(len, item))
        batches[-1].append(item)
    return batches
