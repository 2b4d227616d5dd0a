"""The process that grades: ``python -m headsweep.grading.worker``.

Its arguments are STEP GRADER PRESET CPU_SECONDS WALL_SECONDS MEMORY_MIB.

It loads what the step needs once and forks: the child works; the parent waits for its end and forks
the next, which starts in the same state. Children are numbered from 0. A child ignores its input up
to a line with its number, as what stands before was meant for the child before it; then it takes
batches, each a line of JSON, a list of the step's arguments. Child and parent end with the input.
Replies are lines of JSON: ``["ready"]``, the step is loaded; ``["done", value]`` or ``["failed"]``,
the step raised an error, for each item; ``["ended", cause]``, the child has ended. A child that is
killed may leave half a line, which is no JSON.

The kernel ends a child that exceeds a limit, so that this works inside C code and if the parent has
died: timers of CPU and wall time, whose signals kill by default, a limit on all of a child's CPU
time, and one on address space. The child also exits when its peak of resident memory has passed
the limit, because sympy swallows `MemoryError`.

Answers are text, which no step runs. Should one run all the same, then it cannot do much: an audit
hook ends the child on whatever judging does not need (https://docs.python.org/3/library/audit_events.html),
functions that raise no event are taken away, and no file can grow. Code that reaches the timers
nevertheless is ended by the limit on all CPU time, or by `process`, which waits for replies only so
long.
"""

import gc
import json
import logging
import math
import os
import re
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from headsweep.grading.graders import find_grader, read, read_final

EXIT_MEMORY = 10
EXIT_FORBIDDEN = 11
FROM_OUTSIDE = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGQUIT, signal.SIGTERM)
"""Signals by which people and the kernel end processes; a step's own faults raise others."""

LIBRARIES = ("mpmath", "sympy")
"""The judges' libraries, which import parts of themselves late."""

_ALL_CPU = 10  # times the limit for one item is the limit for all items of a child
_PEAK = re.compile(rb"VmHWM:\s*(\d+) kB")
_setitimer = signal.setitimer  # `_take_away` spares this module

_HARMLESS = {
    "array.__new__",
    "builtins.id",
    "code.__new__",
    "compile",  # sympy's parser
    "exec",
    "marshal.loads",  # modules
    "object.__delattr__",
    "object.__getattr__",
    "object.__setattr__",
    "sys._getframe",  # named tuples and enumerations
    "sys._getframemodulename",
    "sys.unraisablehook",  # an error in a destructor
}
"""Audit events of judging; `_watch` looks at three more: open, os.listdir and import."""

_UNWATCHED = {
    "_multiprocessing": ("SemLock", "sem_unlink"),
    "_posixshmem": ("shm_open", "shm_unlink"),
    "_posixsubprocess": ("fork_exec",),
    "_signal": ("alarm", "pause", "pthread_sigmask", "setitimer", "signal", "sigwait"),
    "_thread": ("start_joinable_thread", "start_new", "start_new_thread"),
    "posix": ("chroot", "mkfifo", "mknod", "setns", "setpgid", "setpgrp", "setsid", "unshare"),
}
"""Functions that act on more than the child's memory, or stop its timers, and raise no event."""


class Limits(NamedTuple):
    """Limits for one item."""

    cpu_seconds: float = 5.0
    wall_seconds: float = 30.0
    memory_mib: int = 512

    @property
    def all_cpu_seconds(self) -> int:
        """The limit for all items of a child, by the end of which another takes its place."""
        return math.ceil(_ALL_CPU * self.cpu_seconds)


def main() -> None:
    """Work on batches until the input ends."""
    step, grader_name, preset, cpu_seconds, wall_seconds, memory_mib = sys.argv[1:]
    limits = Limits(float(cpu_seconds), float(wall_seconds), int(memory_mib))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C
    logging.disable()
    perform = load(step, grader_name, preset)
    gc.freeze()  # the garbage collector can skip the libraries' objects
    gc.set_threshold(50_000)
    _take_away()
    reply = partial(_reply, os.dup(sys.stdout.fileno()))
    reply("ready")
    number = 0
    while child := os.fork():
        _, status, used = os.wait4(child, 0)
        if status == 0:
            return
        number += 1
        try:
            reply("ended", _cause(status, used, limits))
        except BrokenPipeError:
            return
    for line in sys.stdin.buffer:
        if line == f"{number}\n".encode():
            break
    _work(perform, reply, limits)
    os._exit(0)


def load(step: str, grader_name: str, preset: str) -> Callable[..., Any]:
    """Return the function of a step.

    It is ``read`` a text, read a ``final`` answer, or ``judge`` an answer and the gold answer. A
    judge of mathematics has been called once, so that the libraries' lazy imports are done.
    """
    grader = find_grader(grader_name, preset)
    if step == "read":
        return partial(read, grader)
    if step == "final":
        return partial(read_final, grader)
    if grader.equal:
        return grader.equal
    if preset == "default":
        from headsweep.grading.judge import equal
    else:
        from headsweep.grading.prm800k_judge import equal
    equal(r"\frac{1}{2}", "0.25")
    return equal


def _reply(replies: int, *values: object) -> None:
    # What a killed child has left of a line ends here.
    begin = "\n" if values[0] == "ended" else ""
    os.write(replies, f"{begin}{json.dumps(values)}\n".encode())


def _cause(status: int, used: resource.struct_rusage, limits: Limits) -> str:
    """Return why a child has ended, by what the kernel knows of it.

    ``cpu``, ``all cpu``, ``wall`` or ``memory``: by a limit; ``killed``: from outside; ``fault``.
    """
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGPROF:
        return "cpu"
    if code == -signal.SIGALRM:
        return "wall"
    if code == EXIT_MEMORY:
        return "memory"
    if -code not in FROM_OUTSIDE:
        return "fault"
    if used.ru_utime + used.ru_stime > limits.all_cpu_seconds - 0.5:
        return "all cpu"
    return "memory" if used.ru_maxrss > limits.memory_mib * 1024 else "killed"


def _work(perform: Callable[..., Any], reply: Callable[..., None], limits: Limits) -> None:
    """Work on batches within the limits until the input ends."""
    status = os.open("/proc/self/status", os.O_RDONLY)
    _confine(limits)
    for line in sys.stdin.buffer:
        for arguments in json.loads(line):
            _setitimer(signal.ITIMER_PROF, limits.cpu_seconds)
            _setitimer(signal.ITIMER_REAL, limits.wall_seconds)
            values: tuple[object, ...]
            try:
                values = ("done", perform(*arguments))
            except MemoryError:
                os._exit(EXIT_MEMORY)
            except BaseException:  # the step cannot handle the answer; `SystemExit` is one
                values = ("failed",)
            _setitimer(signal.ITIMER_PROF, 0)
            _setitimer(signal.ITIMER_REAL, 0)
            peak = _PEAK.search(os.pread(status, 4096, 0))
            if peak and int(peak[1]) > limits.memory_mib * 1024:
                os._exit(EXIT_MEMORY)
            reply(*values)


def _confine(limits: Limits) -> None:
    """Set the limits, and keep what libraries print out of the replies."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    # Twice the limit, so that the peak shows the excess; sympy would swallow a `MemoryError`.
    resource.setrlimit(resource.RLIMIT_AS, (2 * limits.memory_mib << 20,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (limits.all_cpu_seconds,) * 2)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))  # binds all users but root
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    folders = tuple(f"{folder}/{library}/" for folder in sys.path for library in LIBRARIES)
    sys.addaudithook(partial(_watch, folders))


def _watch(folders: tuple[str, ...], event: str, arguments: tuple[object, ...]) -> None:
    """End the process on an event that judging does not need.

    Modules are read from the libraries' `folders` only.
    """
    if event in _HARMLESS:
        return
    if event == "open":
        path, _, flags = arguments
        allowed = _is_below(path, folders) and flags in (os.O_RDONLY, os.O_RDONLY | os.O_CLOEXEC)
        allowed = allowed and str(path).endswith((".py", ".pyc"))
    elif event == "os.listdir":
        allowed = _is_below(f"{arguments[0]}/", folders)
    elif event == "import":
        module, file, *_ = arguments  # only an extension module in machine code names its file here
        allowed = str(module).partition(".")[0] in LIBRARIES and file is None
    else:
        allowed = False
    if not allowed:
        os._exit(EXIT_FORBIDDEN)


def _is_below(path: object, folders: tuple[str, ...]) -> bool:
    return isinstance(path, str) and path.startswith(folders) and "/../" not in path


def _take_away() -> None:
    """Replace the functions that raise no audit event, wherever modules hold them."""
    taken = set()
    for home, names in _UNWATCHED.items():
        module = sys.modules.get(home)
        if module is not None:
            held = vars(module)
            taken |= {id(held[name]) for name in names if name in held}
    for module in list(sys.modules.values()):
        if module is sys.modules[__name__]:
            continue
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in taken:
                setattr(module, name, _forbidden)


def _forbidden(*_: object, **__: object) -> None:
    os._exit(EXIT_FORBIDDEN)


if __name__ == "__main__":
    main()
