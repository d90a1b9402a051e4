"""Serve the registry over HTTP: `python -m strandline.services.registry_server PORT FILE`, on this machine only.

A page in a browser can send requests to this machine too, but it cannot hide its origin. A request that names another
host, or that was sent for a page of another origin, is refused.
"""

import json
import re
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from strandline.formats.compatibility import check
from strandline.services.loopback import HOST
from strandline.services.registry_api import Api
from strandline.services.registry_store import Store

LARGEST_BODY: Final = 1024 * 1024
CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"

MOST_CONNECTIONS: Final = 64
"""Connections at a time, each of which takes a thread."""

_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_OURS: Final = frozenset({HOST, "localhost"})


class Handler(BaseHTTPRequestHandler):
    """Reads a request, calls the Api, and writes the answer."""

    protocol_version = "HTTP/1.1"
    server_version = "strandline-registry"
    sys_version = ""
    timeout = 10
    # Send headers and body in one packet: sent apart, the second would wait until the first is acknowledged.
    wbufsize = -1

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if self._is_foreign():
            self._refuse(403, "this registry serves programs on its own machine only")
        elif self.headers.get("Transfer-Encoding") or not _LENGTH.fullmatch(length):
            self._refuse(411, "Content-Length is missing")
        elif int(length) > LARGEST_BODY:
            self._refuse(413, f"the body is larger than {LARGEST_BODY} bytes")
        else:
            body = self.rfile.read(int(length))
            with self.server.busy(self.connection):  # type: ignore[attr-defined]
                answer = self.server_api.answer(self.command, self.path, body)
            self._respond(*answer)

    @property
    def server_api(self) -> Api:
        return self.server.api  # type: ignore[attr-defined, no-any-return]

    def _is_foreign(self) -> bool:
        origin = self.headers.get("Origin")
        hosts = [self.headers.get("Host", ""), *([urlsplit(origin).netloc] if origin is not None else [])]
        return any(host.rpartition(":")[0] not in _OURS and host not in _OURS for host in hosts)

    def _refuse(self, status: int, message: str) -> None:
        self.close_connection = True
        self._respond(status, {"error_code": status, "message": message})

    def _respond(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the parameter name of the standard library
        # Quote what a client sent, so that no request can forge a log line.
        print(self.log_date_time_string(), repr(format % args), flush=True)


class Server(ThreadingHTTPServer):
    """One registry on one port. If too many connections are open, the oldest that waits for a request is closed."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, api: Api) -> None:
        super().__init__((HOST, port), Handler)
        self.api = api
        self._lock = threading.Lock()
        self._open: dict[Any, bool] = {}
        """The open connections, oldest first, and whether each has its request answered now."""

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= MOST_CONNECTIONS:
                oldest = next((each for each, busy in self._open.items() if not busy), None)
                if oldest is None:
                    super().shutdown_request(request)
                    return
                del self._open[oldest]
                with suppress(OSError):  # its thread ends, and closes it
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[request] = False
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    @contextmanager
    def busy(self, connection: Any) -> Iterator[None]:
        """Keep a connection open while its request is answered."""
        with self._lock:
            self._open[connection] = True
        try:
            yield
        finally:
            with self._lock:
                self._open[connection] = False


def main(arguments: Sequence[str]) -> None:
    port, file = arguments
    store = Store(Path(file))
    with Server(int(port), Api(store, check)) as server:
        print(f"schemas are stored in {file}; listening on {HOST}:{port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
