"""Runs what strangers wrote in a process of its own, which may take so much time and memory.

Templates, tokenizers and configs of models are programs or as good as programs: they may never end,
or fill the memory. Answers of models are graded in processes of their own (`headsweep.grading`),
which go on from one to the next.
"""

import json
import math
import os
import re
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headsweep import errors
from headsweep.errors import HeadsweepError, ModelError, told_of

_MEMORY_MIB = 4096
_WALL = 10  # times the limit of CPU seconds: the machine may be busy
_MEMORY = "memory"
_GRACE = 5  # seconds after which the kernel kills what does not end by a signal


def within_limits(compute: Callable[[], Any], what: str, seconds: float) -> Any:
    """Return what a function returns in a process of its own, as JSON.

    Args:
        compute: the function; what it needs is imported already, and starts no threads.
        what: is read, for the message.
        seconds: of CPU time that it may take. It may take 4 GiB of memory, too.

    Raises:
        HeadsweepError: that of the function; any other of its errors, and a limit that it passed,
            are a ModelError.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        reply: list[Any] = ["ModelError", f"{what} ended its process; use another model"]
        try:
            _confine(seconds)
            reply = ["", compute()]
        except HeadsweepError as error:
            reply = [type(error).__name__, str(error)]
        except MemoryError:
            reply = [_MEMORY, ""]
        except BaseException as error:  # a template may raise anything, `SystemExit`, too
            cause = told_of(error, 200) if isinstance(error, Exception) else type(error).__name__
            reply = ["ModelError", f"{what} cannot be read ({cause}); use another model"]
        try:
            with os.fdopen(writing, "w", encoding="utf-8") as stream:
                json.dump(reply, stream)
            os._exit(0)
        finally:  # whatever happens, this process is not the caller
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8", errors="replace") as stream:
        said = stream.read()
    _, status = os.waitpid(child, 0)
    if not status and said:
        kind, value = json.loads(said)
        if not kind:
            return value
        if kind != _MEMORY:
            raise getattr(errors, kind)(value)
    ended_by = -os.waitstatus_to_exitcode(status)
    if ended_by in (signal.SIGXCPU, signal.SIGALRM):
        raise ModelError(f"{what} takes more than {seconds:.0f} s; use another model")
    raise ModelError(f"{what} takes more than {_MEMORY_MIB} MiB of memory; use another model")


def _confine(seconds: float) -> None:
    """Set the limits of this process, counted from what it has taken."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = math.ceil(used.ru_utime + used.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + _GRACE))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _WALL * seconds)
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (taken,) = re.findall(r"VmSize:\s*(\d+) kB", status)
    most = (int(taken) << 10) + (_MEMORY_MIB << 20)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
