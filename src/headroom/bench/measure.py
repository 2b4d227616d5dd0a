"""Processes that hold the same model, divide a sweep among them, and measure its time."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import headroom
from headroom.bench.rivals import Key, Work
from headroom.bench.worker import Job
from headroom.errors import ModelError

_SOURCE = str(Path(headroom.__file__).parents[1])

Setting = tuple[int, int]
"""Processes, and threads of each."""


@dataclass
class Run:
    """One measurement."""

    seconds: float
    cpu_seconds: float
    choices: dict[Key, list[int]] = field(repr=False)
    near_ties: set[Key] = field(repr=False)
    statistics: dict[str, float]
    """Summed over the processes."""


class Crew:
    """Processes that hold the same model.

    Args:
        kind: of worker, `torch` or `vllm`.
        setting: processes, and threads of each.
        setup: the first job of each worker.
        python: interpreter that runs them.

    Raises:
        ModelError: a worker does not start.
    """

    def __init__(
        self, kind: str, setting: Setting, setup: Job, python: str = sys.executable
    ) -> None:
        processes, threads = setting
        # Some libraries size their pools from the environment, when they are imported.
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": _SOURCE}
        try:
            self._workers = [
                subprocess.Popen(
                    [python, "-m", "headroom.bench.worker", kind],
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
        try:
            self.ask([{**setup, "threads": threads}] * processes)
        except ModelError:
            self.close()
            raise

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.kill()
            worker.communicate()

    def ask(self, jobs: Sequence[Job]) -> list[Job]:
        """Send a job to each of the first workers; return their replies.

        Raises:
            ModelError: a worker answers with an error, or not at all.
        """
        workers = self._workers[: len(jobs)]
        for worker, job in zip(workers, jobs, strict=True):
            assert worker.stdin is not None
            try:
                print(json.dumps(job), file=worker.stdin, flush=True)
            except BrokenPipeError:
                continue  # reading its reply fails, too
        return [_reply(worker) for worker in workers]

    def measure(self, rival: str, work: Work, split: str) -> Run:
        """Divide a sweep among the workers, and measure the time until the last has finished.

        Raises:
            ModelError: the rival fails.
        """
        jobs = [
            {
                "rival": rival,
                "prompts": part.prompts,
                "variants": [str(variant) for variant in part.variants],
                "max_new_tokens": part.max_new_tokens,
            }
            for part in work.split(split, len(self._workers))
        ]
        begin = time.perf_counter()
        replies = self.ask(jobs)
        seconds = time.perf_counter() - begin
        names = replies[0]["statistics"]
        return Run(
            seconds,
            sum(reply["cpu_seconds"] for reply in replies),
            {(q, v): row for reply in replies for q, v, row in reply["choices"]},
            {(q, v) for reply in replies for q, v in reply["near_ties"]},
            {name: sum(reply["statistics"][name] for reply in replies) for name in names},
        )


def _reply(worker: "subprocess.Popen[str]") -> Job:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise ModelError(f"its process died with status {worker.wait()}")
    reply: Job = json.loads(line)
    if "error" in reply:
        raise ModelError(reply["error"])
    return reply
