"""Engines that have torch loaded as they start: they take no seconds."""

import io
import logging
import os
import subprocess
import sys

from headsweep.answers import server

_RUN = subprocess.run


def run(command, **options):
    """Do what `subprocess.run` does; an engine is forked."""
    return (fork if command[-1] == server.__name__ else _RUN)(command, **options)


def fork(command, **options):
    """Do what `subprocess.run` does with the command of an engine."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(status))
    try:
        os.setsid()
        os.environ.update(options["env"])
        for name in (None, "headsweep"):
            logging.getLogger(name).handlers.clear()
        logging.getLogger("headsweep").propagate = True
        for stream in (1, 2):
            os.dup2(options["stdout"].fileno(), stream)
        sys.stdin = io.StringIO(options["input"].decode())
        server.main()
    finally:
        os._exit(0)
