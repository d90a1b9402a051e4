"""The life of a service: start, ready, stop, kill; what differs between programs is said by one small protocol.

Nothing is kept in memory. Whoever makes a Service over the same folder, in this process or another, sees the same one.
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
from strandline.services.service_files import FILE, Record, alone_in, read, write

Say = Callable[[str], None]

READY_WITHIN_SECONDS: Final = 60.0
STOPPED_WITHIN_SECONDS: Final = 20.0

_LOOK_EVERY_SECONDS: Final = 0.05
_LAST_LINES: Final = 12
_LOG_IS_LARGE: Final = 10 * 1024 * 1024


def quiet(_: str) -> None:
    """Says nothing."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a program runs: its folder and its ports, the one for users first."""

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
    """What one kind of service is: a program, what it needs before it starts, and how it shows that it is ready."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def ports_needed(self) -> int: ...

    @property
    def stop_signal(self) -> signal.Signals:
        """The signal upon which it ends in good order, and soon."""
        ...

    def prepare(self, place: Place, say: Say) -> None:
        """Fetches and sets up what is missing; what is there stays as it is."""
        ...

    def account(self) -> list[str]:
        """What stands before the command so that it runs for another user than us; usually nothing."""
        ...

    def command(self, place: Place) -> list[str]: ...

    def answers(self, place: Place) -> bool:
        """Whether it serves its protocol, not just whether the port is open."""
        ...

    def address(self, port: int) -> str:
        """What a client is given."""
        ...

    def hint(self, said: str) -> str | None:
        """What to do about a start that failed with these words in the log; None when they say nothing of note."""
        ...


class Standing(StrEnum):
    """How a service is found."""

    RUNNING = "running"
    SILENT = "running, but does not answer"
    STOPPED = "stopped"
    DIED = "died"
    ABSENT = "never started"


@dataclass(frozen=True, slots=True)
class Status:
    """What is known of a service now."""

    name: str
    standing: Standing
    version: str = ""
    address: str = ""
    pid: int | None = None
    port: int | None = None
    folder: str = ""
    log: str = ""


class Service:
    """One service in one folder. A leashed one dies with whoever started it, where the system can arrange that."""

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
        """The port it runs on, or ran on last."""
        return self._known().ports[0]

    @property
    def address(self) -> str:
        """What a client is given."""
        return self._program.address(self.port)

    @property
    def pid(self) -> int | None:
        process = self._process()
        return None if process is None else process.pid

    def start(self, port: int | None = None, say: Say = quiet) -> bool:
        """Starts it and waits until it is ready; False if it ran already. Without a port: the last one, or a free."""
        _make(self._folder)
        with alone_in(self._folder):
            known = read(self._folder)
            if known is not None and known.process is not None and known.process.is_alive:
                self._refuse_other(known, port)
                return False
            place = Place(self._folder, self._ports(known, port))
            self._program.prepare(place, say)
            _put_aside(place.log)
            self._launch(place)
            return True

    def ready(self) -> bool:
        """Whether it runs and serves."""
        known = read(self._folder)
        return self.pid is not None and known is not None and self._program.answers(Place(self._folder, known.ports))

    def stop(self, within: float = STOPPED_WITHIN_SECONDS) -> bool:
        """Ends it in good order, or by force after a while; False if it did not run. The data stay."""
        return self._end(self._program.stop_signal, within)

    def kill(self) -> bool:
        """Ends it as a power cut would end the process: no warning, nothing flushed. The data stay as they are."""
        return self._end(signal.SIGKILL, STOPPED_WITHIN_SECONDS)

    def wipe(self) -> None:
        """Deletes the folder of a service that does not run."""
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
        return _text(self.log).splitlines()[-last:]

    def follow(self, last: int) -> Iterator[str]:
        """The last lines of its log, then what the log gains; ends when the service does."""
        with self.log.open(encoding="utf-8", errors="replace") as log:
            lines = log.readlines()
            yield "".join(lines[len(lines) - min(last, len(lines)) :])
            while True:
                alive = self.pid is not None
                if said := log.read():
                    yield said
                elif not alive:
                    return
                else:
                    time.sleep(_LOOK_EVERY_SECONDS)

    def _known(self) -> Record:
        known = read(self._folder)
        if known is None:
            raise ServiceError(f"{self.name} was never started in {self._folder}", hint=f"strandline up {self.name}")
        return known

    def _process(self) -> Process | None:
        known = read(self._folder)
        process = None if known is None else known.process
        return process if process is not None and process.is_alive else None

    def _refuse_other(self, known: Record, port: int | None) -> None:
        if port not in (None, known.ports[0]):
            raise ServiceError(
                f"{self.name} already runs on port {known.ports[0]}, so it cannot start on port {port}",
                hint=f"strandline down {self.name}, or name another --home",
            )

    def _ports(self, known: Record | None, port: int | None) -> tuple[int, ...]:
        if port is not None and not is_free(port):
            raise ServiceError(
                f"port {port} is taken, so {self.name} cannot listen there",
                detail="another program listens on it, or it may not be opened",
                hint="name another port, or none: then a free one is found",
            )
        before = known.ports if known is not None else ()
        kept = before if port is None else (port, *before[1:])
        free = free_ports(self._program.ports_needed)
        return tuple(kept[at] if at < len(kept) and is_free_soon(kept[at]) else free[at] for at in range(len(free)))

    def _launch(self, place: Place) -> None:
        said_before = place.log.stat().st_size if place.log.exists() else 0
        # The leash comes last: a change of user takes it off.
        command = [*self._program.account(), *self._leash, *self._program.command(place)]
        process = spawn(command, place.log, os.environ)
        record = Record(self.name, self._program.version, place.ports, process)
        write(self._folder, record)
        try:
            self._await_ready(place, process, said_before)
        except BaseException:
            process.send(signal.SIGKILL)
            process.is_gone_within(STOPPED_WITHIN_SECONDS)
            write(self._folder, Record(record.name, record.version, record.ports, None))
            raise

    def _await_ready(self, place: Place, process: Process, said_before: int) -> None:
        give_up = time.monotonic() + READY_WITHIN_SECONDS
        while not self._program.answers(place):
            if not process.is_alive:
                raise self._failure(f"{self.name} ended before it was ready", place, said_before)
            if time.monotonic() > give_up:
                message = f"{self.name} was not ready after {READY_WITHIN_SECONDS:.0f} s, so it was stopped"
                raise self._failure(message, place, said_before)
            time.sleep(_LOOK_EVERY_SECONDS)
        if not process.is_alive:
            raise self._failure(f"{self.name} ended, and another program answers on its port", place, said_before)

    def _failure(self, message: str, place: Place, said_before: int) -> ServiceError:
        said = _text(place.log, said_before)
        last = "\n    ".join(said.splitlines()[-_LAST_LINES:]) or "nothing"
        hint = self._program.hint(said) or _hint(said) or f"the whole log is in {place.log}"
        return ServiceError(message, detail=f"the last it said:\n    {last}", hint=hint)

    def _end(self, how: signal.Signals, within: float) -> bool:
        if not self._folder.is_dir():
            return False
        with alone_in(self._folder):
            known = read(self._folder)
            process = self._process()
            if known is None or process is None:
                return False
            children = process.children()
            process.send(how)
            if not process.is_gone_within(within):
                process.send(signal.SIGKILL)
                process.is_gone_within(STOPPED_WITHIN_SECONDS)
            # What the program started for itself ends with it, a moment later; only then its folder is free.
            for child in children:
                child.is_gone_within(STOPPED_WITHIN_SECONDS)
            write(self._folder, Record(known.name, known.version, known.ports, None))
            return True


def _hint(said: str) -> str | None:
    if re.search(r"address already in use", said, re.IGNORECASE):
        return "another program took the port in the meantime: try again"
    if re.search(r"no space left on device", said, re.IGNORECASE):
        return "the disk is full: make room, or name another --home"
    if re.search(r"OutOfMemoryError|Cannot allocate memory|insufficient memory", said, re.IGNORECASE):
        return "the machine has too little free memory: close other programs"
    return None


def _leash() -> list[str]:
    program = shutil.which("setpriv")
    return [program, "--pdeathsig", "KILL"] if program else []


def _make(folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ServiceError(
            f"the folder {folder} cannot be made",
            detail=str(error.strerror or error),
            hint="name another one with --home or STRANDLINE_SERVICES",
        ) from error


def _put_aside(log: Path) -> None:
    if log.exists() and log.stat().st_size > _LOG_IS_LARGE:
        log.replace(log.with_suffix(".log.1"))


def _text(log: Path, start: int = 0) -> str:
    try:
        return log.read_bytes()[start:].decode("utf-8", errors="replace")
    except OSError:
        return ""
