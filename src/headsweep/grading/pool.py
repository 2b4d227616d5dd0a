"""Grading in worker processes that may die.

Each worker takes batches of items: texts to read, or pairs to judge. An item that exceeds a limit
ends the worker's child process. The number of replies before shows which item it was; the next
child works on the rest of the batch. Results do not depend on the number of workers or on the
batches: each child starts with the same hash seed and memory, CPU time is limited (wall time only
as a last resort), and an item counts as failed only on proof, as `_PROOF` says. What is killed from
outside is tried again.

Workers end with the call that started them, or are kept for the next call (`keep`): calls from
several threads share them, and a forked process, which cannot use its parent's, starts its own.
"""

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Condition, Event, Lock
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
Step = tuple[str, str, str]
"""What a worker does, as `headsweep.grading.worker.load`: a step, its family, its preset."""


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
    keep: bool = False,
    final: bool = False,
) -> list[Reading]:
    """Extract the final answers of texts, in order, in processes that can be killed.

    Family and preset are those of `find_grader`; the texts are any, `final` answers themselves or
    not. With `keep` the workers stay for the next call.

    Raises:
        GradingError: no worker can be started.
    """
    items = [(text,) for text in texts]
    step = "final" if final else "read"
    outcomes = _perform((step, family, preset), items, workers, limits, keep)
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
    keep: bool = False,
    progress: Callable[[int], None] | None = None,
) -> list[Judgement]:
    """Judge pairs of (answer, gold), in order, in processes that can be killed.

    Family and preset are those of `find_grader`; the texts are any. With `keep` the workers stay
    for the next call. `progress` is told, from time to time, how many pairs are judged.

    Raises:
        GradingError: no worker can be started.
    """
    outcomes = _perform(("judge", family, preset), pairs, workers, limits, keep, progress)
    return [Judgement(failure or "judged", value is True) for failure, value in outcomes]


def _perform(
    step: Step,
    items: Sequence[tuple[str, ...]],
    workers: int,
    limits: Limits | None,
    keep: bool,
    progress: Callable[[int], None] | None = None,
) -> list[_Outcome]:
    limits = limits or Limits()
    if keep:
        return _kept(step, limits).perform(items, workers, progress)
    with contextlib.closing(_Pool(step, limits)) as pool:
        return pool.perform(items, workers, progress)


class _Pool:
    """Workers of one step, started when a call needs them.

    Several threads may call `perform` at once; together they have as many workers as the largest
    call asked for. A call that ends by an error ends the workers that it uses just then.
    """

    def __init__(self, step: Step, limits: Limits) -> None:
        self._step, self._limits = step, limits
        self._most = 0
        self._everyone: set[_Worker] = set()
        self._free: list[_Worker] = []
        self._changed = Condition()

    def perform(
        self,
        items: Sequence[tuple[str, ...]],
        workers: int,
        progress: Callable[[int], None] | None = None,
    ) -> list[_Outcome]:
        """Work on items with at most so many workers; return their outcomes in order."""
        stopped, using = Event(), set[_Worker]()
        with self._changed:
            self._most = max(self._most, workers)

        def performed(batch: list[tuple[str, ...]]) -> list[_Outcome]:
            worker = self._take(using)
            try:
                return [] if stopped.is_set() else worker.perform(batch)
            except BaseException:
                worker.end()
                raise
            finally:
                self._put(worker, using)

        outcomes: list[_Outcome] = []
        with ThreadPoolExecutor(workers) as threads:
            try:
                for found in threads.map(performed, _batches(items, workers)):
                    outcomes += found
                    if progress:
                        progress(len(outcomes))
            except BaseException:
                stopped.set()
                for worker in self._claimed(using):
                    worker.end()
                raise
        return outcomes

    def _take(self, using: "set[_Worker]") -> "_Worker":
        with self._changed:
            while not self._free and len(self._everyone) >= self._most:
                self._changed.wait()
            worker = self._free.pop() if self._free else _Worker(self._step, self._limits)
            self._everyone.add(worker)
            using.add(worker)
            return worker

    def _claimed(self, using: "set[_Worker]") -> "list[_Worker]":
        """Return the workers in use, none of which another call gets from now on."""
        with self._changed:
            for worker in using:
                worker.ended = True
            return list(using)

    def _put(self, worker: "_Worker", using: "set[_Worker]") -> None:
        with self._changed:
            using.discard(worker)
            if worker.ended:
                self._everyone.discard(worker)
            else:
                self._free.append(worker)
            self._changed.notify()

    def close(self) -> None:
        """End all workers."""
        with self._changed:
            while self._everyone:
                self._everyone.pop().end()
            self._free.clear()

    def abandon(self) -> None:
        """Let go of the pipes to the workers, which are those of the process that forked this one.

        Their end could not be seen there while a copy is open here.
        """
        nowhere = os.open(os.devnull, os.O_RDWR)
        for worker in self._everyone:
            for pipe in (worker.stdin, worker.stdout):
                if not pipe.closed:
                    os.dup2(nowhere, pipe.fileno(), inheritable=False)
        os.close(nowhere)


_POOLS: dict[tuple[Step, Limits], _Pool] = {}
"""The pools that are kept."""
_POOLS_LOCK = Lock()
_LEFT: list[_Pool] = []
"""Pools of the process that forked this one: nothing of theirs must be cleaned up here."""


def _kept(step: Step, limits: Limits) -> _Pool:
    with _POOLS_LOCK:
        return _POOLS.setdefault((step, limits), _Pool(step, limits))


def close_kept() -> None:
    """End the workers that were kept; the next call starts others."""
    with _POOLS_LOCK:
        while _POOLS:
            _POOLS.popitem()[1].close()


def _forked() -> None:
    """Leave the parent's pools, and a lock that another of its threads may hold, to the parent."""
    global _POOLS, _POOLS_LOCK
    for pool in _POOLS.values():
        pool.abandon()
    _LEFT.extend(_POOLS.values())
    _POOLS, _POOLS_LOCK = {}, Lock()


atexit.register(close_kept)
os.register_at_fork(after_in_child=_forked)


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
