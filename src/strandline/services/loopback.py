"""Ports of 127.0.0.1: which are free, and who answers. Nothing here leaves the machine."""

import socket
from contextlib import ExitStack
from typing import Final

HOST: Final = "127.0.0.1"

_ANSWER_WITHIN_SECONDS: Final = 1.0


def free_ports(count: int) -> list[int]:
    """Ports nobody has, each another one."""
    with ExitStack() as held:
        listeners = [held.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind((HOST, 0))
        return [int(listener.getsockname()[1]) for listener in listeners]


def is_free(port: int) -> bool:
    """Whether a server could listen there now; connections of a server that just ended do not count."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True


def exchange(port: int, message: bytes, length: int) -> bytes:
    """Sends a message and returns the first bytes of the answer; nothing if nobody answers in time."""
    try:
        with socket.create_connection((HOST, port), timeout=_ANSWER_WITHIN_SECONDS) as connection:
            connection.sendall(message)
            return connection.recv(length, socket.MSG_WAITALL)
    except OSError:
        return b""
