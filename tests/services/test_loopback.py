import socket
import threading

import pytest

from strandline.errors import SetupError
from strandline.services import loopback
from strandline.services.loopback import FIRST, HOST, LAST, exchange, free_ports, is_free, is_free_soon


def test_free_ports_are_free_and_distinct() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(FIRST <= port <= LAST and is_free(port) for port in ports)


def test_a_port_with_a_listener_is_not_free() -> None:
    with socket.create_server((HOST, 0)) as listener:
        assert not is_free(listener.getsockname()[1])


def test_a_machine_without_free_ports_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "is_free", lambda _: False)
    with pytest.raises(SetupError, match="no port"):
        free_ports(1)


def test_a_port_without_a_listener_gives_no_answer() -> None:
    assert exchange(free_ports(1)[0], b"ping", 4) == b""


def test_a_port_that_is_closing_is_waited_for() -> None:
    listener = socket.create_server((HOST, free_ports(1)[0]))
    port = listener.getsockname()[1]
    closing = threading.Timer(0.2, listener.close)
    closing.start()
    assert is_free_soon(port)
    closing.join()


def test_waiting_for_a_taken_port_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "_CLOSED_WITHIN_SECONDS", 0.05)
    with socket.create_server((HOST, free_ports(1)[0])) as listener:
        assert not is_free_soon(listener.getsockname()[1])
