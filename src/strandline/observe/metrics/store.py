"""Store a job's numbers in a bounded file beside its checkpoint, written by one thread.

Points of the last hour are kept at one per two seconds at most, partitions and hot keys at one per ten seconds. Older
points are folded per minute, and those older than a day are deleted. Events, panes and runs are ring buffers.
"""

import os
import socket
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import attrgetter
from pathlib import Path
from typing import Final

from strandline.observe.metrics.encoding import from_bytes, to_bytes
from strandline.observe.metrics.history import JobState
from strandline.observe.metrics.metrics import BatchMetrics, fold, without_partitions
from strandline.observe.metrics.tables import FILE, VERSION, AlarmLine, PaneLine, Point, open_to_write
from strandline.redaction import redact

SECOND: Final = 1000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

_POINT: Final = tuple(each.name for each in fields(Point))
_PANE: Final = tuple(each.name for each in fields(PaneLine) if each.name != "id")
_ALARM: Final = tuple(each.name for each in fields(AlarmLine))


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention settings."""

    fine: int = HOUR
    """Milliseconds for which points keep their full resolution."""
    finest: int = 2 * SECOND
    whole: int = 10 * SECOND
    coarse_whole: int = 5 * MINUTE
    """How often partitions and hot keys are stored; and how often for old points."""
    coarse: int = MINUTE
    """The resolution of points after that."""
    days: float = 1.0
    panes: int = 4_000
    """The most panes that are kept; 0 keeps none."""
    events: int = 1_000
    runs: int = 200


class Store:
    """Writer of a job's metrics file."""

    def __init__(self, folder: Path, name: str = "", retention: Retention | None = None) -> None:
        self._folder, self.retention = folder, retention or Retention()
        self._connection = _open(folder)
        self._run = 0
        self._folded_until = 0
        self._shift = 0
        """Milliseconds that are added to times while the machine's clock is behind the last point."""
        for each, value in {"version": str(VERSION), "name": name}.items():
            self._connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (each, value))

    @property
    def run(self) -> int:
        """The number of this run, from 1."""
        return self._run

    def start(self, now: int) -> None:
        """Record the start of a run and its process."""
        with self._transaction():
            found = self._connection.execute("SELECT coalesce(max(run), 0) + 1 FROM runs").fetchone()
            self._run = int(found[0])
            self._connection.execute(
                "INSERT INTO runs (run, pid, host, started, heartbeat, state) VALUES (?, ?, ?, ?, ?, ?)",
                (self._run, os.getpid(), socket.gethostname(), now, now, JobState.STARTING.value),
            )
            self._connection.execute("DELETE FROM runs WHERE run <= ?", (self._run - self.retention.runs,))
            self._event(now, "started", f"run {self._run}, process {os.getpid()} on {socket.gethostname()}")

    def alive(self, now: int, state: JobState, problem: str = "") -> None:
        """Record a heartbeat."""
        ended = None if state.is_alive else now
        query = "UPDATE runs SET heartbeat = ?, state = ?, problem = ?, ended = ? WHERE run = ?"
        self._connection.execute(query, (now, state.value, redact(problem), ended, self._run))

    def event(self, now: int, kind: str, text: str) -> None:
        with self._transaction():
            self._event(now, kind, text)

    def add(self, metrics: BatchMetrics, panes: Sequence[PaneLine] = ()) -> None:
        """Add a batch; one within two seconds of the last point is folded into it."""
        with self._transaction():
            last = self._connection.execute("SELECT at, run, detail FROM points ORDER BY at DESC LIMIT 1").fetchone()
            metrics = replace(metrics, at=self._never_back(metrics.at, None if last is None else last[0]))
            if last is not None and last[1] == self._run and metrics.at - last[0] < self.retention.finest:
                # The point keeps its time, so that a stream of quick batches still moves on second by second.
                self._write_point(fold(from_bytes(last[2]), metrics), last[0])
            else:
                self._write_point(metrics, max(metrics.at, last[0] + 1 if last else 0))
            self._keep_whole(metrics, metrics.at - metrics.at % self.retention.whole)
            self._add_panes(panes)
        if metrics.at - self._folded_until >= self.retention.coarse:
            self.tidy(metrics.at)

    def _never_back(self, at: int, last: int | None) -> int:
        """Return a time that goes on from the last point while the machine's clock, set back, is behind it."""
        if last is None or at >= last:
            self._shift = 0
        elif at + self._shift < last:
            self._shift = last - at
        return at + self._shift

    def alarms(self, lines: Iterable[AlarmLine]) -> None:
        """Store the state of every alarm."""
        with self._transaction():
            self._connection.executemany(
                f"INSERT OR REPLACE INTO alarms VALUES ({_marks(_ALARM)})",  # noqa: S608
                (attrgetter(*_ALARM)(replace(each, text=redact(each.text), hint=redact(each.hint))) for each in lines),
            )

    def tidy(self, now: int) -> None:
        """Fold old points, and delete very old ones."""
        self._folded_until = now
        keep = self.retention
        with self._transaction():
            self._connection.execute("DELETE FROM points WHERE at < ?", (now - int(keep.days * DAY),))
            before = (now - keep.fine) // keep.coarse * keep.coarse
            many = "SELECT run, at / ? AS minute FROM points WHERE at < ? GROUP BY run, minute"
            query = f"{many} HAVING count(*) > 1 LIMIT 120"
            for run, minute in self._connection.execute(query, (keep.coarse, before)).fetchall():
                self._fold_points(run, minute * keep.coarse, (minute + 1) * keep.coarse)
            self._connection.execute("DELETE FROM wholes WHERE at < ?", (now - int(keep.days * DAY),))
            kept = "SELECT max(at) FROM wholes WHERE at < ? GROUP BY at / ?"
            self._connection.execute(
                f"DELETE FROM wholes WHERE at < ? AND at NOT IN ({kept})",  # noqa: S608
                (before, before, keep.coarse_whole),
            )
            self._trim("panes", keep.panes)
            self._trim("events", keep.events)
        self._connection.execute("PRAGMA incremental_vacuum(256)")

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()

    def _fold_points(self, run: int, start: int, end: int) -> None:
        chosen = "FROM points WHERE run = ? AND at >= ? AND at < ?"
        found = self._connection.execute(f"SELECT at, detail {chosen} ORDER BY at", (run, start, end)).fetchall()
        self._connection.execute(f"DELETE {chosen}", (run, start, end))
        self._write_point(reduce(fold, [from_bytes(detail) for _, detail in found]), found[-1][0], run)

    def _write_point(self, metrics: BatchMetrics, at: int, run: int | None = None) -> None:
        point = point_of(metrics, at, self._run if run is None else run)
        self._connection.execute(
            f"INSERT OR REPLACE INTO points VALUES ({_marks(_POINT)}, ?)",  # noqa: S608
            (*attrgetter(*_POINT)(point), to_bytes(without_partitions(metrics))),
        )

    def _keep_whole(self, metrics: BatchMetrics, at: int) -> None:
        metrics_at = BatchMetrics(
            metrics.batch, metrics.at, metrics.clock, partitions=metrics.partitions, hot=metrics.hot
        )
        self._connection.execute("INSERT OR REPLACE INTO wholes VALUES (?, ?)", (at, to_bytes(metrics_at)))

    def _add_panes(self, panes: Sequence[PaneLine]) -> None:
        if panes and self.retention.panes:
            rows = map(attrgetter(*_PANE), panes[-self.retention.panes :])
            self._connection.executemany(f"INSERT INTO panes ({', '.join(_PANE)}) VALUES ({_marks(_PANE)})", rows)  # noqa: S608
            self._trim("panes", self.retention.panes)

    def _trim(self, table: str, many: int) -> None:
        self._connection.execute(f"DELETE FROM {table} WHERE id <= (SELECT max(id) FROM {table}) - ?", (many,))  # noqa: S608

    def _event(self, now: int, kind: str, text: str) -> None:
        self._connection.execute(
            "INSERT INTO events (at, run, kind, text) VALUES (?, ?, ?, ?)", (now, self._run, kind, redact(text))
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


def point_of(metrics: BatchMetrics, at: int, run: int) -> Point:
    """The golden metrics of a batch, or of several folded ones."""
    p50, p95, p99 = (metrics.latency_seconds(share) for share in (0.5, 0.95, 0.99))
    counts, each = metrics.counts, max(metrics.batches, 1)
    return Point(
        at, run, metrics.batch, metrics.batches, metrics.clock, metrics.seconds,
        counts.read, counts.contributed, counts.late, counts.dead, counts.filtered, metrics.emitted,
        metrics.watermark, metrics.lag_records, metrics.lag_seconds, p50, p95, p99, metrics.took,
        metrics.stages.get("deliver", 0.0) / each, metrics.stages.get("commit", 0.0) / each,
        metrics.state_rows, metrics.state_bytes,
    )  # fmt: skip


def _marks(names: Sequence[str]) -> str:
    return ", ".join("?" * len(names))


def _open(folder: Path) -> sqlite3.Connection:
    """Open the file; a corrupt one, or one of another version, is moved aside."""
    try:
        connection = open_to_write(folder)
        found = connection.execute("SELECT value FROM about WHERE name = 'version'").fetchone()
        if found is None or found[0] == str(VERSION):
            return connection
        connection.close()
    except sqlite3.OperationalError:
        raise  # unreachable or locked: the file itself is intact
    except sqlite3.DatabaseError:
        pass
    place = folder / FILE
    place.replace(place.with_suffix(".old"))
    for suffix in ("-wal", "-shm"):
        place.with_name(FILE + suffix).unlink(missing_ok=True)
    return open_to_write(folder)
