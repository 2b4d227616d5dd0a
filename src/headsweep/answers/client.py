"""The generate job's side of the engine: find an engine, start one, ask it, stop it.

One engine process serves one model, with the same settings, from one folder on one machine, for any
number of jobs. Its name is an abstract Unix socket, which is also its lock: the kernel gives a name
to one process only, and frees it when that process dies, for whatever reason. No process id but the
kernel's is trusted. A job that gets the name starts an engine and hands the socket to it; a job
that does not get it connects to the engine. Messages are lines of JSON; both ends refuse to talk to
another user.

Most jobs of a sweep find that an engine has already done their work. This module imports next to
nothing, so that such a job takes no longer than Python's own start.
"""

import contextlib
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headsweep.answers import engine_sockets
from headsweep.answers.job_request import LINE_LIMIT, JobRequest
from headsweep.answers.progress import Reports, progress
from headsweep.errors import EngineError
from headsweep.files import paths
from headsweep.files.paths import BatchKeys
from headsweep.files.plain_files import open_to_write, read_plain
from headsweep.machine import fork_server, sockets
from headsweep.telling import PASSING, told
from headsweep.words import doing

if TYPE_CHECKING:
    from headsweep.answers.work import Work
    from headsweep.store.batches import Batch
    from headsweep.variants import Variant

_LOG = logging.getLogger(__name__)

IDLE_SECONDS = 60.0  # how long an engine waits for the next job before it leaves

_SERVER = "headsweep.answers.server"
_RUN = "HEADSWEEP_RUN"  # names the run in the environment of its jobs
_SECONDS_BETWEEN_TRIES = 0.05
_SECONDS_TO_STOP = 10.0
_SECONDS_TO_LISTEN = 300.0  # of an engine that begins, on a slow disk; one that ends takes less
_TRIES = 3


def collect(config: Path, batch: BatchKeys, variant: str, cores: int) -> bool:
    """Do what `run` does, and return True, if an engine runs already.

    The config is the file that a run wrote. False also if it is not.

    Raises:
        EngineError: the engine's cause in one line. What is answered is kept.
    """
    try:
        sections = json.loads(read_plain(config.with_name(Path(paths.MODEL_SECTIONS).name)))
        section = sections[batch.model]
        request = JobRequest(str(config), section, batch, variant, cores, _this_run())
        connection = sockets.connect(request.engine)
    except (OSError, ValueError, LookupError, TypeError):
        return False
    return connection is not None and _ask(connection, request, doing("generate", batch._asdict()))


def run(batch: "Batch", variant: "Variant", cores: int = 1) -> None:
    """Answer a batch's questions with one variant of its model; write the table and its record.

    Answers that the store holds already, made for another draw from the same split, are taken
    over, and those of a run that was killed. Only if some question is left, an engine is asked,
    which may use so many cores. The batch's config is that which the run has written
    (`store.layout.write_config`): an engine reads it there.

    Raises:
        EngineError: the engine has failed, or was stopped. What is answered is kept.
        TableError: the question set is missing or damaged.
    """
    from headsweep.answers.work import Work
    from headsweep.files.locks import Locks
    from headsweep.files.record import Stopwatch

    stopwatch = Stopwatch()
    work = Work(batch)
    locks = Locks(Path(paths.STORE_LOCKS))
    name = work.lock(variant)
    while not locks.take(name):
        if work.unanswered(variant):  # an engine answers
            ask(work, variant, cores)
            return
        time.sleep(_SECONDS_BETWEEN_TRIES)  # another process writes the table
    work.take_over(variant)
    if work.unanswered(variant):
        locks.release(name)
        ask(work, variant, cores)
        return
    count = work.write(variant, stopwatch)
    _LOG.debug("%s: %d answers, %.1f s", variant, count, stopwatch.seconds)


def ask(work: "Work", variant: "Variant", cores: int) -> None:
    """Have an engine answer a variant and write its table; start one if none runs.

    A new engine leaves after `IDLE_SECONDS` without a job.

    Raises:
        EngineError: the engine's cause in one line. What is answered is kept.
    """
    batch = work.batch
    config = str(batch.store.path(paths.CONFIG))
    section = work.config.models[batch.model].model_dump(mode="json")
    request = JobRequest(config, section, batch.keys, str(variant), cores, _this_run())
    for _ in range(_TRIES):
        if _ask(_connect(request), request, work.told):
            return
    raise EngineError(f"the engine dies before it answers; {request.last_words} says why")


def status() -> list[dict[str, Any]]:
    """Return what each engine that runs in this folder says of itself.

    One that says nothing for ten seconds loads its model, or is stopped: its process alone is told.
    """
    said: list[dict[str, Any]] = []
    for _, connection in _listening(set()):
        with contextlib.suppress(OSError):
            try:
                said += _answers(connection, b'{"status":true}\n')
            except TimeoutError:
                said.append({"process": sockets.check_peer(connection)})
    return [engine for engine in said if "error" not in engine]


def begin_run() -> None:
    """Begin a run of this process's own, to which the jobs belong that it starts from now on."""
    os.environ[_RUN] = os.urandom(8).hex()


@told("ending engines")
def end_run() -> None:
    """End this process's run: the engines of this folder that no other run uses leave.

    Others stay, as do those that have been asked by runs that were killed, until they are idle.
    """
    message = json.dumps({"ended": _this_run()}).encode() + b"\n"
    passed = set[str]()  # they stay, or are others'
    deadline = time.monotonic() + _SECONDS_TO_STOP
    while engine_sockets.names() - passed and time.monotonic() < deadline:
        for name, connection in _listening(passed):
            with contextlib.suppress(OSError):
                if any("stays" in said for said in _answers(connection, message)):
                    passed.add(name)
        time.sleep(_SECONDS_BETWEEN_TRIES)


def stop() -> int:
    """Stop all engines that run in this folder; return how many. What is answered is kept.

    Raises:
        EngineError: an engine cannot be seen from here, or does not listen yet.
    """
    stopped = set[int]()
    passed = set[str]()  # they are others', or cannot be seen from here
    elsewhere = ""
    deadline = time.monotonic() + _SECONDS_TO_STOP
    while engine_sockets.names() - passed and time.monotonic() < deadline:
        for name, connection in _listening(passed):
            if engine := sockets.check_peer(connection):
                if _end(engine, connection):
                    stopped.add(engine)
            else:  # as a process to send signals to, 0 would be this one and its group
                passed.add(name)
                elsewhere = name
        time.sleep(_SECONDS_BETWEEN_TRIES)
    if elsewhere:
        raise EngineError(
            f"the process that listens at {elsewhere} cannot be seen from here, so it gets no "
            f"signal; it runs in another container, perhaps: give `headsweep engine stop` there"
        )
    if left := engine_sockets.names() - passed:
        raise EngineError(
            f"engines that do not listen yet: {len(left)}; wait until `headsweep engine status` "
            f"shows them, and give `headsweep engine stop` again"
        )
    return len(stopped)


def _end(engine: int, connection: socket.socket) -> bool:
    """Stop the engine that has let a connection in, and wait for its end; False: it has ended.

    Its id is the kernel's word, and no other process's as long as the connection is open: the
    engine's workers, which would hold it too, die with the engine.
    """
    try:
        os.kill(engine, signal.SIGTERM)
    except ProcessLookupError:
        return False
    connection.settimeout(_SECONDS_TO_STOP)
    with contextlib.suppress(ConnectionError, ProcessLookupError):
        try:
            list(_messages(connection))
        except TimeoutError:
            os.kill(engine, signal.SIGKILL)
    return True


def ask_for_room() -> None:
    """Have the engines of this folder leave whose plan is done: memory may be short."""
    _tell_engines("leave_if_done")


def ask_idle_engines_to_leave() -> None:
    """Have the engines of this folder leave that no job waits for; return when they begin to.

    What is answered stays in their journals.
    """
    _tell_engines("leave_if_idle")


def _tell_engines(word: str) -> None:
    for _, connection in _listening(set()):
        with contextlib.suppress(OSError):
            _answers(connection, f'{{"{word}":true}}\n'.encode())


def _listening(passed: set[str]) -> Iterator[tuple[str, socket.socket]]:
    """Yield connections to this folder's engines, by name, but for those that are passed over.

    One that does not listen begins, or is about to end. What is others' is passed over from now on.
    """
    for name in sorted(engine_sockets.names() - passed):
        try:
            connection = sockets.connect(name)
        except EngineError as error:
            passed.add(name)
            _leave_alone(name, str(error))
            continue
        if connection is not None:
            with connection:
                yield name, connection


@cache
def _leave_alone(name: str, cause: str) -> None:
    """Say so, once."""
    _LOG.warning("%s is left alone: %s", name, cause)


def _this_run() -> str:
    return os.environ.setdefault(_RUN, os.urandom(8).hex())


def _connect(request: JobRequest) -> socket.socket:
    """Connect to the engine; start it if there is none."""
    started = 0
    deadline = time.monotonic() + _SECONDS_TO_LISTEN
    while (connection := sockets.connect(request.engine)) is None:
        with socket.socket(socket.AF_UNIX) as listener:
            try:
                listener.bind(f"\0{request.engine}")
            except OSError:  # an engine begins to listen, or is about to end
                if time.monotonic() > deadline:
                    raise EngineError(
                        f"a process has taken the engine's name and does not listen: "
                        f"`ss -xlp | grep {request.engine}` shows it; end it, and run again"
                    ) from None
                time.sleep(_SECONDS_BETWEEN_TRIES)
                continue
            if started == _TRIES:
                raise EngineError(
                    f"the engine dies as it starts; {request.log.absolute()} says why"
                )
            started += 1
            ask_for_room()
            with told("starting an engine"):
                _start(request, listener)
    return connection


def _start(request: JobRequest, listener: socket.socket) -> None:
    """Start an engine; its standard input is the socket. It leaves this session by itself.

    Raises:
        EngineError: it has ended before it could listen, as without memory.
    """
    _LOG.info("an engine starts; its log: %s", request.log.absolute())
    uses_vllm = request.section["backend"] == "vllm"
    order = json.dumps({"request": request._asdict(), "idle": IDLE_SECONDS})
    environment = {
        **os.environ,
        # A worker for each core needs no more threads; vLLM is one worker.
        **fork_server.of_threads(request.cores if uses_vllm else 1),
    }
    with os.fdopen(open_to_write(request.log), "ab") as log:
        status = None
        if not uses_vllm:  # which takes long to begin by itself, and was not tried as a fork
            streams = listener.fileno(), log.fileno(), log.fileno()
            status = fork_server.ask(_SERVER, [_SERVER, order], environment, streams, aside=True)
        if status is None:
            import subprocess

            command = [sys.executable, "-P", "-m", _SERVER, order]
            started = subprocess.run(
                command,
                stdin=listener.fileno(),
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                check=False,
            )
            status = started.returncode
    if status:
        raise EngineError(
            f"the engine has ended with status {status} before it could listen, perhaps for lack "
            f"of memory; {request.log.absolute()} may say why; run again"
        )


def _answers(connection: socket.socket, message: bytes) -> list[dict[str, Any]]:
    """Return what an engine says to a message.

    Raises:
        OSError: it is silent for too long, or has hung up.
    """
    connection.settimeout(_SECONDS_TO_STOP)
    connection.sendall(message)
    return [*_messages(connection)]


def _messages(connection: socket.socket) -> Iterator[dict[str, Any]]:
    with connection.makefile("rb") as stream:
        while (line := stream.readline(LINE_LIMIT)).endswith(b"\n"):
            yield json.loads(line)


def _ask(connection: socket.socket, request: JobRequest, what: str) -> bool:
    """Ask, and wait for the last word, with progress; return False if the engine was leaving.

    `what` says in words what is done.
    """
    heard = False
    begun = time.monotonic()
    reports = Reports(begun)
    silence = contextlib.ExitStack()
    silence.enter_context(told(f"{what}: loading the model"))
    with silence, connection, contextlib.suppress(ConnectionError):
        # An engine that cannot begin gives its last word before it is asked, and hangs up.
        with contextlib.suppress(ConnectionError):
            connection.sendall(request.message())
        for said in _messages(connection):
            heard = True
            if "error" in said:
                raise EngineError(said["error"])
            now = time.monotonic()
            if "complete" in said:
                count = said["complete"]
                _LOG.debug("%s: %d answers, %.1f s", request.variant, count, now - begun)
                return True
            if not (said["seconds"] or said.get("waits")):
                continue  # the model is loaded, and no answer is begun
            silence.close()
            if reports.due(now, said):
                words = progress(**said, **reports.first)  # of all
                _LOG.info("%s: %s", what, words, extra=PASSING)
    if heard:
        raise EngineError(
            f"the engine has died, perhaps for lack of memory; {request.last_words} may say why; "
            f"run again: what it has answered is kept"
        )
    return False
