"""A quickly starting program with configurable behaviour, for tests of a service's life cycle."""

import signal
import sys
from dataclasses import dataclass

from strandline.services.loopback import exchange
from strandline.services.service import Place, Say

ECHO = """
import signal, socket, sys, pathlib
port, file, stubborn = int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3] == "True"
signal.signal(signal.SIGTERM, signal.SIG_IGN if stubborn else signal.SIG_DFL)
file.write_text(str(int(file.read_text()) + 1) if file.exists() else "1")
listener = socket.create_server(("127.0.0.1", port))
print("listening", flush=True)
while True:
    connection, _ = listener.accept()
    with connection:
        connection.sendall(connection.recv(4))
"""


@dataclass(frozen=True, slots=True)
class Echo:
    """Echo input, and count starts in a file; may refuse to end, to start, or to answer."""

    script: str = ECHO
    stubborn: bool = False
    name: str = "echo"
    version: str = "1.0"
    ports_needed: int = 1
    stop_signal: signal.Signals = signal.SIGTERM

    def prepare(self, place: Place, say: Say) -> None:
        say("preparing")
        place.data.mkdir(exist_ok=True)

    def account(self) -> list[str]:
        return []

    def command(self, place: Place) -> list[str]:
        words = [str(place.port), str(place.data / "starts"), str(self.stubborn)]
        return [sys.executable, "-c", self.script, *words]

    def answers(self, place: Place) -> bool:
        return exchange(place.port, b"ping", 4) == b"ping"

    def address(self, port: int) -> str:
        return f"echo://127.0.0.1:{port}"

    def hint(self, message: str) -> str | None:
        return "feed it" if "hungry" in message else None
