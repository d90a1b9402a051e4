"""Connections that ask nothing cost a dashboard little, and shut out nobody, before it knows who asks."""

import http.client
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.dashboard import bounded_connections
from strandline.dashboard.server import Dashboard, Options


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[Dashboard]:
    with Dashboard(list, Options(port=0, home=tmp_path)) as shown:
        yield shown


def status(dashboard: Dashboard) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", dashboard.port, timeout=20)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    finally:
        connection.close()


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(20)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_six_hundred_idle_connections_shut_out_no_browser(dashboard: Dashboard) -> None:
    idle = [socket.create_connection(("127.0.0.1", dashboard.port)) for _ in range(600)]
    try:
        assert [status(dashboard) for _ in range(3)] == [401] * 3
        assert is_closed(idle[0])
    finally:
        for each in idle:
            each.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: "], ids=["nothing", "a part"])
def test_a_request_that_does_not_arrive_is_not_waited_for(
    sent: bytes, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_connections, "REQUEST_WITHIN_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", dashboard.port)) as slow:
        slow.sendall(sent)
        before = time.monotonic()
        assert is_closed(slow)
        assert time.monotonic() - before < 15


def test_a_connection_is_used_for_several_requests(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_connections, "REQUEST_WITHIN_SECONDS", 0.3)
    connection = http.client.HTTPConnection("127.0.0.1", dashboard.port, timeout=20)
    for _ in range(2):
        connection.request("GET", "/")
        answer = connection.getresponse()
        assert (answer.status, answer.read() != b"") == (401, True)
        time.sleep(0.5)  # beyond the deadline of the first request
    connection.close()
