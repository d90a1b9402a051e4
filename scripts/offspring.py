"""Find all processes that a command started, even detached ones, by a mark in their environment.

A process keeps the environment it was started with, also in a session of its own and after its parent has died.
Without /proc no process is found. Uses only the standard library.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARK = "STRANDLINE_STARTED_BY"
_PROCESSES = Path("/proc")
_MAX_WORDS, _MAX_LENGTH = 6, 160


@dataclass(frozen=True, slots=True)
class Process:
    """A living process: its number, its parent's number and its command line."""

    number: int
    parent: int
    command: str

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.number, number)


def offspring(mark: str) -> list[Process]:
    """Return the living processes started with the mark, except this one."""
    wanted = f"{MARK}={mark}".encode()
    return [each for each, environment in _living() if wanted in environment and each.number != os.getpid()]


def _living() -> Iterator[tuple[Process, list[bytes]]]:
    if not _PROCESSES.is_dir():
        return
    for folder in _PROCESSES.iterdir():
        if folder.name.isdigit():
            # The process may end, or belong to another user.
            with suppress(OSError):
                state, parent, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
                if state not in "ZX":
                    words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    command = " ".join(words[:_MAX_WORDS]).strip()[:_MAX_LENGTH]
                    environment = (folder / "environ").read_bytes().split(b"\0")
                    yield Process(int(folder.name), int(parent), command), environment
