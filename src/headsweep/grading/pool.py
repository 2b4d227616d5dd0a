"""Judging in worker processes that may die.

Each worker takes batches of pairs. A pair that exceeds a limit ends the worker's child process. The
number of replies before shows which pair it was; the next child judges the rest of the batch.
Results do not depend on the number of workers or on the batches: each child starts with the same
hash seed and memory, CPU time is limited (wall time only as a last resort), and a pair that ended a
child other than by time is tried again in a fresh child before it counts as failed.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from itertools import chain
from queue import SimpleQueue
from typing import NamedTuple

from headsweep.errors import GradingError

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
    b"1": Judgement("judged", True),
    b"0": Judgement("judged", False),
    b"e": Judgement("error", False),
}
_CAUSES = {b"t": "timeout", b"m": "memory"}  # why a child ended; anything else is an error


@dataclass(frozen=True)
class Limits:
    """Limits for one pair."""

    cpu_seconds: float = 5.0
    wall_seconds: float = 30.0
    memory_mib: int = 512


def judge_pairs(
    pairs: Sequence[Pair], preset: str, *, workers: int = 1, limits: Limits | None = None
) -> list[Judgement]:
    """Judge pairs of (answer, gold), in order, in processes that can be killed.

    The preset is ``default`` (math-verify) or ``authors`` (PRM800K's rules); the texts are any.

    Raises:
        GradingError: no worker can be started.
    """
    batches = _batches(pairs, workers)
    everyone: list[_Worker] = []
    free: SimpleQueue[_Worker] = SimpleQueue()

    def judged(batch: list[Pair]) -> list[Judgement]:
        worker = free.get()
        try:
            return worker.judge(batch)
        finally:
            free.put(worker)

    with ThreadPoolExecutor(workers) as threads:
        try:
            for _ in range(min(workers, len(batches))):
                everyone.append(_Worker(preset, limits or Limits()))
                free.put(everyone[-1])
            return list(chain.from_iterable(threads.map(judged, batches)))
        finally:
            for worker in everyone:
                worker.end()


class _Worker:
    """A worker process; if it is killed from outside, another takes its place."""

    def __init__(self, preset: str, limits: Limits) -> None:
        arguments = (preset, *map(str, astuple(limits)))
        self.command = [sys.executable, "-P", "-m", "headsweep.grading.worker", *arguments]
        self.busy = self.ended = False
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
        self.ready = False
        self.answered = 0  # pairs, by the latest child
        self._write("")  # the child reads what comes behind this line
        if self.ended:  # meanwhile
            self.end()

    def judge(self, batch: list[Pair]) -> list[Judgement]:
        """Judge a batch; its end is missing if `end` is called meanwhile."""
        found: list[Judgement] = []
        self.busy = True
        self.give(batch)
        while len(found) < len(batch) and not self.ended:
            reply = self.stdout.read(1)
            if reply == b"r":
                self.ready = True
            elif reply in _REPLIES:
                found.append(_REPLIES[reply])
                self.answered += 1
            elif not self.ended:
                # The child has ended; a pair that was not its first is tried again.
                if reply == b"t" or not self.answered:
                    found.append(Judgement(_CAUSES.get(reply, "error"), False))
                self.answered = 0
                if reply:
                    self._write("")
                else:
                    self._replace()
                self.give(batch[len(found) :])
        self.busy = False
        return found

    def give(self, batch: list[Pair]) -> None:
        self._write(json.dumps(batch))

    def _write(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has died: `judge` sees its closed output
            self.stdin.write(f"{line}\n".encode())
            self.stdin.flush()

    def _replace(self) -> None:
        """Start another process after this one has ended, which happens only by a kill."""
        status = self.process.wait()
        if not self.ready:
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
        self._close()


def _batches(pairs: Sequence[Pair], workers: int) -> list[list[Pair]]:
    size = min(_BATCH_PAIRS, 1 + len(pairs) // (4 * workers))
    batches: list[list[Pair]] = []
    room = -1
    for pair in pairs:
        room -= sum(map(len, pair))
        if room < 0 or len(batches[-1]) == size:
            batches.append([])
            room = _BATCH_CHARACTERS - sum(map(len, pair))
        batches[-1].append(pair)
    return batches
