"""Judging in worker processes that may die.

Each worker takes batches of pairs. A pair that exceeds a limit ends the worker's child process. The
number of replies before shows which pair it was; the rest of the batch is judged again. Results do
not depend on the number of workers or on the batches: each child starts with the same hash seed and
memory, CPU time is limited (wall time only as a last resort), and a pair that ended a child other
than by time is tried again in a fresh child before it counts as failed.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, NamedTuple

from headroom.errors import GradingError

_BATCH_PAIRS = 64
_BATCH_CHARACTERS = 16_384  # so that a batch fits into a pipe, unless a single pair does not
_LEAVING_SECONDS = 10.0
_KEPT_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")

Pair = tuple[str, str]
"""An answer and the gold answer."""


class Judgement(NamedTuple):
    """The outcome of one pair."""

    verdict: str
    """``judged``, or ``timeout``, ``memory``, ``error`` if the judge failed."""
    correct: bool
    """Whether the answer equals the gold answer; False unless `verdict` is ``judged``."""


_REPLIES = {
    ord("1"): Judgement("judged", True),
    ord("0"): Judgement("judged", False),
    ord("e"): Judgement("error", False),
}


_READY = ord("r")
_CAUSES = {ord("t"): "timeout", ord("m"): "memory", ord("x"): "error"}


@dataclass(frozen=True)
class Limits:
    """Limits for one pair."""

    cpu_seconds: float = 5.0
    wall_seconds: float = 30.0
    memory_mib: int = 512


@dataclass(eq=False)
class _Worker:
    """A worker process, its unanswered pairs, and the number of its latest child's replies."""

    process: subprocess.Popen[bytes]
    stdin: IO[bytes]
    stdout: IO[bytes]
    batch: deque[int] = field(default_factory=deque)
    ready: bool = False
    answered: int = 0

    @classmethod
    def start(cls, preset: str, limits: Limits) -> "_Worker":
        kept = {key: os.environ[key] for key in _KEPT_ENVIRONMENT if key in os.environ}
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "headroom.grading.worker", preset),
                *map(str, (limits.cpu_seconds, limits.wall_seconds, limits.memory_mib)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=kept | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
            cwd="/",
            process_group=0,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        return cls(process, process.stdin, process.stdout)

    def give(self, batch: Sequence[int], pairs: Sequence[Pair]) -> None:
        self.batch.extend(batch)
        self._write(json.dumps([pairs[index] for index in batch]))

    def bury(self) -> list[int]:
        """Return the ended child's unanswered pairs and tell the next child where to start."""
        left = list(self.batch)
        self.batch.clear()
        self.answered = 0
        self._write("")
        return left

    def _write(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has died; `_hear` sees its closed output
            self.stdin.write(f"{line}\n".encode())
            self.stdin.flush()

    def end(self) -> None:
        """Close the worker's input, which ends it; kill it and its child if it is busy or stuck."""
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        try:
            self.process.wait(0 if self.batch else _LEAVING_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.stdout.close()


def judge_pairs(
    pairs: Sequence[Pair], preset: str, *, workers: int = 1, limits: Limits | None = None
) -> list[Judgement]:
    """Judge pairs of (answer, gold), in order, in processes that can be killed.

    Args:
        pairs: answers and gold answers; any text.
        preset: ``default`` (math-verify) or ``authors`` (PRM800K's rules).
        workers: number of processes.
        limits: limits for one pair.

    Raises:
        GradingError: no worker can be started.
    """
    return _Pool(pairs, preset, workers, limits or Limits()).run()


class _Pool:
    def __init__(self, pairs: Sequence[Pair], preset: str, workers: int, limits: Limits) -> None:
        self.pairs = pairs
        self.preset = preset
        self.limits = limits
        self.workers = workers
        self.results: dict[int, Judgement] = {}
        self.waiting = deque(_batches(pairs, workers))
        self.selector = selectors.DefaultSelector()

    def run(self) -> list[Judgement]:
        try:
            for _ in range(min(self.workers, len(self.waiting))):
                self._start()
            while self.selector.get_map():
                for key, _ in self.selector.select():
                    self._hear(key.data)
        finally:
            for key in list(self.selector.get_map().values()):
                key.data.end()
            self.selector.close()
        return [self.results[index] for index in range(len(self.pairs))]

    def _start(self) -> None:
        worker = _Worker.start(self.preset, self.limits)
        self.selector.register(worker.stdout, selectors.EVENT_READ, worker)

    def _hear(self, worker: _Worker) -> None:
        replies = os.read(worker.stdout.fileno(), _BATCH_PAIRS + 1)
        if not replies:
            self._replace(worker)
            return
        for reply in replies:
            if reply == _READY:
                worker.ready = True
            elif reply in _CAUSES:
                self._blame(worker, _CAUSES[reply])
            else:
                self.results[worker.batch.popleft()] = _REPLIES[reply]
                worker.answered += 1
        if not worker.batch:
            if self.waiting:
                worker.give(self.waiting.popleft(), self.pairs)
            else:
                self._dismiss(worker)

    def _dismiss(self, worker: _Worker) -> None:
        self.selector.unregister(worker.stdout)
        worker.end()

    def _replace(self, worker: _Worker) -> None:
        """Replace a worker that has ended, which happens only if it is killed from outside.

        Raises:
            GradingError: it ended before it was ready.
        """
        status = worker.process.wait()
        self._blame(worker, "error")
        self._dismiss(worker)
        if not worker.ready:
            raise GradingError(
                f"a grading worker ended with status {status} before its first answer; "
                "see its message above, and check the installation of math-verify"
            )
        if self.waiting:
            self._start()

    def _blame(self, worker: _Worker, cause: str) -> None:
        """Mark the pair that ended a child as failed, or queue it again; queue the rest."""
        fresh = not worker.answered
        left = worker.bury()
        if not left:
            return
        culprit, *rest = left
        if rest:
            self.waiting.appendleft(rest)
        if cause != "timeout" and not fresh:
            self.waiting.appendleft([culprit])
        else:
            self.results[culprit] = Judgement(cause, False)


def _batches(pairs: Sequence[Pair], workers: int) -> Iterator[list[int]]:
    size = min(_BATCH_PAIRS, 1 + len(pairs) // (4 * workers))
    batch: list[int] = []
    characters = 0
    for index, (answer, gold) in enumerate(pairs):
        length = len(answer) + len(gold)
        if batch and (len(batch) == size or characters + length > _BATCH_CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(index)
        characters += length
    if batch:
        yield batch
