"""Commands whose imports are done, for mini-runs: a server forks each `snakemake` and `headsweep`.

Most of a small job is the import of torch and pandas. A folder with a Python of its own holds both
commands. Each hands arguments, environment, folder and streams to the server, and takes the status.
"""

import atexit
import contextlib
import ctypes
import importlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path

_COMMAND = """\
#!{python} -ISs
import json, os, socket, sys
said = {{"arguments": sys.argv, "environment": dict(os.environ), "folder": os.getcwd()}}
message = json.dumps(said).encode()
with socket.socket(socket.AF_UNIX) as server:
    server.connect("{address}")
    socket.send_fds(server, [len(message).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(message)
    status = server.recv(1)
sys.exit(status[0] if status else 1)
"""
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl


@cache
def commands():
    """Return a folder with the commands, whose server ends with this process.

    A Python lies beside them, in an environment like this one: where the workflow's jobs look for
    `headsweep`.
    """
    place = Path(tempfile.mkdtemp(prefix="warm-", dir="/tmp"))  # a socket's address is short
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    folder, address = place / "bin", place / "socket"
    folder.mkdir()
    for name in ("pyvenv.cfg", "lib"):
        (place / name).symlink_to(Path(sys.prefix) / name)
    (folder / "python").symlink_to(sys.executable)
    for name in ("snakemake", "headsweep"):
        command = folder / name
        command.write_text(_COMMAND.format(python=sys.executable, address=address))
        command.chmod(0o755)
    server = subprocess.Popen(
        [folder / "python", __file__, address],
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
    )
    atexit.register(server.kill)
    assert server.stdout.read(1) == b"+"
    return folder


def _serve(address):
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    jobs = Path(importlib.import_module("headsweep.workflow.jobs").__file__).read_text("utf-8")
    for package, name in re.findall(
        r"^ +from (headsweep(?:\.\w+)*) import (\w+)$", jobs, re.MULTILINE
    ):
        importlib.import_module(package)
        with contextlib.suppress(ModuleNotFoundError):  # the name is a function's
            importlib.import_module(f"{package}.{name}")
    importlib.import_module("snakemake.cli")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        os.write(1, b"+")
        while True:
            connection, _ = listener.accept()
            if not os.fork():
                listener.close()
                _work(connection)
            connection.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _work(connection):
    """Do what a command asks for in this process, and leave."""
    status = 1
    try:
        length, streams, _, _ = socket.recv_fds(connection, 4, 3)
        said = json.loads(connection.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL))
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(said["folder"])
        os.environ.clear()
        os.environ.update(said["environment"])
        sys.argv = said["arguments"]

        import snakemake.cli
        import torch

        import headsweep.cli.main

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        program = Path(sys.argv[0]).name
        status = {"snakemake": snakemake.cli.main, "headsweep": headsweep.cli.main.main}[program]()
    except SystemExit as left:
        status = int(left.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        with contextlib.suppress(OSError):
            connection.sendall(bytes([status]))
        os._exit(status)


if __name__ == "__main__":
    _serve(sys.argv[1])
