"""Proxy between a driver and its service that holds back the request that ends a transaction.

The client may be dead by then; the service does not notice, because its end of the connection stays open.
"""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

PATIENCE: Final = 30
_END_OF_TRANSACTION: Final = 26
"""Kafka's API key of the request."""


class Proxy:
    """Proxy on its own port. While armed, it holds the next request that ends a transaction."""

    def __init__(self, port: int, ends: Callable[[bytes], bool], framed: bool) -> None:
        self._service, self._ends, self._framed = port, ends, framed
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._held: tuple[socket.socket, bytes] | None = None
        self._tell: Path | None = None
        self._cuts = False
        self._answered = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, tell: Path, *, cuts: bool = False) -> None:
        """Arm the proxy; the file is created once a request is held, optionally cutting the client's connection."""
        self._held, self._tell, self._cuts = None, tell, cuts
        self._answered.clear()

    def release(self) -> None:
        """Forward the held request and return once the service has answered."""
        assert self._held is not None
        server, data = self._held
        server.sendall(data)
        if not self._answered.wait(PATIENCE):
            raise TimeoutError("the service has nothing to say about the end of a transaction")

    def drop(self) -> None:
        """Drop the held request and close the service's connection."""
        assert self._held is not None
        _close(self._held[0])

    @property
    def holds(self) -> bool:
        return self._held is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._listener, *self._sockets):
            _close(each)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._service))
                self._sockets += [client, server]
                for act in (self._to_service, self._to_client):
                    threading.Thread(target=act, args=[client, server], daemon=True).start()

    def _to_service(self, client: socket.socket, server: socket.socket) -> None:
        held = False
        with suppress(OSError):
            while data := self._read(client):
                tell = self._tell
                if tell is not None and self._ends(data):
                    self._held, self._tell, held = (server, data), None, True
                    tell.touch()
                    if self._cuts:
                        _close(client)
                elif not held:
                    server.sendall(data)
        if not held:
            _close(server)

    def _to_client(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := self._read(server):
                held = self._held
                if held is not None and held[0] is server:
                    self._answered.set()
                with suppress(OSError):  # the one who asked may be gone
                    client.sendall(self._named(data))
        _close(client)

    def _read(self, from_: socket.socket) -> bytes:
        """Read bytes, or a whole length-prefixed message."""
        if not self._framed:
            return from_.recv(65_536)
        head = _exactly(from_, 4)
        return head + _exactly(from_, struct.unpack(">I", head)[0]) if head else b""

    def _named(self, data: bytes) -> bytes:
        """Replace the broker's advertised port by the proxy's."""
        if not self._framed:
            return data
        own, mine = (b"127.0.0.1" + struct.pack(">I", port) for port in (self._service, self.port))
        return data.replace(own, mine)


def before_postgres(port: int) -> Proxy:
    """Hold back a COMMIT."""
    return Proxy(port, lambda data: b"COMMIT\0" in data, framed=False)


def before_kafka(port: int) -> Proxy:
    """Hold back an EndTxn."""
    return Proxy(port, lambda data: struct.unpack(">H", data[4:6])[0] == _END_OF_TRANSACTION, framed=True)


def _exactly(from_: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = from_.recv(size - len(found))
        if not more:
            return b""
        found += more
    return found


def _close(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
