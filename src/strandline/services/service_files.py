"""Store the state of a service between commands: a small JSON file in its folder, and a lock."""

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
    """The version and ports of the last run, and the process unless it was stopped."""

    name: str
    version: str
    ports: tuple[int, ...]
    process: Process | None


def read(folder: Path) -> Record | None:
    """Read the record; None if there is none or it is unreadable, and then no process is ever signalled."""
    try:
        return _record(json.loads((folder / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _record(fields: dict[str, Any]) -> Record | None:
    if fields["format"] != FORMAT:
        return None
    process = Process(int(fields["pid"]), str(fields["birth"])) if fields["pid"] is not None else None
    return Record(str(fields["name"]), str(fields["version"]), tuple(int(port) for port in fields["ports"]), process)


def write(folder: Path, record: Record) -> None:
    """Write a temporary file, then rename it: a reader sees the old record or the new one."""
    process = record.process
    fields = {
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
        json.dump(fields, file, indent=2)
        file.write("\n")
    Path(aside).replace(folder / FILE)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a lock: one start or stop at a time; a second one waits for the first."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
