"""A process that has done the imports of a run's jobs, for those on this machine to fork from.

The import of torch, transformers and pandas is most of a small job. A run begins such a process
once; `headsweep job` hands it its words, its environment, its folder and its streams, and ends as
the fork ends. A job that starts an engine has it forked, too. Where none listens, as on a cluster
or in a container, jobs and engines import for themselves. The process leaves with Snakemake; forks
that are at work then end what they do, as jobs do.

Both ends refuse another user (see `sockets`). Jobs import this module: it imports next to nothing.
"""

import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headsweep.errors import EngineError
from headsweep.machine import libraries, sockets
from headsweep.machine.host import name_process

if TYPE_CHECKING:
    from subprocess import Popen

ADDRESS = "HEADSWEEP_FORK_SERVER"
"""Names the socket in the environment of a run's jobs."""

_BEGUN = b"+"  # what a fork says first, and who asks when a terminal may interrupt the fork
_BACKLOG = 1024  # jobs that may call before the imports are done

_begun: "list[Popen[bytes]]" = []
"""Kept, because a server leaves when its standard input is closed: with the process of the run."""
_is_fork = False  # of a server, is this process


def begin(*program: str) -> None:
    """Begin a server for the jobs that this process starts from now on, if they have none.

    The program, by default this module, calls `serve`; its last argument is the socket's number.
    """
    if ADDRESS in os.environ:
        return
    import subprocess

    name = f"headsweep-jobs-{os.urandom(8).hex()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen(_BACKLOG)
        # The server is told nothing of an interrupt, from its start on.
        at_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            server = subprocess.Popen(
                [sys.executable, "-P", *(program or ("-m", __name__)), str(listener.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                env={**os.environ, **of_threads(1)},
            )
        finally:
            signal.signal(signal.SIGINT, at_interrupt)
    _begun.append(server)
    os.environ[ADDRESS] = name


def of_threads(count: int) -> dict[str, str]:
    """Return the environment of a process that forks, with so many threads.

    Snakemake states the threads of a job. With more than one, what is forked after a computation
    may hang.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {
        **dict.fromkeys(names, str(count)),
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # counting GPUs leaves a process fit to fork
        "TOKENIZERS_PARALLELISM": "false",
    }


def run_in_fork(words: Sequence[str]) -> int | None:
    """Return the exit status of `headsweep` with these words in a fork.

    None where no server listens, and in a fork, which does its work itself.

    Raises:
        EngineError: the fork was killed.
    """
    if _is_fork:
        return None
    status = ask("headsweep.cli.main", [sys.argv[0], *words], os.environ)
    if status == -signal.SIGKILL:
        raise EngineError("the job's process was killed, perhaps for lack of memory; run again")
    return status


def ask(
    module: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    streams: Sequence[int] = (0, 1, 2),
    *,
    aside: bool = False,
) -> int | None:
    """Return the exit status of a module's `main` in a fork, with `sys.argv`; None without server.

    The descriptors become the fork's standard input, output and error. An interrupt is the fork's,
    unless the fork is `aside`: then it stays with this process. A fork that ends without a word, as
    it does if it is killed, has minus SIGKILL for its status.
    """
    if (name := os.environ.get(ADDRESS)) is None:
        return None
    said = {
        "module": module,
        "arguments": arguments,
        "environment": dict(environment),
        "folder": str(Path.cwd()),
        "ignores_interrupts": aside or signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
    }
    message = json.dumps(said).encode() + b"\n"
    with contextlib.ExitStack() as stack:
        try:
            if (connection := sockets.connect(name)) is None:
                return None
            stack.enter_context(connection)
            socket.send_fds(connection, [b"\n"], streams)
            connection.sendall(message)
        except (OSError, EngineError):  # the server has left; or a stream is closed
            return None
        if _heard(connection) != _BEGUN:  # the server has died, or the fork before it began
            return None
        if not aside:  # from now on a terminal interrupts the fork, too, which tells how it ends
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        with contextlib.suppress(OSError):  # the fork has been killed
            connection.sendall(_BEGUN)
        status = _heard(connection)
    return status[0] if status else -signal.SIGKILL


def _heard(connection: socket.socket) -> bytes:
    """Return the next byte of a fork; none if it has ended."""
    try:
        return connection.recv(1)
    except ConnectionError:
        return b""


def serve(listener: socket.socket) -> None:
    """Import what jobs do; fork for each that calls, until standard input is closed."""
    import gc
    import select

    name_process("headsweep-jobs")
    libraries.prepare_command()  # as `headsweep job` does before it imports
    libraries.prepare_job(online=False)
    gc.disable()  # imports leave no garbage
    _import_all()
    os.register_at_fork(after_in_child=_renew_threads)
    gc.freeze()  # a collection in a fork would copy what it looks at
    gc.enable()
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        try:
            sockets.check_peer(connection)
        except EngineError:
            connection.close()
            continue
        if not os.fork():
            listener.close()
            _work(connection)
        connection.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _work(connection: socket.socket) -> None:
    """Do what a job asks for in this process, and leave."""
    import importlib
    import select
    import traceback

    global _is_fork
    _is_fork = True
    status = 1
    try:
        _, streams, _, _ = socket.recv_fds(connection, 1, 3)
        with connection.makefile("rb") as stream:
            line = stream.readline()
        if not line:  # the job has ended
            return
        said = json.loads(line)
        if not said["ignores_interrupts"]:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        os.register_at_fork(after_in_child=connection.close)  # or its end would not be heard of
        if not _may_begin(connection):
            return
        # The job's end is the end of this process: that is what the signal of a hang-up does.
        fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(connection, fcntl.F_SETFL, os.O_ASYNC)
        if select.select([connection], [], [], 0)[0]:  # it has ended just now
            return
        _take_streams(streams)
        os.chdir(said["folder"])
        os.environ.clear()
        os.environ.update(said["environment"])
        sys.argv = said["arguments"]
        _take_threads()
        status = int(importlib.import_module(said["module"]).main() or 0)
    except SystemExit as left:
        status = int(left.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        for written in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                written.flush()
        with contextlib.suppress(OSError):
            connection.sendall(bytes([status]))
        os._exit(status)


def _may_begin(connection: socket.socket) -> bool:
    """Tell whether the job knows that this process begins; until then it may end without it."""
    try:
        connection.sendall(_BEGUN)
        return bool(_heard(connection))
    except (KeyboardInterrupt, OSError):
        return False


def _take_streams(opened: Sequence[int]) -> None:
    """Take these files for standard input, output and error, with nothing kept of the server's."""
    for number, descriptor in enumerate(opened):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(
        2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )


def _take_threads() -> None:
    """Let torch have the threads that the environment states: it read the server's."""
    import torch

    if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdecimal():
        torch.set_num_threads(int(threads))


def _renew_threads() -> None:
    """Make torch's threads anew, which a fork lacks, before any other thread computes.

    Torch leaves that to the first that does. Where several do at once, as those that load a model,
    they fail: "Invalid thread pool!".
    """
    import torch

    torch.set_num_threads(torch.get_num_threads())


def _import_all() -> None:
    """Import every module of the package, and with them what they import when they run.

    One of a library that is not installed, as triton, is left to the job that asks for it.
    """
    import importlib
    import pkgutil

    import headsweep

    for module in pkgutil.walk_packages(headsweep.__path__, "headsweep."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(module.name)


if __name__ == "__main__":
    from headsweep.machine import fork_server  # the module that jobs import, not its copy here

    fork_server.serve(socket.socket(fileno=int(sys.argv[1])))
