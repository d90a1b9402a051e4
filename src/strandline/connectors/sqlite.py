"""SQLite: panes, late elements and dead letters in tables of one file, with the ledger beside them.

For a sink called `totals`: the table `totals` holds every pane as it was told, `totals_late` and `totals_dead` who was
refused and why, and the view `totals_now` the latest answer for each key and window. A batch and its ledger entry are
one transaction.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import polars as pl

from strandline.errors import SinkError, SinkUnavailable
from strandline.kernel import letters
from strandline.kernel.blocks import AT, END, OFFSET, OWN, PARTITION, START
from strandline.kernel.output import Output, counts_to_facts
from strandline.kernel.panes import FIRST, INDEX, LAST, NONSPECULATIVE, RETRACTION, TIMESTAMP, TIMING
from strandline.kernel.step import PARTIAL, WATERMARK
from strandline.letters.table import TableLetters
from strandline.model.elements import BEGINNING
from strandline.model.elements import END as END_OF_TIME
from strandline.plan.endpoints import Delivery
from strandline.plan.stages import Deliver
from strandline.spark.crash import crash_point
from strandline.spark.ledger import LedgerEntry, Recorded, Written, judge
from strandline.spark.ports import REASON

BATCH: Final = "@batch"
"""The batch that brought a row."""
_NEWEST: Final = "@newest"
_GONE: Final = "@gone"

NAMES: Final = {
    START: "window_start", END: "window_end", TIMING: "timing", INDEX: "pane_index",
    NONSPECULATIVE: "nonspeculative_index", FIRST: "is_first", LAST: "is_last", TIMESTAMP: "pane_time",
    RETRACTION: "retraction", AT: "event_time", PARTITION: "source_partition", OFFSET: "source_offset",
    REASON: "reason", WATERMARK: "watermark", PARTIAL: "partial", BATCH: "batch", **letters.NAMES,
    _NEWEST: "newest", _GONE: "taken_back",
}  # fmt: skip
"""What our columns are called in a table; with a `_` behind where a user's column already has that name."""

_TIMES: Final = (START, END, TIMESTAMP, AT, WATERMARK, letters.SEEN)


@dataclass(frozen=True, slots=True)
class Sqlite:
    """A file, and the name of the table of panes in it."""

    path: str
    table: str

    @property
    def name(self) -> str:
        return f"sqlite({self.table!r})"

    @property
    def offers(self) -> frozenset[Delivery]:
        return frozenset(Delivery)

    @property
    def takes_retractions(self) -> bool:
        return True

    def open(self, output: Deliver) -> "OpenSqlite":
        return OpenSqlite(self, output.keys)

    def letters(self) -> TableLetters:
        """The dead letters beside the panes."""
        return TableLetters(self.path, f"{self.table}_dead")


def sqlite(path: str | Path, *, table: str = "panes") -> Sqlite:
    """Panes into a SQLite file: `sqlite("scores.db", table="totals")`."""
    return Sqlite(str(path), table)


class OpenSqlite:
    """The file at work, used from one thread at a time."""

    def __init__(self, ask: Sqlite, keys: Sequence[str] | None) -> None:
        self._ask, self._keys = ask, keys
        try:
            Path(ask.path).absolute().parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(ask.path, isolation_level=None, check_same_thread=False, timeout=30)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            self._create_ledger()
        except (sqlite3.Error, OSError) as problem:
            raise SinkError(
                f"cannot open {ask.path}", detail=str(problem), hint="check the path and its folder"
            ) from None

    def claim(self, lineage: str) -> int:
        with self._transaction() as cursor:
            mine = [lineage, self._ask.table]
            cursor.execute(
                "SELECT coalesce(max(epoch), 0) + 1 FROM strandline_epochs WHERE lineage = ? AND sink = ?", mine
            )
            epoch = int(cursor.fetchone()[0])
            cursor.execute("INSERT INTO strandline_epochs VALUES (?, ?, ?, ?)", [*mine, epoch, _utc_now()])
            return epoch

    def latest(self, lineage: str) -> Recorded | None:
        return self._find("ORDER BY batch DESC LIMIT 1", lineage, self._ask.table)

    def _find(self, which: str, *values: object) -> Recorded | None:
        ask = "SELECT batch, digest, watermark_ms, ends, output FROM strandline_ledger WHERE lineage = ? AND sink = ? "
        found = self._connection.execute(ask + which, values).fetchone()
        return None if found is None else Recorded(*found)

    def commit(self, output: Output, entry: LedgerEntry) -> Written:
        with self._transaction() as cursor:
            known = self._judge(cursor, entry)
            if known is None:
                self._write(cursor, output, entry)
                crash_point("C9")
                self._record(cursor, output, entry)
        crash_point("C10")
        return known or Written()

    def mark(self, output: Output, entry: LedgerEntry) -> Written:
        with self._transaction() as cursor:
            known = self._judge(cursor, entry)
            if known is None:
                self._record(cursor, output, entry)
        return known or Written()

    def write(self, output: Output, entry: LedgerEntry) -> Written:
        with self._transaction() as cursor:
            judge(entry, self._epoch(cursor, entry), None, None, sink=self._ask.name)
            self._write(cursor, output, entry)
            crash_point("C9")
        crash_point("C10")
        return Written()

    def close(self) -> None:
        self._connection.close()

    def _write(self, cursor: sqlite3.Cursor, output: Output, entry: LedgerEntry) -> None:
        for suffix, frame in (("", output.panes), ("_late", output.late), ("_dead", output.dead)):
            if frame is not None:
                self._insert(cursor, self._ask.table + suffix, frame, entry.batch)
        if output.panes is not None and self._keys is not None:
            self._create_view(cursor, names_beside(output.panes.columns), self._keys)

    def _judge(self, cursor: sqlite3.Cursor, entry: LedgerEntry) -> Written | None:
        known = self._find("AND batch = ?", entry.lineage, self._ask.table, entry.batch)
        last = self.latest(entry.lineage)
        return judge(entry, self._epoch(cursor, entry), known, last, sink=self._ask.name)

    def _epoch(self, cursor: sqlite3.Cursor, entry: LedgerEntry) -> int | None:
        mine = [entry.lineage, self._ask.table]
        cursor.execute("SELECT max(epoch) FROM strandline_epochs WHERE lineage = ? AND sink = ?", mine)
        found: int | None = cursor.fetchone()[0]
        return found

    def _record(self, cursor: sqlite3.Cursor, output: Output, entry: LedgerEntry) -> None:
        mark, clock = output.progress.watermark, output.progress.clock
        counts = json.dumps(dict(counts_to_facts(output.counts)))
        told = [entry.lineage, self._ask.table, entry.batch, entry.epoch, entry.digest, mark, clock, counts, _utc_now()]
        told += [entry.starts, entry.ends, entry.output]
        cursor.execute(f"INSERT INTO strandline_ledger VALUES ({', '.join('?' * len(told))})", told)  # noqa: S608 - marks only

    def _create_ledger(self) -> None:
        with self._transaction() as cursor:
            cursor.execute(
                "CREATE TABLE IF NOT EXISTS strandline_epochs (lineage TEXT, sink TEXT, epoch INTEGER, claimed TEXT, "
                "PRIMARY KEY (lineage, sink, epoch))"
            )
            cursor.execute(
                "CREATE TABLE IF NOT EXISTS strandline_ledger (lineage TEXT, sink TEXT, batch INTEGER, epoch INTEGER, "
                "digest TEXT, watermark_ms INTEGER, clock_ms INTEGER, counts TEXT, committed TEXT, "
                "starts TEXT, ends TEXT, output TEXT, PRIMARY KEY (lineage, sink, batch))"
            )

    def _insert(self, cursor: sqlite3.Cursor, table: str, frame: pl.DataFrame, batch: int) -> None:
        shown = _readable(frame.with_columns(pl.lit(batch, pl.Int64).alias(BATCH)))
        columns = ", ".join(_quoted(name) for name in shown.columns)
        types = ", ".join(f"{_quoted(name)} {_type_of(kind)}" for name, kind in shown.schema.items())
        cursor.execute(f"CREATE TABLE IF NOT EXISTS {_quoted(table)} ({types})")
        # Late elements of several steps, and dead letters of several sources, do not all have the same columns.
        cursor.execute(f"PRAGMA table_info({_quoted(table)})")
        known = {row[1].lower() for row in cursor.fetchall()}
        for name, kind in shown.schema.items():
            if name.lower() not in known:
                cursor.execute(f"ALTER TABLE {_quoted(table)} ADD COLUMN {_quoted(name)} {_type_of(kind)}")
        marks = ", ".join("?" * shown.width)
        cursor.executemany(f"INSERT INTO {_quoted(table)} ({columns}) VALUES ({marks})", shown.iter_rows())  # noqa: S608 - quoted names, bound values

    def _create_view(self, cursor: sqlite3.Cursor, names: Mapping[str, str], keys: Sequence[str]) -> None:
        """Of each key and window the newest pane, unless it was taken back: a session that grew has other bounds."""
        table, view = _quoted(self._ask.table), _quoted(self._ask.table + "_now")
        identity = ", ".join(_quoted(name) for name in (*keys, names[START], names[END]))
        index, batch, newest = (_quoted(names[name]) for name in (INDEX, BATCH, _NEWEST))
        order = f"{batch} DESC, {index} DESC, {_quoted(names[RETRACTION])}"
        rank = f"row_number() OVER (PARTITION BY {identity} ORDER BY {order}) AS {newest}"
        taken_back = (
            f"max({_quoted(names[RETRACTION])}) OVER (PARTITION BY {identity}, {index}) AS {_quoted(names[_GONE])}"
        )
        cursor.execute(
            f"CREATE VIEW IF NOT EXISTS {view} AS SELECT * FROM (SELECT *, {rank}, {taken_back} FROM {table}) "  # noqa: S608 - quoted names
            f"WHERE {newest} = 1 AND NOT {_quoted(names[_GONE])}"
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        cursor = self._connection.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE")
            yield cursor
            cursor.execute("COMMIT")
        except sqlite3.OperationalError as problem:
            if problem.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise SinkUnavailable(f"{self._ask.path} is in use", detail=str(problem)) from None
            raise SinkError(f"{self._ask.path} refused a batch", detail=str(problem)) from None
        except (sqlite3.Error, OverflowError) as problem:
            raise SinkError(f"{self._ask.path} refused a batch", detail=str(problem)) from None
        finally:
            if self._connection.in_transaction:
                cursor.execute("ROLLBACK")
            cursor.close()


def names_beside(columns: Iterable[str]) -> dict[str, str]:
    """What our columns are called beside a user's own, which keep their names; SQLite minds no case."""
    taken = {name.lower() for name in columns if not name.startswith(OWN)}
    names = {}
    for own, name in NAMES.items():
        free = name
        while free in taken:
            free += "_"
        names[own] = free
    return names


def _readable(frame: pl.DataFrame) -> pl.DataFrame:
    """Times as texts that sort, our columns under their public names, everything else as it is."""
    times = [_instant(name) for name in _TIMES if name in frame.columns]
    shown = frame.with_columns(times).rename(names_beside(frame.columns), strict=False)
    moments = [name for name, kind in shown.schema.items() if kind.is_temporal()]
    nested = [_as_json(shown[name]) for name, kind in shown.schema.items() if kind.is_nested()]
    return shown.with_columns(pl.col(moments).dt.to_string("%Y-%m-%d %H:%M:%S%.3f")).with_columns(nested)


def _as_json(values: pl.Series) -> pl.Series:
    """Lists and structures as JSON texts, which SQLite's own functions can read."""
    texts = [None if each is None else json.dumps(each, default=str) for each in values.to_list()]
    return pl.Series(values.name, texts, pl.String)


def _instant(name: str) -> pl.Expr:
    ms = pl.col(name)
    text = pl.from_epoch(ms, time_unit="ms").dt.to_string("%Y-%m-%d %H:%M:%S%.3f")
    ends = pl.when(ms == BEGINNING.ms).then(pl.lit("-infinity")).when(ms == END_OF_TIME.ms).then(pl.lit("infinity"))
    return ends.otherwise(text).alias(name)


def _type_of(kind: Any) -> str:
    if kind.is_integer() or kind == pl.Boolean:
        return "INTEGER"
    if kind.is_float():
        return "REAL"
    return "BLOB" if kind == pl.Binary else "TEXT"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
