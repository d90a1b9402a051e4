"""Run Strandline's own schema registry: a small server on one SQLite file, with the Confluent REST API."""

import http.client
import signal
import sys
from importlib.metadata import version as installed_version
from typing import Final

from strandline.services.loopback import HOST
from strandline.services.service import Place, Say


class Registry:
    """The registry as a program of `strandline up`."""

    name: Final = "registry"
    ports_needed: Final = 1
    stop_signal: Final = signal.SIGTERM

    @property
    def version(self) -> str:
        return installed_version("strandline")

    def prepare(self, place: Place, say: Say) -> None:  # noqa: ARG002 - nothing to fetch
        place.data.mkdir(mode=0o700, exist_ok=True)

    def account(self) -> list[str]:
        return []

    def command(self, place: Place) -> list[str]:
        file = place.data / "registry.sqlite"
        return [sys.executable, "-m", "strandline.services.registry_server", str(place.port), str(file)]

    def answers(self, place: Place) -> bool:
        connection = http.client.HTTPConnection(HOST, place.port, timeout=1)
        try:
            connection.request("GET", "/schemas/types")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def address(self, port: int) -> str:
        return f"http://{HOST}:{port}"

    def hint(self, text: str) -> str | None:  # noqa: ARG002 - no specific hints
        return None
