"""Read a job's metrics from its folder, in any process, while the job runs and after it ended.

with History(checkpoint) as history:
    history.job()                  the job's identity and state
    history.latest()               the numbers of its last batch
    history.points(since=…)        the golden metrics over time, for charts
"""

import contextlib
import json
import os
import socket
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from strandline.errors import SetupError
from strandline.observe.metrics.encoding import from_bytes
from strandline.observe.metrics.metrics import BatchMetrics, with_partitions
from strandline.observe.metrics.tables import FILE, VERSION, AlarmLine, Event, PaneLine, Point, open_to_read

SILENT_AFTER_SECONDS: Final = 20.0
"""A job without a heartbeat for this long counts as dead."""

_IDENTITY_FILE: Final = "strandline.json"
_MAX_DEPTH: Final = 4
_FOREVER: Final = 1 << 62


class JobState(StrEnum):
    """State of a job, seen from outside."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    DRAINING = "draining"
    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"
    DEAD = "dead"
    """It was running, and has no heartbeat any more."""
    UNKNOWN = "unknown"
    """It stores no metrics."""

    @property
    def is_alive(self) -> bool:
        return self in (JobState.STARTING, JobState.RUNNING, JobState.WAITING, JobState.DRAINING)


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as its folder shows it."""

    checkpoint: str
    name: str
    state: JobState
    problem: str = ""
    lineage: str = ""
    run: int = 0
    restarts: int = 0
    pid: int | None = None
    host: str = ""
    started: int | None = None
    heartbeat: int | None = None
    ended: int | None = None
    stages: str = ""
    """Its stages, as `explain` prints them."""


class History:
    """Reads a job's folder. Cheap to create; use one per thread."""

    def __init__(self, checkpoint: str | Path) -> None:
        self.folder = Path(checkpoint)
        if not (self.folder / _IDENTITY_FILE).exists():
            raise SetupError(f"there is no job in {self.folder}", hint="use the folder that was passed as checkpoint=…")
        self._connection: sqlite3.Connection | None = None

    def job(self, now: int | None = None) -> JobView:
        """Its identity and current state."""
        identity = _identity(self.folder)
        about = dict(self._rows("SELECT name, value FROM about"))
        named: dict[str, Any] = {
            "checkpoint": str(self.folder),
            "name": about.get("name") or self.folder.absolute().name,
            "lineage": str(identity.get("lineage", "")),
            "stages": str(identity.get("stages", "")),
        }
        columns = "run, pid, host, started, heartbeat, state, problem, ended, (SELECT max(run) FROM runs)"
        # Of two drivers in one folder, the one that is alive.
        query = f"SELECT {columns} FROM runs ORDER BY heartbeat DESC, run DESC LIMIT 1"  # noqa: S608
        for run, pid, host, started, heartbeat, state, problem, ended, runs in self._rows(query):
            judged = _effective_state(_state(state), pid, host, heartbeat, now or time.time_ns() // 1_000_000)
            return JobView(
                **named, state=judged, problem=problem, run=run, restarts=runs - 1, pid=pid, host=host, started=started,
                heartbeat=heartbeat, ended=ended,
            )  # fmt: skip
        return JobView(**named, state=JobState.UNKNOWN)

    def latest(self) -> BatchMetrics | None:
        """The numbers of the last batch, or of the last ones if they were within two seconds."""
        return self.at(_FOREVER)

    def points(self, since: int = 0, until: int = _FOREVER, limit: int = 20_000) -> list[Point]:
        """The golden metrics after `since` and up to `until`, oldest first; the newest ones if there are too many."""
        query = f"SELECT {_columns(Point)} FROM points WHERE at > ? AND at <= ? ORDER BY at DESC LIMIT ?"  # noqa: S608
        return [Point(*row) for row in reversed(self._rows(query, since, until, limit))]

    def batches(self, since: int = 0, until: int = _FOREVER, limit: int = 600) -> list[BatchMetrics]:
        """All numbers after `since` and up to `until`, oldest first; the newest ones if there are too many.

        Only the last one has partitions and hot keys; `at` returns those of any time.
        """
        query = "SELECT detail FROM points WHERE at > ? AND at <= ? ORDER BY at DESC LIMIT ?"
        found = [from_bytes(detail) for (detail,) in reversed(self._rows(query, since, until, limit))]
        return [*found[:-1], self._with_partitions(found[-1])] if found else []

    def at(self, when: int) -> BatchMetrics | None:
        """The numbers as of a time."""
        found = self._rows("SELECT detail FROM points WHERE at <= ? ORDER BY at DESC LIMIT 1", when)
        return self._with_partitions(from_bytes(found[0][0])) if found else None

    def _with_partitions(self, metrics: BatchMetrics) -> BatchMetrics:
        """Add the partitions and hot keys, as of ten seconds before at most, or minutes for old batches."""
        found = self._rows("SELECT detail FROM wholes WHERE at <= ? ORDER BY at DESC LIMIT 1", metrics.at)
        return with_partitions(metrics, from_bytes(found[0][0]) if found else None)

    def events(self, since: int = 0, limit: int = 500) -> list[Event]:
        """The events after `since`, oldest first; the newest ones if there are too many."""
        query = "SELECT at, run, kind, text FROM events WHERE at > ? ORDER BY id DESC LIMIT ?"
        return [Event(*row) for row in reversed(self._rows(query, since, limit))]

    def starts(self, since: int = 0) -> list[int]:
        """When the job was started, after a time."""
        return [int(at) for (at,) in self._rows("SELECT started FROM runs WHERE started > ? ORDER BY run", since)]

    def panes(
        self, key: str | None = None, start: int | None = None, *, after: int = 0, limit: int = 500
    ) -> list[PaneLine]:
        """Recorded panes in their order: all, those whose key contains a text, or those of one window; `after` is an
        id."""
        conditions, values = ["id > ?"], [after]
        if key:
            conditions.append("instr(lower(key), lower(?)) > 0")
            values.append(key)  # type: ignore[arg-type]
        if start is not None:
            conditions.append("start = ?")
            values.append(start)
        chosen = f"FROM panes WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT ?"
        found = self._rows(f"SELECT {_columns(PaneLine)} {chosen}", *values, limit)
        return [_pane(*row) for row in reversed(found)]

    def alarms(self) -> list[AlarmLine]:
        """Every alarm that was ever evaluated, firing ones first."""
        query = f"SELECT {_columns(AlarmLine)} FROM alarms ORDER BY state = 'firing' DESC, state = 'pending' DESC, rule"  # noqa: S608
        return [AlarmLine(*row) for row in self._rows(query)]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _rows(self, query: str, *values: Any) -> list[Any]:
        """Query the file; empty if there is none yet, or if it cannot be read."""
        try:
            if self._connection is None:
                if not (self.folder / FILE).exists():
                    return []
                self._connection = open_to_read(self.folder)
                self._refuse_other_version(self._connection)
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error:
            # The file was recreated, or is corrupt: the next query opens it again.
            self.close()
            return []

    def _refuse_other_version(self, connection: sqlite3.Connection) -> None:
        found = connection.execute("SELECT value FROM about WHERE name = 'version'").fetchone()
        if found is not None and found[0] != str(VERSION):
            raise SetupError(
                f"the numbers in {self.folder} were written by another version",
                detail=f"they have version {found[0]}, this version reads {VERSION}",
                hint="read them with that version; the next run with this version starts a new file",
            )


def find_jobs(places: Sequence[str | Path]) -> list[Path]:
    """The folders of jobs that are, or are inside, these places."""
    found: dict[Path, None] = {}
    for place in places:
        for folder in _jobs_in(Path(place), _MAX_DEPTH):
            found.setdefault(folder)
    return [*found]


def _jobs_in(folder: Path, deep: int) -> Iterator[Path]:
    # os.path answers False where a folder may not be read, so that it does not hide the folders after it.
    if os.path.isfile(folder / _IDENTITY_FILE):  # noqa: PTH113
        yield folder
        return
    if deep == 0:
        return
    inside: list[Path] = []
    with contextlib.suppress(OSError):
        inside = sorted(folder.iterdir())
    for each in inside:
        if os.path.isdir(each) and not each.is_symlink() and not each.name.startswith("."):  # noqa: PTH112
            yield from _jobs_in(each, deep - 1)


def _state(text: object) -> JobState:
    """The state in the file; UNKNOWN for one that another version wrote, or that is damaged."""
    return JobState(text) if text in {each.value for each in JobState} else JobState.UNKNOWN


def _effective_state(state: JobState, pid: int, host: str, heartbeat: int, now: int) -> JobState:
    """The last reported state, or DEAD if the job can no longer report."""
    if not state.is_alive:
        return state
    silent = now - heartbeat > SILENT_AFTER_SECONDS * 1000
    return JobState.DEAD if silent or (host == socket.gethostname() and not _is_running(pid)) else state


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OverflowError, TypeError):
        return False  # no process has such a number
    except OSError:
        pass
    return True


def _identity(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / _IDENTITY_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _pane(*row: Any) -> PaneLine:
    pane = PaneLine(*row)
    return replace(pane, is_last=bool(pane.is_last), taken_back=bool(pane.taken_back))


def _columns(kind: type) -> str:
    return ", ".join(each.name for each in fields(kind))
