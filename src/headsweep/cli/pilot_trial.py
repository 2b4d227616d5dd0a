"""Let a model answer a pilot's questions on this machine: `python -m headsweep.cli.pilot_trial`.

It reads an order as JSON from standard input (a config of one batch, cores) and prints what it has
measured as one line of JSON, the last of its output. `attempt` starts it in a process of its own,
so that software that crashes the whole process only counts as failed.

The workers are those of a run's engine: on a CPU all share the questions, of several GPUs one is
measured. They first answer a few questions with all variants, one each in float32 on a CPU: so they
check themselves elsewhere, and nothing is slow later because it is new. Then the base model's
answers are timed, and after them those of the heads.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import islice
from multiprocessing.connection import wait
from typing import Any, NamedTuple, Self

from headsweep.answers import worker_processes
from headsweep.answers.work import Work
from headsweep.answers.worker_processes import WorkerProcess
from headsweep.config import Model, parse
from headsweep.errors import EngineError, told_of
from headsweep.machine.processors import is_on_gpu
from headsweep.store.batches import batches
from headsweep.store.layout import Store
from headsweep.variants import BASE, Variant

_CHECKED = 8  # questions of the self-check
_LIMIT_SECONDS = 3600.0
_LONGEST_CAUSE = 300  # characters of a failure's cause
_TOLD = ("device", "path", "check", "falls")  # of what an engine says of itself

Row = dict[str, Any]
"""An answer, as a row of `tables.ANSWERS`."""


class Trial(NamedTuple):
    """What one software does with a model on this machine."""

    start: float
    """Seconds from the process's begin to the first answer that could have come."""
    base: float
    """Seconds that all workers together take for an answer of the base model."""
    head: float
    """The same, without a head, once the base model's answers are there."""
    answers: dict[str, list[Row]]
    """By variant, the base model first."""
    facts: dict[str, Any]
    """What the software says of itself: version, device, path, check, falls."""


def attempt(store: Store, cores: int) -> Trial:
    """Try software with a model in a process of its own, and return what that has measured.

    Args:
        store: of a resolved config with one batch; its model, which names the software, and its
            questions are there.
        cores: CPU cores that a run's engine may use.

    Raises:
        EngineError: it has failed; the cause in one line.
    """
    (batch,) = batches(store).values()
    backend = store.config.models[batch.model].backend
    values = store.config.model_dump(mode="json")
    threads = str(cores if backend == "vllm" else 1)
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "headsweep.cli.pilot_trial"],
            input=json.dumps({"config": values, "cores": cores, "begun": time.time()}),
            capture_output=True,
            errors="replace",
            check=False,
            text=True,
            timeout=_LIMIT_SECONDS,
            env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
        )
    except subprocess.TimeoutExpired:
        raise EngineError(f"{backend}: no result after {_LIMIT_SECONDS:.0f} s") from None
    last = (ended.stdout.strip().splitlines() or [""])[-1]
    try:
        told = json.loads(last)
    except ValueError:
        last_words = " ".join(ended.stderr.split())[-_LONGEST_CAUSE:]
        cause = last_words or f"it ended with status {ended.returncode}"
        raise EngineError(f"{backend}: {cause}") from None
    if "error" in told:
        raise EngineError(f"{backend}: {told['error']}")
    return Trial(**told)


def measure(store: Store, cores: int, begun: float) -> Trial:
    """Return what a config's only model does here.

    `begun` is when the process was started, in seconds of the epoch.

    Raises:
        EngineError: the self-check fails: answers would come from the model's own modules, slowly.
            Or a worker has failed.
    """
    (batch,) = batches(store).values()
    section = store.config.models[batch.model]
    work = Work(batch)
    questions = [*work.texts]
    on_cpu = not is_on_gpu(section.device)
    count = min(cores, len(questions)) if on_cpu and section.backend == "headsweep" else 1
    imported = time.time() - begun
    with _Workers(section, batch.keys.model, count) as workers:
        start = imported + workers.loading
        is_checked = section.dtype != "float32" or not on_cpu
        first = questions[: max(count, _CHECKED if is_checked else 0)]
        facts = _facts(workers.answer(work, batch.variants, first, {}))
        if facts.get("falls") and facts["path"] == "modules":
            raise EngineError(
                f"the self-check has failed, and a run would go on by the model's own modules, "
                f"slowly: {facts['falls'][-1]}"
            )
        begin = time.perf_counter()
        base = workers.answer(work, [BASE], questions, {})
        drafts = {row["question_id"]: row["token_ids"] for _, row in base}
        middle = time.perf_counter()
        pruned = [variant for variant in batch.variants if variant != BASE]
        heads = workers.answer(work, pruned, questions, drafts)
        end = time.perf_counter()
    facts = _facts(base + heads)
    rows: dict[str, list[Row]] = {str(variant): [] for variant in batch.variants}
    for variant, row in base + heads:
        row.pop("engine", None)
        rows[str(variant)].append(row)
    return Trial(
        start=round(start, 2),
        base=(middle - begin) / len(base),
        head=(end - middle) / len(heads),
        answers=rows,
        facts=facts,
    )


def _facts(answers: Sequence[tuple[Variant, Row]]) -> dict[str, Any]:
    """Return what the software has said of itself at last: it may have failed at full width."""
    *_, last = (row["engine"] for _, row in answers if "engine" in row)
    version = {} if last["backend"] == "headsweep" else {"version": last["backend"]}
    return version | {name: last[name] for name in _TOLD if name in last}


class _Workers:
    """The workers of an engine for a model, so many, once each has loaded it."""

    def __init__(self, section: Model, model: str, count: int) -> None:
        self._begin = time.time()
        self._all = [*islice(worker_processes.start(section, model, count), count)]

    def __enter__(self) -> Self:
        """Wait until all are ready; `loading` is what that took, whatever the wait for a GPU."""
        try:
            self._heard()
        except BaseException:
            self.__exit__()
            raise
        self.loading = time.time() - self._begin
        return self

    def __exit__(self, *_: object) -> None:
        """End them."""
        for worker in self._all:
            worker.end()

    def answer(
        self,
        work: Work,
        variants: Sequence[Variant],
        questions: Sequence[str],
        drafts: dict[str, list[int]],
    ) -> list[tuple[Variant, Row]]:
        """Answer questions as each of the variants, given base answers if there are any.

        Raises:
            EngineError: a worker has failed.
        """
        for place, worker in enumerate(self._all):
            part = questions[place :: len(self._all)]
            requests = [(variant, (question, 0)) for question in part for variant in variants]
            worker.connection.send(work.unit(requests, drafts))
        return self._heard()

    def _heard(self) -> list[tuple[Variant, Row]]:
        """Return what the workers answer until all are ready for a unit."""
        answers: list[tuple[Variant, Row]] = []
        busy: dict[Any, WorkerProcess] = {worker.connection: worker for worker in self._all}
        while busy:
            ready: list[Any] = wait([*busy])
            for connection in ready:
                try:
                    word, value = connection.recv()
                except (EOFError, ConnectionError):
                    raise busy[connection].death() from None
                match word:
                    case "ready":
                        del busy[connection]
                    case "answer":
                        answers.append(value)
                    case "waits":
                        self._begin = time.time()
                    case "broken" | "failed":
                        raise EngineError(value)
        return answers


def main() -> None:
    """Do what the order on standard input says; print the result, or the cause of a failure."""
    order = json.load(sys.stdin)
    try:
        trial = measure(Store(parse(order["config"])), order["cores"], order["begun"])
        said = trial._asdict()
    except Exception as error:  # whatever a backend raises
        said = {"error": told_of(error, _LONGEST_CAUSE)}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
