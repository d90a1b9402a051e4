"""Define the tables of a job's metrics, in one SQLite file beside its checkpoint: one writer, and non-blocking readers.

about    the version of these tables, and the job's name
runs     one row per start: its process, its last heartbeat, how it ended
points   the numbers of a batch, or of several folded into one; the golden ones as columns, all of them in `detail`
wholes   partitions and hot keys, which take most space and change least: one row per period, by its start
events   started, stopped, failed, waiting, alarms
panes    recently recorded panes of the selected keys
alarms   the state of each alarm
"""

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILE: Final = "metrics.db"
VERSION: Final = 2
BUSY_SECONDS: Final = 5.0

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs (
    run INTEGER PRIMARY KEY, pid INTEGER NOT NULL, host TEXT NOT NULL, started INTEGER NOT NULL,
    heartbeat INTEGER NOT NULL, state TEXT NOT NULL, problem TEXT NOT NULL DEFAULT '', ended INTEGER
);
CREATE TABLE IF NOT EXISTS points (
    at INTEGER PRIMARY KEY, run INTEGER NOT NULL, batch INTEGER NOT NULL, batches INTEGER NOT NULL,
    clock INTEGER NOT NULL, seconds REAL NOT NULL,
    read INTEGER NOT NULL, contributed INTEGER NOT NULL, late INTEGER NOT NULL, dead INTEGER NOT NULL,
    filtered INTEGER NOT NULL, emitted INTEGER NOT NULL, watermark INTEGER, lag_records INTEGER, lag_seconds REAL,
    p50 REAL, p95 REAL, p99 REAL, took REAL NOT NULL, deliver REAL NOT NULL, commits REAL NOT NULL,
    state_rows INTEGER NOT NULL, state_bytes INTEGER, detail BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS wholes (at INTEGER PRIMARY KEY, detail BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, run INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS panes (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, batch INTEGER NOT NULL, output INTEGER NOT NULL, key TEXT NOT NULL,
    start INTEGER, until INTEGER, timing TEXT NOT NULL, pane INTEGER NOT NULL, is_last INTEGER NOT NULL,
    taken_back INTEGER NOT NULL, said TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS panes_by_key ON panes (key, start);
CREATE TABLE IF NOT EXISTS alarms (
    rule TEXT PRIMARY KEY, state TEXT NOT NULL, since INTEGER NOT NULL, text TEXT NOT NULL, hint TEXT NOT NULL,
    count INTEGER NOT NULL
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Point:
    """The golden metrics at a time, for a chart; old points are of several batches."""

    at: int
    run: int
    batch: int
    batches: int
    clock: int
    seconds: float
    read: int
    contributed: int
    late: int
    dead: int
    filtered: int
    emitted: int
    watermark: int | None
    lag_records: int | None
    lag_seconds: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    """Seconds from event time to visible in the sink, over all timings."""
    took: float
    deliver: float
    commits: float
    state_rows: int
    state_bytes: int | None

    @property
    def offered(self) -> int:
        """Elements with an outcome: more than were read if steps follow one another."""
        return self.contributed + self.late + self.dead + self.filtered

    @property
    def again(self) -> int:
        """Elements that were offered again, to a further step."""
        return self.offered - self.read


@dataclass(frozen=True, slots=True)
class Event:
    """An event in a job's life."""

    at: int
    run: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class PaneLine:
    """A recorded pane: `key` and `said` are JSON objects by column."""

    id: int
    at: int
    batch: int
    output: int
    key: str
    start: int | None
    until: int | None
    timing: str
    pane: int
    is_last: bool
    taken_back: bool
    said: str


@dataclass(frozen=True, slots=True)
class AlarmLine:
    """State of an alarm: `ok`, `pending` or `firing`, since when, why, and what would help."""

    rule: str
    state: str
    since: int
    text: str
    hint: str
    count: int


def open_to_write(folder: Path) -> sqlite3.Connection:
    """Open or create the file for writing; in WAL mode, where the folder allows it, readers see a consistent state."""
    connection = sqlite3.connect(folder / FILE, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA page_size = 8192")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 32")  # pages: keeps the write-ahead log small
    connection.execute("PRAGMA journal_size_limit = 262144")
    connection.executescript(SCHEMA)
    return connection


def open_to_read(folder: Path) -> sqlite3.Connection:
    """Open the file for reading, also in a read-only folder."""
    place = (folder / FILE).absolute().as_uri()
    try:
        connection = sqlite3.connect(f"{place}?mode=ro", uri=True, timeout=BUSY_SECONDS, check_same_thread=False)
        connection.execute("SELECT 1 FROM about LIMIT 1")
    except sqlite3.OperationalError:
        connection = sqlite3.connect(f"{place}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    connection.execute("PRAGMA cache_size = -128")  # KiB: a dashboard reads 200 of them, and the system caches files
    return connection
