"""Grading in worker processes that may die.

Each worker (`headsweep.grading.worker_process`) takes batches of items: texts to read, or pairs to
judge. Results do not depend on the number of workers or on the batches.

Workers are kept for the next call, until the process ends. Calls from several threads take turns,
and a forked process, which cannot use its parent's workers, starts its own.
"""

import atexit
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Lock
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
    final: bool = False,
) -> list[Reading]:
    """Extract the final answers of texts, in order, in processes that can be killed.

    `grader_name` and `preset` are those of `find_grader`; the texts are any, `final` answers
    themselves or not.

    Raises:
        GradingError: no worker can be started.
    """
    items = [(text,) for text in texts]
    step = "final" if final else "read"
    outcomes = _pool((step, grader_name, preset), limits).perform(items, workers)
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
    progress: Callable[[int], None] | None = None,
) -> list[JudgedPair]:
    """Judge pairs of (answer, gold), in order, in processes that can be killed.

    `grader_name` and `preset` are those of `find_grader`; the texts are any. `progress` is told,
    from time to time, how many pairs are judged.

    Raises:
        GradingError: no worker can be started.
    """
    outcomes = _pool(("judge", grader_name, preset), limits).perform(pairs, workers, progress)
    return [JudgedPair(failure or "judged", value is True) for failure, value in outcomes]


class _Pool:
    """Workers of one step, started when a call needs them; one call uses them at a time."""

    def __init__(self, step: Step, limits: Limits) -> None:
        self._step, self._limits = step, limits
        self._turn = Lock()
        self._workers: list[Worker] = []

    def perform(
        self,
        items: Sequence[tuple[str, ...]],
        workers: int,
        progress: Callable[[int], None] | None = None,
    ) -> list[Outcome]:
        """Work on items with at most so many workers; return their outcomes in order.

        A call that ends by an error ends the workers.
        """
        batches = _batches(items, workers)
        with self._turn:
            while len(self._workers) < min(workers, len(batches)):
                self._workers.append(Worker(self._step, self._limits))
            free = SimpleQueue[Worker]()
            for worker in self._workers[:workers]:
                free.put(worker)

            def performed(batch: list[tuple[str, ...]]) -> list[Outcome]:
                worker = free.get()
                try:
                    return worker.perform(batch)
                finally:
                    free.put(worker)

            outcomes: list[Outcome] = []
            with ThreadPoolExecutor(workers) as threads:
                try:
                    for batch_outcomes in threads.map(performed, batches):
                        outcomes += batch_outcomes
                        if progress:
                            progress(len(outcomes))
                except BaseException:
                    self.close()  # the threads' end is waited for
                    raise
        return outcomes

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.end()
        self._workers = []

    def abandon(self) -> None:
        """Let go of the pipes to the workers, which are those of the process that forked this one.

        Their end could not be seen there while a copy is open here.
        """
        nowhere = os.open(os.devnull, os.O_RDWR)
        for worker in self._workers:
            for pipe in (worker.stdin, worker.stdout):
                if not pipe.closed:
                    os.dup2(nowhere, pipe.fileno(), inheritable=False)
        os.close(nowhere)


_POOLS: dict[tuple[Step, Limits], _Pool] = {}
_LEFT: list[_Pool] = []
"""Pools of the process that forked this one: nothing of theirs must be cleaned up here."""


def _pool(step: Step, limits: Limits | None) -> _Pool:
    limits = limits or Limits()
    return _POOLS.setdefault((step, limits), _Pool(step, limits))


def close_kept() -> None:
    """End all workers; the next call starts others."""
    while _POOLS:
        _POOLS.popitem()[1].close()


def _forked() -> None:
    """Leave the parent's pools, whose locks another of its threads may hold, to the parent."""
    for pool in _POOLS.values():
        pool.abandon()
    _LEFT.extend(_POOLS.values())
    _POOLS.clear()


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
