"""The Valkey server, through its usual client."""

import platform

import pytest
import valkey as client

from strandline.errors import SetupError
from strandline.services import valkey as module
from strandline.services.service import Service
from strandline.services.valkey import Valkey, program

pytestmark = pytest.mark.services


def test_it_is_a_real_valkey(valkey: Service) -> None:
    with client.Valkey.from_url(valkey.address) as opened:
        assert opened.info("server")["valkey_version"] == Valkey().version
        assert opened.eval("return 1 + 3", 0) == 4


def test_acknowledged_writes_survive_a_stop_and_a_kill(valkey: Service) -> None:
    address = valkey.address
    for number, end in enumerate((valkey.stop, valkey.kill), 1):
        with client.Valkey.from_url(address) as opened:
            opened.rpush("kept", number)
        assert end()
        assert valkey.start()
        assert valkey.address == address
    with client.Valkey.from_url(address) as opened:
        assert opened.lrange("kept", 0, -1) == [b"1", b"2"]
        opened.delete("kept")


def test_without_the_wheel_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WHEEL", "there_is_no_such_wheel")
    with pytest.raises(SetupError, match="there is no Valkey server.*strandline\\[services\\]"):
        program()


def test_a_machine_without_a_server_binary_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "abacus")
    with pytest.raises(SetupError, match="has no server for this machine"):
        program()


def test_damaged_data_are_reported_with_a_hint() -> None:
    assert "--wipe" in (Valkey().hint("Bad file format reading the append only file: make a backup") or "")
    assert Valkey().hint("Ready to accept connections") is None
