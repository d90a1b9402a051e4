"""Measure a process tree: CPU seconds and resident memory, read from /proc.

The measured run is a session leader, so that all of its processes are found by session id, also after reparenting. A
process that ended and was waited for is in its parent's child times; otherwise it is a zombie with its own times. So no
CPU time is lost between two samples.
"""

import contextlib
import os
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Generic, Protocol, Self, TypeVar

PROC: Final = Path("/proc")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")

# Places in /proc/PID/stat, counted from behind the name in parentheses, which may hold anything.
_SESSION, _TIMES, _RSS = 3, slice(11, 15), 21


class Look(Protocol):
    """One sample of CPU time and memory."""

    @property
    def moment(self) -> float: ...


Seen = TypeVar("Seen", bound=Look)


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of a session."""

    moment: float
    cpu_seconds: float
    resident_bytes: int


def look(session: int, proc: Path = PROC) -> Sample:
    """Return user and system time of a session's processes and ended children, and memory of live ones."""
    moment, found = time.time(), [_used(fields) for fields in _processes(session, proc).values()]
    return Sample(moment, sum(ticks for ticks, _ in found) / _TICKS, sum(pages for _, pages in found) * _PAGE)


@dataclass(frozen=True, slots=True)
class Held:
    """Memory of a session's processes by name, and the number of open files and sockets."""

    moment: float
    resident_bytes: Mapping[str, int]
    files: int = 0


def held(session: int, proc: Path = PROC) -> Held:
    """Return the current memory by process name."""
    moment, found, files = time.time(), Counter[str](), 0
    for process, fields in _processes(session, proc).items():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found[(proc / str(process) / "comm").read_text().strip()] += _used(fields)[1] * _PAGE
            files += len([*(proc / str(process) / "fd").iterdir()])
    return Held(moment, dict(found), files)


def members(session: int, proc: Path = PROC) -> list[int]:
    """Return the processes of a session."""
    return list(_processes(session, proc))


def _processes(session: int, proc: Path) -> dict[int, list[str]]:
    found = {}
    for each in proc.iterdir():
        fields = _fields(each) if each.name.isdigit() else []
        if fields and int(fields[_SESSION]) == session:
            found[int(each.name)] = fields
    return found


def _fields(process: Path) -> list[str]:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []  # it has ended since it was listed


def _used(fields: list[str]) -> tuple[int, int]:
    return sum(map(int, fields[_TIMES])), int(fields[_RSS])


def around(looks: Sequence[Seen], moment: float) -> tuple[Seen, Seen, float]:
    """Return the samples around a moment and its relative position; the nearest if outside."""
    if not looks:
        raise ValueError("no samples")
    place = bisect_left(looks, moment, key=lambda each: each.moment)
    if place in (0, len(looks)):
        nearest = looks[min(place, len(looks) - 1)]
        return nearest, nearest, 0.0
    before, after = looks[place - 1], looks[place]
    return before, after, (moment - before.moment) / (after.moment - before.moment)


def cpu_at(samples: Sequence[Sample], moment: float) -> float:
    """Return CPU seconds used up to a moment, interpolated between samples."""
    before, after, share = around(samples, moment)
    return before.cpu_seconds + share * (after.cpu_seconds - before.cpu_seconds)


def peak_bytes(samples: Sequence[Sample], until: float) -> int:
    """Return peak resident memory; shared pages count for each process."""
    return max((sample.resident_bytes for sample in samples if sample.moment <= until), default=0)


@dataclass(slots=True)
class Looking(Generic[Seen]):
    """Sample repeatedly while open."""

    look: Callable[[], Seen]
    every: float
    looks: list[Seen] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self.every):
            self.looks.append(self.look())


def meter(session: int) -> Looking[Sample]:
    """Sample a session ten times a second."""
    return Looking(lambda: look(session), 0.1)
