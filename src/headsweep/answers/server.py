"""The engine process: loads a model once and answers for many jobs (see `client`).

Its workers share the questions. The process hands out units, journals answers as they come, and
tells a job when its variant's table is written. It does not write a table before a job asks,
because Snakemake removes a job's output before it starts the job. If a worker dies, the engine
dies, too: what is journaled is kept, and the next job starts another engine.
"""

import contextlib
import json
import logging
import os
import select
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from headsweep.answers import worker_processes
from headsweep.answers.job_request import LINE_LIMIT, JobRequest
from headsweep.answers.schedule import Schedule, is_done, planned_part
from headsweep.answers.work import Work
from headsweep.answers.worker_processes import WorkerProcess
from headsweep.config import Config, Model
from headsweep.errors import EngineError, HeadsweepError, cause_of
from headsweep.files import paths
from headsweep.files.locks import Locks
from headsweep.files.record import Stopwatch
from headsweep.machine.host import name_process
from headsweep.machine.sockets import check_peer
from headsweep.store import journal
from headsweep.store.batches import find_batch
from headsweep.store.layout import read_config
from headsweep.variants import Variant

_LOG = logging.getLogger(__name__)

_STOPPED = "the engine was stopped; run again: what it has answered is kept"

_SECONDS_BETWEEN_WORDS = 2.0
"""Jobs hear of the progress, journals are synced, and idleness is looked at this often."""
_SECONDS_TO_BE_CALLED = 5.0  # by the job that has started an engine, which calls within 0.1 s


@dataclass(eq=False)
class _Job:
    connection: socket.socket
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    received: bytes = b""
    schedule: Schedule | None = None  # what it waits for
    variant: Variant | None = None

    def listens(self) -> bool:
        """Tell whether a message leaves room for the last word: a stopped job reads none."""
        poll = select.poll()
        poll.register(self.connection, select.POLLOUT)
        return bool(poll.poll(0))

    def tell(self, **message: Any) -> None:
        """Send a message; a job that is gone, or does not listen, is ignored."""
        with contextlib.suppress(OSError):
            self.connection.send(json.dumps(message).encode() + b"\n", socket.MSG_DONTWAIT)


class Server:
    """Serves jobs of the model with this key, from a listening socket, with some workers.

    `run` is that of the job which has started it.
    """

    def __init__(self, listener: socket.socket, model: str, idle: float, run: str) -> None:
        self._listener = listener
        self._model = model
        self._workers: list[WorkerProcess] = []
        self._idle = idle
        self._jobs: set[_Job] = set()
        self._runs = {run}  # whose jobs have asked, and that have not ended
        self._schedules: dict[tuple[str, ...], Schedule] = {}
        self._locks = Locks(Path(paths.STORE_LOCKS))
        self._unsynced: set[Path] = set()
        self._leaving = False
        self._selector = selectors.DefaultSelector()
        self._listen(listener, self._accept)

    def start_workers(self, section: Model, cores: int) -> None:
        """Start the workers; what this raises, `worker_processes.start` says."""
        for worker in worker_processes.start(section, self._model, cores):
            self._workers.append(worker)
            self._listen(worker.connection, partial(self._hear, worker))

    def run(self) -> None:
        """Serve until no job has come for `idle` seconds, or a run's end or others ask it to leave.

        Raises:
            EngineError: a worker could not load the model, or has died.
        """
        last_job = last_word = time.monotonic()
        while time.monotonic() - last_job < self._idle and not self._leaving:
            until_word = last_word + _SECONDS_BETWEEN_WORDS - time.monotonic()
            for ready, _ in self._selector.select(max(0.0, until_word)):
                ready.data()
            self._feed()
            now = time.monotonic()
            if self._jobs:
                last_job = now
            if now - last_word >= _SECONDS_BETWEEN_WORDS:
                last_word = now
                for schedule in self._schedules.values():
                    for variant in schedule.look_elsewhere():
                        self._complete(schedule, variant)
                for job in self._jobs:
                    self._tell_progress(job)
                self._sync()

    def close(self, cause: str) -> None:
        """Tell all jobs, those at the door too, why there is no answer, if any; end the workers."""
        if cause:
            if not (self._schedules or self._jobs):  # its first job has not called yet
                select.select([self._listener], [], [], _SECONDS_TO_BE_CALLED)
            self._listener.shutdown(socket.SHUT_RDWR)  # who comes later is refused, not unheard
            with contextlib.suppress(OSError):  # nobody is left
                while True:
                    self._accept()
        for job in list(self._jobs):
            if cause:
                job.tell(error=cause)
            self._leave(job)
        for worker in self._workers:
            worker.end()
        self._sync()

    def _listen(self, what: socket.socket | Connection, call: Callable[[], object]) -> None:
        self._selector.register(what, selectors.EVENT_READ, call)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        try:
            check_peer(connection)
        except EngineError:
            connection.close()
            return
        job = _Job(connection)
        self._jobs.add(job)
        self._listen(connection, partial(self._read, job))

    def _leave(self, job: _Job) -> None:
        self._jobs.discard(job)
        self._selector.unregister(job.connection)
        job.connection.close()

    def _read(self, job: _Job) -> None:
        if job not in self._jobs or self._leaving:  # it had its last word, or asks another engine
            return
        try:
            received = job.connection.recv(LINE_LIMIT)
        except ConnectionError:
            received = b""
        job.received += received
        if received.endswith(b"\n"):
            self._asked(job)
        elif not received or len(job.received) > LINE_LIMIT:
            self._leave(job)

    def _asked(self, job: _Job) -> None:
        """Answer a job's one message, now or when its variant is complete."""
        try:
            message = json.loads(job.received)
            if message.keys() == {"status"}:
                job.tell(
                    process=os.getpid(),
                    model=self._model,
                    workers=len(self._workers),
                    jobs=sum(waiting.schedule is not None for waiting in self._jobs),
                    batches={"/".join(k): [s.done, s.total] for k, s in self._schedules.items()},
                )
            elif message.keys() == {"leave_if_done"}:
                self._leaving = is_done(self._model, self._schedules)
            elif message.keys() == {"leave_if_idle"}:
                self._leaving = all(waiting.schedule is None for waiting in self._jobs)
            elif message.keys() == {"ended"}:
                self._end_run(job, message["ended"])
            else:
                self._answer(job, JobRequest.of(message))
        except HeadsweepError as error:
            job.tell(error=str(error))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            job.tell(error=f"not a message that this engine knows: {error!r}")
        if job.schedule is None and not self._leaving:
            self._leave(job)

    def _answer(self, job: _Job, request: JobRequest) -> None:
        """Put what a job asks for first, or hand it over if nothing of it is missing."""
        if request.batch.model != self._model:
            raise EngineError(f"this engine serves {self._model}, not {request.batch.model}")
        self._runs.add(request.run)
        store = read_config(Path(request.config))
        self._drop_plans_of_others(store.config)
        variant = Variant.parse(request.variant)
        works = (schedule.work for schedule in self._schedules.values())
        work = next((work for work in works if work.batch.keys == request.batch), None)
        if work is None:
            work = Work(find_batch(store, request.batch))
            work.check_prompts()
        part = planned_part(work, variant)
        if (place := (*request.batch, part)) not in self._schedules:
            ahead = [other for other in work.lacking if planned_part(work, other) == part]
            self._schedules[place] = Schedule(work, ahead, len(self._workers), self._locks)
        schedule = self._schedules[place]
        is_complete = schedule.want(variant)
        job.schedule, job.variant = schedule, variant
        if is_complete:
            self._complete(schedule, variant)
        else:
            self._tell_progress(job)

    def _drop_plans_of_others(self, config: Config) -> None:
        """Forget the plans of other configs that nobody waits for or works on.

        Their run may be dead.
        """
        needed = {job.schedule for job in self._jobs}
        needed |= {worker.schedule for worker in self._workers if not worker.is_ready}
        for place, schedule in list(self._schedules.items()):
            if schedule not in needed and schedule.work.config != config:
                schedule.forget()
                del self._schedules[place]

    def _end_run(self, job: _Job, run: str) -> None:
        """Leave if no run is left that asks; say so if one is."""
        self._runs.discard(run)
        if self._runs:
            job.tell(stays=True)
            return
        self._leaving = True
        for waiting in [other for other in self._jobs if other.schedule is not None]:
            waiting.tell(error=_STOPPED)
            self._leave(waiting)

    def _feed(self) -> None:
        """Give each free worker the next unit, of batches that jobs wait for first."""
        waited = {job.schedule for job in self._jobs}
        schedules = sorted(self._schedules.values(), key=lambda schedule: schedule not in waited)
        for worker in filter(lambda worker: worker.is_ready, self._workers):
            for schedule in schedules:
                if (unit := schedule.next()) is not None:
                    worker.give(unit, schedule)
                    break

    def _hear(self, worker: WorkerProcess) -> None:
        try:
            word, value = worker.connection.recv()
        except (EOFError, ConnectionError):
            raise worker.death() from None
        match word:
            case "broken":
                raise EngineError(value)
            case "waits":
                worker.gpu = value
            case "tokens":
                worker.tokens = value
            case "ready":
                worker.is_ready, worker.tokens, worker.gpu = True, 0, ""
            case "failed":
                assert worker.schedule is not None
                worker.schedule.forget()
                self._finish(worker.schedule, None, error=value)
            case "begun":
                assert worker.schedule is not None
                for begun_by, records in worker.schedule.begun_records(value).items():
                    self._journal(worker.schedule, begun_by, records)
            case "answer":
                assert worker.schedule is not None
                variant, answer = value
                self._journal(worker.schedule, variant, [answer])
                if worker.schedule.answered(variant, answer):
                    self._complete(worker.schedule, variant)

    def _journal(self, schedule: Schedule, variant: Variant, records: list[dict[str, Any]]) -> None:
        path = schedule.work.journal(variant)
        journal.append(path, records)
        self._unsynced.add(path)

    def _complete(self, schedule: Schedule, variant: Variant) -> None:
        """Write the table of a variant that is complete, if jobs wait for it, and tell them.

        Its lock is held, and free afterwards.
        """
        waiting = (job for job in self._jobs if job.schedule is schedule)
        job = next((job for job in waiting if job.variant == variant), None)
        if job is not None:
            try:
                message: dict[str, Any] = {"complete": schedule.work.write(variant, job.stopwatch)}
            except (HeadsweepError, OSError) as error:
                message = {"error": f"{variant} cannot be written: {error}"}
            self._finish(schedule, variant, **message)
        schedule.release(variant)

    def _finish(self, schedule: Schedule, variant: Variant | None, **message: Any) -> None:
        """Give the last word to the jobs that wait for a variant, or for any of a batch."""
        for job in list(self._jobs):
            if job.schedule is schedule and variant in (None, job.variant):
                job.tell(**message)
                self._leave(job)

    def _tell_progress(self, job: _Job) -> None:
        schedule = job.schedule
        if schedule is None or job.variant is None or not job.listens():
            return
        at_work = [worker for worker in self._workers if worker.schedule is schedule]
        job.tell(
            done=schedule.done,
            total=schedule.total,
            seconds=schedule.seconds,
            waits=self._obstacle(schedule, job.variant),
            tokens=sum(worker.tokens for worker in at_work),
            limit=schedule.work.decoding.max_new_tokens,
        )

    def _obstacle(self, schedule: Schedule, variant: Variant) -> str:
        """Say what answers of a variant wait for; nothing: an empty text."""
        if variant in schedule.elsewhere:
            return f"another engine of this store, which answers {variant}"
        if self._workers and all(worker.gpu for worker in self._workers):
            return f"GPU {self._workers[0].gpu}, where another model is loaded"
        if not schedule.started and any(other.started for other in self._schedules.values()):
            return f"other answers before these {schedule.total}"
        return ""

    def _sync(self) -> None:
        for path in self._unsynced:
            journal.sync(path)
        self._unsynced.clear()


def main() -> None:
    """Run an engine as the argument orders, in JSON; `client` starts it.

    Standard input is the socket, whose name is the engine's.
    """
    order = json.loads(sys.argv[1])
    request = JobRequest.of(order["request"])
    if os.fork():
        return  # what starts an engine need not wait for its end
    os.setsid()
    name_process("sweep-engine")
    kept = os.dup(0)  # a program that is run from here does not inherit it, as it would inherit 0
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    model = request.batch.model
    idle = order["idle"]
    section = Model.model_validate(request.section)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it outlives the job that has started it
    # A copy: the socket itself, and with it the engine's name, stays open to the very end.
    with socket.fromfd(kept, socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.listen(1024)  # here: who connects is told of the process that has called it
        _LOG.info("an engine for %s begins, process %d", model, os.getpid())
        server = Server(listener, model, idle, request.run)
        cause = ""
        try:
            server.start_workers(section, request.cores)
            server.run()
            _LOG.info("asked to, or as no job came for %.0f s, the engine leaves", idle)
        except HeadsweepError as error:
            _LOG.error("%s", error)
            cause = str(error)
        except Exception as error:
            _LOG.exception("the engine failed")
            cause = (
                f"the engine failed: {cause_of(error)}; {request.log.absolute()} has more; run "
                f"again: what it has answered is kept"
            )
        except SystemExit:
            cause = _STOPPED
        finally:
            server.close(cause)


if __name__ == "__main__":
    main()
