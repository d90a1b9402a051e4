"""Start, check, stop and kill a service; a small protocol describes what differs between programs.

Nothing is kept in memory: every Service object for the same folder, in any process, sees the same state.
"""

import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from strandline.errors import ServiceError
from strandline.services.loopback import free_ports, is_free, is_free_soon
from strandline.services.processes import Process, spawn
from strandline.services.service_files import FILE, Record, locked, read, write

Say = Callable[[str], None]

READY_WITHIN_SECONDS: Final = 60.0
STOPPED_WITHIN_SECONDS: Final = 20.0

_POLL_SECONDS: Final = 0.05
_LAST_LINES: Final = 12
_LOG_IS_LARGE: Final = 10 * 1024 * 1024


def quiet(_: str) -> None:
    """Print nothing."""


@dataclass(frozen=True, slots=True)
class Place:
    """The folder and ports of a program; clients use the first port."""

    folder: Path
    ports: tuple[int, ...]

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "service.log"


class Program(Protocol):
    """One kind of service: its command, its preparation, and its readiness check."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def ports_needed(self) -> int: ...

    @property
    def stop_signal(self) -> signal.Signals:
        """The signal that makes it shut down cleanly and soon."""
        ...

    def prepare(self, place: Place, say: Say) -> None:
        """Fetch and set up what is missing; keep what exists."""
        ...

    def account(self) -> list[str]:
        """Command prefix that runs it as another user; usually empty."""
        ...

    def command(self, place: Place) -> list[str]: ...

    def answers(self, place: Place) -> bool:
        """Whether it answers its protocol; an open port is not enough."""
        ...

    def address(self, port: int) -> str:
        """The address for clients."""
        ...

    def hint(self, text: str) -> str | None:
        """What to do about a failed start with this log text; None if the log has no known error."""
        ...


class Standing(StrEnum):
    """State of a service."""

    RUNNING = "running"
    SILENT = "running, but does not answer"
    STOPPED = "stopped"
    DIED = "died"
    ABSENT = "never started"


@dataclass(frozen=True, slots=True)
class Status:
    """Current status of a service."""

    name: str
    standing: Standing
    version: str = ""
    address: str = ""
    pid: int | None = None
    port: int | None = None
    folder: str = ""
    log: str = ""


class Service:
    """One service in one folder. A leashed one dies with the process that started it, where the system supports
    that."""

    def __init__(self, program: Program, folder: Path, *, leashed: bool = False) -> None:
        self._program = program
        self._folder = folder.expanduser().absolute()
        self._leash = _leash() if leashed else []

    def __repr__(self) -> str:
        return f"Service({self.name!r}, {str(self._folder)!r})"

    @property
    def name(self) -> str:
        return self._program.name

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def log(self) -> Path:
        return Place(self._folder, ()).log

    @property
    def port(self) -> int:
        """The current port, or the last one."""
        return self._known().ports[0]

    @property
    def address(self) -> str:
        """The address for clients."""
        return self._program.address(self.port)

    @property
    def pid(self) -> int | None:
        process = self._process()
        return None if process is None else process.pid

    def start(self, port: int | None = None, say: Say = quiet) -> bool:
        """Start it and wait until it is ready; return False if it was running already. The default port is the last
        one, or a free one."""
        _make_folder(self._folder)
        with locked(self._folder):
            known = read(self._folder)
            if known is not None and known.process is not None and known.process.is_alive:
                self._refuse_other_port(known, port)
                return False
            place = Place(self._folder, self._ports(known, port))
            self._program.prepare(place, say)
            _rotate(place.log)
            self._launch(place)
            return True

    def ready(self) -> bool:
        """Whether it runs and answers."""
        known = read(self._folder)
        return self.pid is not None and known is not None and self._program.answers(Place(self._folder, known.ports))

    def stop(self, within: float = STOPPED_WITHIN_SECONDS) -> bool:
        """Stop it cleanly, or by force after a while; return False if it was not running. The data stay."""
        return self._end(self._program.stop_signal, within)

    def kill(self) -> bool:
        """Kill it as a power failure would: no warning, nothing flushed. The data stay as they are."""
        return self._end(signal.SIGKILL, STOPPED_WITHIN_SECONDS)

    def wipe(self) -> None:
        """Delete the folder of a stopped service."""
        if self.pid is not None:
            raise ServiceError(f"{self.name} still runs", hint=f"strandline down {self.name}")
        if (self._folder / FILE).exists():
            shutil.rmtree(self._folder)

    def status(self) -> Status:
        known = read(self._folder)
        if known is None:
            return Status(self.name, Standing.ABSENT, folder=str(self._folder))
        process = known.process
        if process is None:
            standing = Standing.STOPPED
        elif not process.is_alive:
            standing = Standing.DIED
        else:
            answers = self._program.answers(Place(self._folder, known.ports))
            standing = Standing.RUNNING if answers else Standing.SILENT
        running = process is not None and standing in (Standing.RUNNING, Standing.SILENT)
        return Status(
            self.name,
            standing,
            known.version,
            self._program.address(known.ports[0]),
            process.pid if process is not None and running else None,
            known.ports[0],
            str(self._folder),
            str(self.log),
        )

    def lines(self, last: int) -> list[str]:
        """The last lines of its log."""
        return _read_log(self.log).splitlines()[-last:]

    def follow(self, last: int) -> Iterator[str]:
        """Yield the last lines of its log, then new lines until the service ends."""
        with self.log.open(encoding="utf-8", errors="replace") as log:
            lines = log.readlines()
            yield "".join(lines[len(lines) - min(last, len(lines)) :])
            while True:
                alive = self.pid is not None
                if text := log.read():
                    yield text
                elif not alive:
                    return
                else:
                    time.sleep(_POLL_SECONDS)

    def _known(self) -> Record:
        known = read(self._folder)
        if known is None:
            raise ServiceError(f"{self.name} was never started in {self._folder}", hint=f"strandline up {self.name}")
        return known

    def _process(self) -> Process | None:
        known = read(self._folder)
        process = None if known is None else known.process
        return process if process is not None and process.is_alive else None

    def _refuse_other_port(self, known: Record, port: int | None) -> None:
        if port not in (None, known.ports[0]):
            raise ServiceError(
                f"{self.name} already runs on port {known.ports[0]}, so it cannot start on port {port}",
                hint=f"strandline down {self.name}, or use another --home",
            )

    def _ports(self, known: Record | None, port: int | None) -> tuple[int, ...]:
        if port is not None and not is_free(port):
            raise ServiceError(
                f"port {port} is taken, so {self.name} cannot listen there",
                detail="another program listens on it, or this user may not open it",
                hint="use another port, or none to get a free one",
            )
        before = known.ports if known is not None else ()
        kept = before if port is None else (port, *before[1:])
        free = free_ports(self._program.ports_needed)
        return tuple(kept[at] if at < len(kept) and is_free_soon(kept[at]) else free[at] for at in range(len(free)))

    def _launch(self, place: Place) -> None:
        log_start = place.log.stat().st_size if place.log.exists() else 0
        # The leash comes last: a change of user would remove it.
        command = [*self._program.account(), *self._leash, *self._program.command(place)]
        process = spawn(command, place.log, os.environ)
        record = Record(self.name, self._program.version, place.ports, process)
        write(self._folder, record)
        try:
            self._await_ready(place, process, log_start)
        except BaseException:
            process.send(signal.SIGKILL)
            process.is_gone_within(STOPPED_WITHIN_SECONDS)
            write(self._folder, Record(record.name, record.version, record.ports, None))
            raise

    def _await_ready(self, place: Place, process: Process, log_start: int) -> None:
        give_up = time.monotonic() + READY_WITHIN_SECONDS
        while not self._program.answers(place):
            if not process.is_alive:
                raise self._failure(f"{self.name} ended before it was ready", place, log_start)
            if time.monotonic() > give_up:
                message = f"{self.name} was not ready after {READY_WITHIN_SECONDS:.0f} s, so it was stopped"
                raise self._failure(message, place, log_start)
            time.sleep(_POLL_SECONDS)
        if not process.is_alive:
            raise self._failure(f"{self.name} ended, and another program answers on its port", place, log_start)

    def _failure(self, message: str, place: Place, log_start: int) -> ServiceError:
        text = _read_log(place.log, log_start)
        last = "\n    ".join(text.splitlines()[-_LAST_LINES:]) or "nothing"
        hint = self._program.hint(text) or _hint(text) or f"see the log in {place.log}"
        return ServiceError(message, detail=f"last log lines:\n    {last}", hint=hint)

    def _end(self, how: signal.Signals, within: float) -> bool:
        if not self._folder.is_dir():
            return False
        with locked(self._folder):
            known = read(self._folder)
            process = self._process()
            if known is None or process is None:
                return False
            children = process.children()
            process.send(how)
            if not process.is_gone_within(within):
                process.send(signal.SIGKILL)
                process.is_gone_within(STOPPED_WITHIN_SECONDS)
            # Child processes end with it, a moment later; only then its folder is free.
            for child in children:
                child.is_gone_within(STOPPED_WITHIN_SECONDS)
            write(self._folder, Record(known.name, known.version, known.ports, None))
            return True


def _hint(text: str) -> str | None:
    if re.search(r"address already in use", text, re.IGNORECASE):
        return "another program took the port: try again"
    if re.search(r"no space left on device", text, re.IGNORECASE):
        return "the disk is full: free some space, or use another --home"
    if re.search(r"OutOfMemoryError|Cannot allocate memory|insufficient memory", text, re.IGNORECASE):
        return "the machine has too little free memory: close other programs"
    return None


def _leash() -> list[str]:
    program = shutil.which("setpriv")
    return [program, "--pdeathsig", "KILL"] if program else []


def _make_folder(folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ServiceError(
            f"the folder {folder} cannot be created",
            detail=str(error.strerror or error),
            hint="choose another one with --home or STRANDLINE_SERVICES",
        ) from error


def _rotate(log: Path) -> None:
    if log.exists() and log.stat().st_size > _LOG_IS_LARGE:
        log.replace(log.with_suffix(".log.1"))


def _read_log(log: Path, start: int = 0) -> str:
    try:
        return log.read_bytes()[start:].decode("utf-8", errors="replace")
    except OSError:
        return ""
