"""Grading in worker processes that may die.

Each worker (`headsweep.grading.worker_process`) takes batches of items: texts to read, or pairs to
judge. Results do not depend on the number of workers or on the batches.

Workers end with the call that started them, or are kept for the next call (`keep`): calls from
several threads share them, and a forked process, which cannot use its parent's, starts its own.
"""

import atexit
import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Condition, Event, Lock
from typing import NamedTuple

from headsweep.grading.worker import Limits
from headsweep.grading.worker_process import Outcome, Step, Worker

_BATCH_ITEMS = 64
_BATCH_CHARACTERS = 16_384  # so that a batch fits into a pipe, unless a single item does not

Pair = tuple[str, str]
"""An answer and the gold answer."""


class JudgedPair(NamedTuple):
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


def read_texts(
    texts: Sequence[str],
    grader_name: str,
    preset: str,
    *,
    workers: int = 1,
    limits: Limits | None = None,
    keep: bool = False,
    final: bool = False,
) -> list[Reading]:
    """Extract the final answers of texts, in order, in processes that can be killed.

    `grader_name` and `preset` are those of `find_grader`; the texts are any, `final` answers
    themselves or not. With `keep` the workers stay for the next call.

    Raises:
        GradingError: no worker can be started.
    """
    items = [(text,) for text in texts]
    step = "final" if final else "read"
    outcomes = _perform((step, grader_name, preset), items, workers, limits, keep)
    readings = []
    for failure, value in outcomes:
        if value is None:
            readings.append(Reading(failure or "no_answer"))
        else:
            answer, canonical, form = value
            readings.append(Reading("read", answer, canonical, form))
    return readings


def judge_pairs(
    pairs: Sequence[Pair],
    grader_name: str,
    preset: str,
    *,
    workers: int = 1,
    limits: Limits | None = None,
    keep: bool = False,
    progress: Callable[[int], None] | None = None,
) -> list[JudgedPair]:
    """Judge pairs of (answer, gold), in order, in processes that can be killed.

    `grader_name` and `preset` are those of `find_grader`; the texts are any. With `keep` the
    workers stay for the next call. `progress` is told, from time to time, how many pairs are
    judged.

    Raises:
        GradingError: no worker can be started.
    """
    outcomes = _perform(("judge", grader_name, preset), pairs, workers, limits, keep, progress)
    return [JudgedPair(failure or "judged", value is True) for failure, value in outcomes]


def _perform(
    step: Step,
    items: Sequence[tuple[str, ...]],
    workers: int,
    limits: Limits | None,
    keep: bool,
    progress: Callable[[int], None] | None = None,
) -> list[Outcome]:
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
        self._everyone: set[Worker] = set()
        self._free: list[Worker] = []
        self._changed = Condition()

    def perform(
        self,
        items: Sequence[tuple[str, ...]],
        workers: int,
        progress: Callable[[int], None] | None = None,
    ) -> list[Outcome]:
        """Work on items with at most so many workers; return their outcomes in order."""
        stopped = Event()
        using = set[Worker]()
        with self._changed:
            self._most = max(self._most, workers)

        def performed(batch: list[tuple[str, ...]]) -> list[Outcome]:
            worker = self._take(using)
            try:
                return [] if stopped.is_set() else worker.perform(batch)
            except BaseException:
                worker.end()
                raise
            finally:
                self._put(worker, using)

        outcomes: list[Outcome] = []
        with ThreadPoolExecutor(workers) as threads:
            try:
                for batch_outcomes in threads.map(performed, _batches(items, workers)):
                    outcomes += batch_outcomes
                    if progress:
                        progress(len(outcomes))
            except BaseException:
                stopped.set()
                for worker in self._claimed(using):
                    worker.end()
                raise
        return outcomes

    def _take(self, using: set[Worker]) -> Worker:
        with self._changed:
            while not self._free and len(self._everyone) >= self._most:
                self._changed.wait()
            worker = self._free.pop() if self._free else Worker(self._step, self._limits)
            self._everyone.add(worker)
            using.add(worker)
            return worker

    def _claimed(self, using: set[Worker]) -> list[Worker]:
        """Return the workers in use, none of which another call gets from now on."""
        with self._changed:
            for worker in using:
                worker.ended = True
            return list(using)

    def _put(self, worker: Worker, using: set[Worker]) -> None:
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
    _POOLS = {}
    _POOLS_LOCK = Lock()


atexit.register(close_kept)
os.register_at_fork(after_in_child=_forked)


def _batches(items: Sequence[tuple[str, ...]], workers: int) -> list[list[tuple[str, ...]]]:
    size = min(_BATCH_ITEMS, 1 + len(items) // (4 * workers))
    batches: list[list[tuple[str, ...]]] = []
    batch: list[tuple[str, ...]] = []
    characters = 0
    for item in items:
        length = sum(map(len, item))
        is_full = len(batch) == size or characters + length > _BATCH_CHARACTERS
        if batch and is_full:
            batches.append(batch)
            batch = []
            characters = 0
        batch.append(item)
        characters += length
    if batch:
        batches.append(batch)
    return batches
