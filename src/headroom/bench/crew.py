"""Worker processes that share a sweep out among them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import headroom
from headroom.bench.channel import Job
from headroom.bench.work import Key, Work
from headroom.errors import ModelError

_SOURCE = str(Path(headroom.__file__).parents[1])


@dataclass
class Run:
    """One measurement."""

    seconds: float
    cpu_seconds: float
    choices: dict[Key, list[int]] = field(repr=False)
    fed: int | None
    statistics: dict[str, float]
    near_ties: set[Key] = field(default_factory=set, repr=False)


class Crew:
    """Processes that hold the same model.

    Args:
        module: the worker to run.
        processes: how many.
        threads: of each.
        setup: the first job of each worker.
        python: interpreter that runs them.

    Raises:
        ModelError: a worker does not start.
    """

    def __init__(
        self,
        module: str,
        processes: int,
        threads: int,
        setup: Job,
        python: str = sys.executable,
    ) -> None:
        self.processes = processes
        self.threads = threads
        # Some libraries size their pools from the environment, when they are imported.
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": _SOURCE}
        try:
            self._workers = [
                subprocess.Popen(
                    [python, "-m", module],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                    text=True,
                )
                for _ in range(processes)
            ]
        except OSError as error:
            raise ModelError(f"{python} cannot be run ({error.strerror}); name a Python") from error
        self.ask([{**setup, "threads": threads}] * processes)

    def __enter__(self) -> "Crew":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            if kind is None:
                worker.communicate()  # closes its input, which ends it
            else:
                worker.kill()
                worker.wait()

    def ask(self, jobs: Sequence[Job]) -> list[Job]:
        """Give each of the first workers a job; return their replies.

        Raises:
            ModelError: a worker answers with an error, or not at all.
        """
        workers = self._workers[: len(jobs)]
        for worker, job in zip(workers, jobs, strict=True):
            assert worker.stdin is not None
            try:
                print(json.dumps(job), file=worker.stdin, flush=True)
            except BrokenPipeError:
                continue  # it does not answer either
        return [_reply(worker) for worker in workers]

    def measure(self, rival: str, work: Work, split: str) -> Run:
        """Let the workers share a sweep out and measure the time until the last has finished.

        Raises:
            ModelError: the rival fails.
        """
        jobs: list[Job] = [
            {
                "task": "sweep",
                "rival": rival,
                "prompts": part.prompts,
                "variants": [str(variant) for variant in part.variants],
                "max_new_tokens": part.max_new_tokens,
            }
            for part in work.split(split, self.processes)
        ]
        begin = time.perf_counter()
        replies = self.ask(jobs)
        seconds = time.perf_counter() - begin
        return Run(
            seconds=seconds,
            cpu_seconds=sum(reply["cpu_seconds"] for reply in replies),
            choices={(q, v): row for reply in replies for q, v, row in reply["choices"]},
            fed=sum(reply["fed"] for reply in replies) if "fed" in replies[0] else None,
            statistics={
                name: sum(reply["statistics"][name] for reply in replies)
                for name in replies[0]["statistics"]
            },
            near_ties={(q, v) for reply in replies for q, v in reply.get("near_ties", ())},
        )


def _reply(worker: "subprocess.Popen[str]") -> Any:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise ModelError(f"its process died with status {worker.wait()}")
    reply = json.loads(line)
    if "error" in reply:
        raise ModelError(reply["error"])
    return reply
