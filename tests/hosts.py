"""Hosts imitated on one machine: their own name, processes, network and so sockets; one disk."""

import ctypes
import os
import signal
import socket
import sys
import traceback

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS, _NEW_NAME, _NEW_PROCESSES, _NEW_NETWORK = 0x20000, 0x4000000, 0x20000000, 0x40000000
_PRIVATE = 0x4000 | 0x40000  # MS_REC | MS_PRIVATE


class Host:
    """A host that calls a function with some arguments, and ends with all of its processes."""

    def __init__(self, name, function, *arguments, **variables):
        reads, writes = os.pipe()
        self._outer = os.fork()
        if not self._outer:
            os.close(reads)
            _become(name, writes, function, arguments, variables)
        os.close(writes)
        self._status = None
        with os.fdopen(reads) as stream:
            self._first = int(stream.read() or 0)

    def power_off(self):
        """Kill all of its processes, unless they have ended."""
        if self._status is None and self._first:
            os.kill(self._first, signal.SIGKILL)
        self.wait()

    def wait(self):
        """Return the status that the host has ended with."""
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self._outer, 0)[1])
        return self._status


def _become(name, writes, function, arguments, variables):
    """Begin namespaces, and call the function in the first process there; never return."""
    status = 1
    try:
        _unshare(_NEW_MOUNTS | _NEW_NAME | _NEW_PROCESSES | _NEW_NETWORK)
        first = os.fork()  # the first in the namespace: when it ends, so do all others
        if first:
            os.write(writes, str(first).encode())
            os.close(writes)
            status = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
        else:
            os.close(writes)
            socket.sethostname(name)
            _LIBC.mount(b"none", b"/", None, _PRIVATE, None)
            _LIBC.mount(b"proc", b"/proc", b"proc", 0, None)
            os.environ.update(variables)
            function(*arguments)
            status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(abs(status))


def _unshare(flags):
    if _LIBC.unshare(flags):
        raise OSError(ctypes.get_errno(), "unshare")
