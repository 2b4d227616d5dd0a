"""What befalls an engine at its n-th answer, however slow the machine is.

Python imports this file as it starts, where its folder is on the path. `HEADSWEEP_TEST_DEATHS` is a
JSON file: by the number of answers that all engines have journaled, what happens then. ``cut``
kills the engine in the midst of writing, ``worker`` kills one of its workers, ``wait`` has all of
them halt, here and in each engine that journals an answer later. Beside it, ``<file>.count`` gets a
byte for each answer.
"""

import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path

_FORKING = {"serve", "headsweep.machine.fork_server"}
"""Engines are forks of what is begun by these words: of a server of tests, and of a run."""

if "HEADSWEEP_TEST_DEATHS" in os.environ and not _FORKING.isdisjoint(sys.orig_argv):
    from headsweep.store import journal

    _moments = Path(os.environ["HEADSWEEP_TEST_DEATHS"])
    _append = journal.append

    def _append_and_die(path, records):
        _append(path, records)
        if not all("stop_reason" in record for record in records):
            return  # of an answer that has begun
        with Path(f"{_moments}.count").open("ab") as stream:
            stream.write(b".")
            stream.flush()
            count = stream.tell()
        moments = json.loads(_moments.read_text())
        what = moments.get(str(count))
        waits = [int(moment) for moment, thing in moments.items() if thing == "wait"]
        if what == "cut":
            written = journal.written_here(path)
            os.truncate(written, written.stat().st_size - 5)
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "worker":
            multiprocessing.active_children()[0].kill()
        elif waits and count >= min(waits):
            for worker in multiprocessing.active_children():
                os.kill(worker.pid, signal.SIGSTOP)

    journal.append = _append_and_die
