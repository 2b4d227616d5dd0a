"""The process that judges: ``python -m headsweep.grading.worker PRESET CPU WALL MEMORY``.

It loads the judge once and forks: the child judges; the parent waits for its end and forks the
next, which starts in the same state. Replies are bytes on standard output: ``r``, the judge is
loaded; for each pair ``1`` equal, ``0`` not equal, ``e`` the judge raised an error; ``t``, ``m`` or
``x``, the child was ended by a limit of time, by one of memory, or otherwise.

A child reads standard input up to an empty line, as what stands before was meant for the child
before it; then batches, each a line of JSON, a list of [answer, gold]. Child and parent end with
the input.

The kernel, not the parent, ends a child that exceeds a limit, so that this works inside C code and
if the parent has died: timers of CPU and wall time, whose signals kill by default, and a limit on
address space. The child also exits when its peak of resident memory has passed the limit, because
sympy swallows `MemoryError`. An audit hook ends it on any access to files, network or processes,
except for imports.
"""

import gc
import json
import logging
import os
import re
import resource
import signal
import sys

from headsweep.grading.graders import Judge

EXIT_MEMORY = 10
EXIT_FORBIDDEN = 11

_CAUSES = {
    -signal.SIGPROF: b"t",
    -signal.SIGALRM: b"t",
    EXIT_MEMORY: b"m",
    -signal.SIGKILL: b"m",  # by the kernel when memory runs out
}
_PEAK = re.compile(rb"VmHWM:\s*(\d+) kB")
_IMPORTABLE = (".py", ".pyc", ".so")
_FORBIDDEN = (
    *("ctypes.", "fcntl.", "ftplib.", "glob.", "http.", "mmap.", "os.", "pty.", "shutil."),
    *("smtplib.", "socket.", "sqlite3.", "subprocess.", "tempfile.", "urllib."),
)
_LISTINGS = ("os.listdir", "os.scandir")  # the import system lists folders


def main() -> None:
    """Judge batches until the input ends."""
    preset, cpu_seconds, wall_seconds, memory_mib = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C
    logging.disable()
    if preset == "default":
        from headsweep.grading.math_verify_judge import equal
    else:
        from headsweep.grading.prm800k_judge import equal
    equal(r"\frac{1}{2}", "0.25")  # so that the libraries' lazy imports are done
    gc.freeze()  # the garbage collector can skip the libraries' objects
    gc.set_threshold(50_000)
    replies = os.dup(sys.stdout.fileno())
    os.write(replies, b"r")
    while child := os.fork():
        _, status = os.waitpid(child, 0)
        if status == 0:
            return
        try:
            os.write(replies, _CAUSES.get(os.waitstatus_to_exitcode(status), b"x"))
        except BrokenPipeError:
            return
    for line in sys.stdin.buffer:
        if line == b"\n":
            break
    _judge(equal, replies, float(cpu_seconds), float(wall_seconds), int(memory_mib))
    os._exit(0)


def _judge(
    judge: Judge, replies: int, cpu_seconds: float, wall_seconds: float, memory_mib: int
) -> None:
    """Judge batches within the limits until the input ends."""
    status = os.open("/proc/self/status", os.O_RDONLY)
    _confine(memory_mib)
    for line in sys.stdin.buffer:
        for answer, gold in json.loads(line):
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
            signal.setitimer(signal.ITIMER_REAL, wall_seconds)
            try:
                reply = b"1" if judge(answer, gold) else b"0"
            except MemoryError:
                os._exit(EXIT_MEMORY)
            except Exception:  # the judge cannot handle the answer
                reply = b"e"
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            peak = _PEAK.search(os.pread(status, 4096, 0))
            if peak and int(peak[1]) > memory_mib * 1024:
                os._exit(EXIT_MEMORY)
            os.write(replies, reply)


def _confine(memory_mib: int) -> None:
    """Set the limits, and keep what libraries print out of the replies."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    # Twice the limit, so that the peak shows the excess; sympy would swallow a `MemoryError`.
    resource.setrlimit(resource.RLIMIT_AS, (2 * memory_mib << 20,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(_watch)


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open":
        allowed = arguments[1] in ("r", "rb", None) and str(arguments[0]).endswith(_IMPORTABLE)
    else:
        allowed = event in _LISTINGS or not event.startswith(_FORBIDDEN)
    if not allowed:
        os._exit(EXIT_FORBIDDEN)


if __name__ == "__main__":
    main()
