"""What is known of a service between two commands: a small JSON file in its folder, and a lock beside it."""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from strandline.services.processes import Process

FILE: Final = "service.json"
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Record:
    """Which version ran on which ports, and the process, if it was not stopped."""

    name: str
    version: str
    ports: tuple[int, ...]
    process: Process | None


def read(folder: Path) -> Record | None:
    """The record; None when there is none that can be read: then nothing is known, and nothing will be signalled."""
    try:
        return _record(json.loads((folder / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _record(told: dict[str, Any]) -> Record | None:
    if told["format"] != FORMAT:
        return None
    process = Process(int(told["pid"]), str(told["birth"])) if told["pid"] is not None else None
    return Record(str(told["name"]), str(told["version"]), tuple(int(port) for port in told["ports"]), process)


def write(folder: Path, record: Record) -> None:
    """Written aside, then renamed: a reader sees the old record or the new one."""
    process = record.process
    told = {
        "format": FORMAT,
        "name": record.name,
        "version": record.version,
        "ports": list(record.ports),
        "pid": None if process is None else process.pid,
        "birth": None if process is None else process.birth,
        "data": str(folder / "data"),
    }
    handle, aside = tempfile.mkstemp(dir=folder, prefix=f".{FILE}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(told, file, indent=2)
        file.write("\n")
    Path(aside).replace(folder / FILE)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """One start or stop at a time; a second one waits for the first."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
