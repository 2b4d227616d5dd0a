"""`snakemake` for mini-runs, with its imports and those of its jobs done: a server forks them.

It is the server that local runs begin for their jobs (`headsweep.machine.fork_server`), with
Snakemake imported, too. Their jobs find it in the environment and begin none. It also forks
modules of this folder, and commands of other processes of a test.

    python warm.py MODULE ARGUMENTS   # calls MODULE.main
"""

import os
import socket
import sys
from functools import cache
from pathlib import Path

from headsweep.machine import fork_server

COMMAND = sys.executable, __file__
"""What a module and its arguments follow, in the environment below."""
SNAKEMAKE = (sys.executable, __file__, "snakemake.cli")


def environment():
    """Return the environment of a command: this process's, with the server of its own."""
    return {**os.environ, "OMP_NUM_THREADS": "1", fork_server.ADDRESS: _address()}


def begin():
    """Begin a server with the environment of this moment, and return its address."""
    fork_server.begin(__file__, "serve")
    return os.environ.pop(fork_server.ADDRESS)  # cold runs begin their own


_address = cache(begin)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        import snakemake.cli  # noqa: F401

        sys.path.append(str(Path(__file__).parent))
        fork_server.serve(socket.socket(fileno=int(sys.argv[2])))
    else:
        module, *arguments = sys.argv[1:]
        name = module.partition(".")[0]
        sys.exit(fork_server.ask(module, [name, *arguments], {**os.environ}))
