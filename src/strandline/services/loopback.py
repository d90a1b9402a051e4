"""Find free ports on 127.0.0.1, and exchange messages with local servers."""

import secrets
import socket
import time
from typing import Final

from strandline.errors import SetupError

HOST: Final = "127.0.0.1"
FIRST, LAST = 20_000, 32_000

_ANSWER_WITHIN_SECONDS: Final = 1.0
_CLOSED_WITHIN_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.02
_TRIES: Final = 200


def free_ports(count: int) -> list[int]:
    """Choose distinct free ports.

    They are below the system's range for outgoing connections. A port in that range could be taken by any client while
    its server is down, even by one that tries to reach that server, and the server could not restart.
    """
    found: set[int] = set()
    for _ in range(_TRIES):
        port = FIRST + secrets.randbelow(LAST - FIRST + 1)
        if is_free(port):
            found.add(port)
        if len(found) == count:
            return sorted(found)
    raise SetupError("no port of 127.0.0.1 can be opened", detail=f"tried {_TRIES} between {FIRST} and {LAST}")


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now; closing connections of a server that just ended do not count."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True


def is_free_soon(port: int) -> bool:
    """Whether a server can return to its port: the system may need a moment to close the old connections."""
    give_up = time.monotonic() + _CLOSED_WITHIN_SECONDS
    while not is_free(port):
        if time.monotonic() > give_up:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def exchange(port: int, message: bytes, length: int) -> bytes:
    """Send a message and return the first bytes of the answer; empty if there is no answer in time."""
    try:
        with socket.create_connection((HOST, port), timeout=_ANSWER_WITHIN_SECONDS) as connection:
            connection.sendall(message)
            return connection.recv(length, socket.MSG_WAITALL)
    except OSError:
        return b""
