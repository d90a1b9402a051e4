"""Send one HTTP request with limits on time and size; redirects to other hosts are refused."""

import http.client
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

LARGEST: Final = 8 * 2**20
_CHUNK: Final = 64 * 1024
_HOPS: Final = 3
_MOVED: Final = frozenset({301, 302, 303, 307, 308})
_PORTS: Final = {"http": 80, "https": 443}


class ForeignRedirect(Exception):
    """Raised when the answer redirects to another host, or in a circle."""


class InvalidHeader(Exception):
    """Raised when a header cannot be sent. The message has its name, never its value, which may be a secret."""


class TooLarge(Exception):
    """Raised when the answer is larger than any valid one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The server's answer."""

    status: int
    body: bytes
    retry_after: float | None = None


def send_request(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, seconds: float, ca: str | None = None
) -> Answer:
    """Send a request; follow redirects only to the same scheme, host and port, since headers may hold a password."""
    _check_headers(headers)
    origin = _origin(urlsplit(url))
    until = time.monotonic() + seconds
    for _ in range(_HOPS):
        answer, location = _once(method, urlsplit(url), headers, body, until, ca)
        if answer.status not in _MOVED or location is None:
            return answer
        try:
            url = urljoin(url, location)
            there = _origin(urlsplit(url))
        except ValueError:
            raise ForeignRedirect("a redirect that cannot be read") from None
        if there != origin:
            raise ForeignRedirect(f"a redirect to {there[0]}://{there[1]}")
    raise ForeignRedirect("redirects without an end")


def _check_headers(headers: Mapping[str, str]) -> None:
    """Refuse what `http.client` refuses with the value in its message."""
    for name, value in headers.items():
        if not value.isprintable() or not _is_latin(value):
            raise InvalidHeader(f"the header {name} has a line break, or a character outside Latin-1")


def _is_latin(value: str) -> bool:
    try:
        return bool(value.encode("latin-1")) or True
    except UnicodeEncodeError:
        return False


def _once(
    method: str, url: SplitResult, headers: Mapping[str, str], body: bytes | None, until: float, ca: str | None
) -> tuple[Answer, str | None]:
    connection = _connection(url, _remaining(until), ca)
    try:
        path = url.path + (f"?{url.query}" if url.query else "")
        connection.request(method, path or "/", body, dict(headers))
        response = connection.getresponse()
        content = _body(response, until)
        return Answer(response.status, content, _pause(response)), response.getheader("Location")
    finally:
        connection.close()


def _body(response: http.client.HTTPResponse, until: float) -> bytes:
    """Read in chunks and check the deadline: a server that sends a byte a second never exceeds a socket timeout."""
    parts, size = [], 0
    while part := response.read1(_CHUNK):
        size += len(part)
        if size > LARGEST:
            raise TooLarge(f"more than {LARGEST} bytes")
        parts.append(part)
        _remaining(until)
    return b"".join(parts)


def _remaining(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left


def _connection(url: SplitResult, seconds: float, ca: str | None) -> http.client.HTTPConnection:
    host = url.hostname or ""
    if url.scheme == "https":
        return http.client.HTTPSConnection(
            host, url.port, timeout=seconds, context=ssl.create_default_context(cafile=ca)
        )
    return http.client.HTTPConnection(host, url.port, timeout=seconds)


def _origin(url: SplitResult) -> tuple[str, str | None, int | None]:
    return url.scheme, url.hostname, url.port or _PORTS.get(url.scheme)


def _pause(response: http.client.HTTPResponse) -> float | None:
    value = response.getheader("Retry-After") or ""
    return float(value) if value.isdecimal() else None
