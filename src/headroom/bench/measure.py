"""Measures every rival at every thread setting, side by side on the same work."""

import json
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import headroom
from headroom.bench.floor import Costs, floor
from headroom.bench.rivals import RIVALS, Key, Work
from headroom.bench.worker import Job
from headroom.errors import ModelError
from headroom.variants import BASE

_LOG = logging.getLogger(__name__)
_SOURCE = str(Path(headroom.__file__).parents[1])

TORCH, VLLM = "torch", "vllm"
"""Kinds of workers; `VLLM` is a row, too."""
REFERENCE = "published"
VLLM_NAME = "vLLM, one pruned model at a time"

Setting = tuple[int, int]
"""Processes, and threads of each."""


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
        kind: of worker, `TORCH` or `VLLM`.
        processes: how many.
        threads: of each.
        setup: the first job of each worker.
        python: interpreter that runs them.

    Raises:
        ModelError: a worker does not start.
    """

    def __init__(
        self,
        kind: str,
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
        self.ask([{**setup, "threads": threads}] * processes)

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
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
        jobs = [_job("sweep", rival, part) for part in work.split(split, self.processes)]
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


def _job(task: str, rival: str, work: Work) -> Job:
    return {
        "task": task,
        "rival": rival,
        "prompts": work.prompts,
        "variants": [str(variant) for variant in work.variants],
        "max_new_tokens": work.max_new_tokens,
    }


def _reply(worker: "subprocess.Popen[str]") -> Any:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise ModelError(f"its process died with status {worker.wait()}")
    reply = json.loads(line)
    if "error" in reply:
        raise ModelError(reply["error"])
    return reply


@dataclass
class Row:
    """What was measured of one rival."""

    key: str
    name: str
    work: Work
    runs: dict[Setting, list[Run]] = field(default_factory=dict)
    failure: str | None = None

    def seconds(self, setting: Setting) -> float:
        """Return the median time at a setting."""
        return statistics.median(run.seconds for run in self.runs[setting])

    @property
    def best(self) -> Setting:
        """The fastest setting."""
        return min(self.runs, key=self.seconds)

    @property
    def choices(self) -> dict[Key, list[int]]:
        """Tokens chosen, by question and variant."""
        return self.runs[self.best][0].choices

    @property
    def tokens(self) -> int:
        """Number of tokens chosen, ends of sequence included."""
        return sum(map(len, self.choices.values()))

    @property
    def rate(self) -> float:
        """Tokens a second at the fastest setting."""
        return self.tokens / self.seconds(self.best)

    @property
    def cpu_rate(self) -> float:
        """Tokens a second of processor time: what other work on the machine disturbs least."""
        return self.tokens / statistics.median(run.cpu_seconds for run in self.runs[self.best])


@dataclass
class Measurements:
    """All rows, and what this machine can do."""

    rows: list[Row]
    costs: Costs
    peaks: dict[int, float]
    """Floating-point operations a second, by number of threads in all."""

    def row(self, key: str) -> Row | None:
        """Return a rival's row, if it was measured."""
        return next((row for row in self.rows if row.key == key and row.runs), None)

    def differing(self, row: Row, *, near_ties: bool = False) -> int | None:
        """Return how many of a rival's answers differ from the published way's.

        Args:
            row: of the rival.
            near_ties: count among its near ties only.
        """
        reference = self.row(REFERENCE)
        if reference is None:
            return None
        expected, found = reference.choices, row.choices
        compared = row.runs[row.best][0].near_ties if near_ties else found
        return sum(expected[key] != found[key] for key in compared)

    @property
    def alone(self) -> float | None:
        """Return how many times the engine is faster than one process of the published way.

        That is how it is published; a process for each half of the heads is faster on two cores.
        """
        reference, engine = self.row(REFERENCE), self.row("engine")
        if reference is None or engine is None:
            return None
        single = min(reference.seconds(each) for each in reference.runs if each[0] == 1)
        return single / engine.seconds(engine.best)

    def floor_seconds(self, row: Row) -> float | None:
        """Return the least time for a rival's answers at the machine's measured peak."""
        if any((question, str(BASE)) not in row.choices for question in row.work.prompts):
            return None
        processes, threads = row.best
        return floor(row.work, row.choices, self.costs) / self.peaks[processes * threads]

    @property
    def unchanged(self) -> float | None:
        """Share of pruned models' answers that equal the base model's."""
        choices = next((row.choices for row in self.rows if row.runs), {})
        pruned = [(q, v) for q, v in choices if v != str(BASE)]
        same = sum(choices[q, v] == choices[q, str(BASE)] for q, v in pruned)
        return same / len(pruned) if pruned else None


def settings_of(threads: Sequence[int], *, processes: bool) -> list[Setting]:
    """Return the settings with these numbers of threads: in one process, or a process each."""
    settings = [(1, count) for count in threads]
    if processes:
        settings += [(count, 1) for count in threads if count > 1]
    return settings


class Bench:
    """The workers of a benchmark, started once for all that is measured.

    Args:
        stack: ends the workers.
        setup: first job of the workers.
        settings: processes and threads.
        vllm: first job of vLLM's workers and the Python that runs them, where there is one.
    """

    def __init__(
        self,
        stack: ExitStack,
        setup: Job,
        settings: Sequence[Setting],
        vllm: tuple[Job, str] | None = None,
    ) -> None:
        self._stack, self._settings = stack, list(settings)
        self._started_by = {TORCH: (setup, sys.executable)} | ({VLLM: vllm} if vllm else {})
        self._crews: dict[tuple[str, Setting], Crew] = {}

    def _crew(self, kind: str, setting: Setting) -> Crew:
        """Return the workers of a setting; the first call starts them."""
        if (kind, setting) not in self._crews:
            crew = Crew(kind, *setting, *self._started_by[kind])
            self._crews[kind, setting] = self._stack.enter_context(crew)
        return self._crews[kind, setting]

    def measure(self, keys: Sequence[str], work: Work, repeat: int) -> Measurements:
        """Measure rivals in turn, round after round, after a small part of the work to warm up.

        Args:
            keys: of `RIVALS`, and `vllm`.
            work: what to answer; some rivals get the first variants only.
            repeat: rounds; medians of their times count.
        """
        rows = [self._row(key, work) for key in keys]
        crew = self._crew(TORCH, self._settings[0])
        costs = Costs(**crew.ask([{"task": "costs"}])[0]["costs"])
        peaks = {count: self._peak(count) for count in self._threads()}
        for number in range(repeat):
            for row in rows:
                for setting in self._settings:
                    if row.failure is None:
                        self._run(row, setting, warm=number > 0)
        peaks = {count: max(peak, self._peak(count)) for count, peak in peaks.items()}
        return Measurements(rows, costs, peaks)

    def _threads(self) -> list[int]:
        return [threads for processes, threads in self._settings if processes == 1]

    def _peak(self, threads: int) -> float:
        return float(self._crew(TORCH, (1, threads)).ask([{"task": "peak"}])[0]["peak"])

    def _row(self, key: str, work: Work) -> Row:
        if key == VLLM:
            return Row(key, VLLM_NAME, work)
        rival = RIVALS[key]
        return Row(key, rival.name, work.first(variants=rival.variants))

    def _run(self, row: Row, setting: Setting, *, warm: bool) -> None:
        if row.key == VLLM:
            kind, split = VLLM, "variants"
        else:
            kind, split = TORCH, RIVALS[row.key].split
        try:
            crew = self._crew(kind, setting)
            if not warm:
                crew.measure(row.key, row.work.first(questions=2 * setting[0], variants=2), split)
            run = crew.measure(row.key, row.work, split)
        except ModelError as error:
            row.failure = str(error)
            row.runs.clear()
            _LOG.warning("%s is not measured: %s", row.name, error)
            return
        row.runs.setdefault(setting, []).append(run)
        _LOG.info("%s, %d × %d threads: %.2f s", row.name, *setting, run.seconds)

    def added_head(self, found: Measurements, work: Work) -> dict[str, float] | None:
        """Return the seconds that one head more costs the published way and the engine.

        The published way's is its time over the number of variants; the engine's is how much
        longer all heads take than half of them.
        """
        reference, engine = found.row(REFERENCE), found.row("engine")
        half = len(work.variants) // 2
        if reference is None or engine is None or not half:
            return None
        part = work.first(variants=len(work.variants) - half)
        crew, split = self._crew(TORCH, engine.best), RIVALS["engine"].split
        seconds = statistics.median(
            crew.measure("engine", part, split).seconds for _ in engine.runs[engine.best]
        )
        return {
            REFERENCE: reference.seconds(reference.best) / len(work.variants),
            "engine": (engine.seconds(engine.best) - seconds) / half,
        }

    def idle(self, work: Work) -> float:
        """Return the share of the engine's time, on one thread, with no operator running."""
        crew = self._crew(TORCH, self._settings[0])
        return float(crew.ask([_job("profile", "engine", work)])[0]["idle"])
