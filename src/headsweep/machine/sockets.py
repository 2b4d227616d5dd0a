"""Abstract Unix sockets, by whose names processes of one user on this machine find each other.

Anybody may take any name: both ends refuse another user. Jobs import this module: it imports next
to nothing.
"""

import os
import socket
import struct

from headsweep.errors import EngineError

_SECONDS_TO_BE_LET_IN = 10.0


def connect(name: str) -> socket.socket | None:
    """Connect to the process that listens at a name; return None if none does.

    Raises:
        EngineError: it is another user's, or lets nobody in.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        _limit(connection, _SECONDS_TO_BE_LET_IN)
        connection.connect(f"\0{name}")
        check_peer(connection)
        _limit(connection, 0)
    except ConnectionRefusedError:
        connection.close()
        return None
    except BlockingIOError:
        connection.close()
        raise EngineError(
            f"the process that listens at {name} lets nobody in: `ss -xlp | grep {name}` shows it; "
            f"end it, or run in another folder"
        ) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _limit(connection: socket.socket, seconds: float) -> None:
    """Let a connection wait so long until its other end takes something; 0: for ever."""
    wait = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)


def check_peer(connection: socket.socket) -> int:
    """Return the id of the process at the other end, as the kernel knows it.

    Of a socket that listens it is the process that has called `listen`. It is 0 if that process is
    in another container, and cannot be seen from here.

    Raises:
        EngineError: it is another user's.
    """
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    process, user, _ = struct.unpack("3i", credentials)
    if user != os.getuid():
        raise EngineError(
            f"the process at this socket is user {user}'s, not yours; have it ended, or "
            f"run in another folder"
        )
    return int(process)
