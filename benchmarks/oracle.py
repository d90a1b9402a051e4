"""Check output with DuckDB: a batch job over the whole corpus computes each window.

A contestant that differs has no number. Lateness rules differ: Spark's aggregation drops a row by the watermark of two
batches ago, its transformWithState also by the row's own time, ours by the watermark before the batch. Each contestant
is checked with its own exact rule; about one event in a hundred is affected.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, assert_never

import duckdb

from benchmarks.corpus import FLUSH_KEY
from benchmarks.workloads import DELAY, Contestant, Distinct, Everything, Panes, Session, Sliding, Tumbling, Workload

CELLS: Final = "key BIGINT, start_ms BIGINT, end_ms BIGINT, total BIGINT, plays BIGINT"
"""Columns of a cell; a contestant's output adds the sign of each row."""


_SAID: Final = f"""
    SELECT key, start_ms, end_ms, sum(sign * total) total, sum(sign * plays) plays, sum(sign) said
    FROM read_parquet('{{output}}') WHERE key <> {FLUSH_KEY} GROUP BY ALL HAVING sum(sign) <> 0"""  # noqa: S608
_LAST_SAID: Final = f"""
    WITH told AS (
        SELECT *, regexp_extract(filename, '(\\d+)(\\.parquet|/[^/]+)$', 1)::INT AS batch
        FROM read_parquet('{{output}}', filename = true) WHERE key <> {FLUSH_KEY}),
    of_batch AS (
        SELECT key, start_ms, end_ms, batch, max(total) total, max(plays) plays, count(*) said
        FROM told GROUP BY key, start_ms, end_ms, batch)
    SELECT key, start_ms, end_ms, arg_max(total, batch) total, arg_max(plays, batch) plays, max(said) said
    FROM of_batch GROUP BY key, start_ms, end_ms"""  # noqa: S608
"""Output files and folders are named by batch."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of comparing an output with the expected one."""

    cells: int
    wrong: int
    example: str = ""

    @property
    def agrees(self) -> bool:
        return self.wrong == 0 and self.cells > 0


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected output as a DuckDB table, and the number of late elements."""

    connection: duckdb.DuckDBPyConnection
    late: int
    live: int
    """Open windows before the flush."""
    changes: bool = False
    """Whether only the last row of a cell counts."""

    @property
    def cells(self) -> int:
        return _number(self.connection, "SELECT count(*) FROM expected")

    def judge(self, output: str) -> Verdict:
        """Compare with Parquet files of signed cells: emitted minus retracted rows per cell, or
        the output of the last batch with that cell."""
        found = _LAST_SAID if self.changes else _SAID
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE got AS {found.format(output=output)}")
        wrong = self.connection.execute(
            """SELECT * FROM expected e FULL JOIN got g USING (key, start_ms, end_ms)
            WHERE e.total IS DISTINCT FROM g.total OR e.plays IS DISTINCT FROM g.plays OR g.said IS DISTINCT FROM 1
            ORDER BY key, start_ms"""
        ).fetchall()
        names = ("key", "start", "end", "total", "plays", "got total", "got plays", "said")
        example = ", ".join(f"{name} {value}" for name, value in zip(names, wrong[0], strict=True)) if wrong else ""
        return Verdict(self.cells, len(wrong), example)


def expect(
    folder: Path, workload: Workload, contestant: Contestant, batches: int | None = None, *, apart: bool = False
) -> Expected:
    """Compute a contestant's expected output for a corpus, or for its first batches and the flush.

    `apart`: the files of a batch are partitions with a watermark each; the minimum counts.
    """
    connection = duckdb.connect()
    # The check runs alone, but on the same small machine.
    connection.execute("SET threads = 2; SET memory_limit = '6GB'; SET TimeZone = 'UTC'")
    _read(connection, folder, batches)
    watermarks(connection, DELAY, apart=apart and contestant is Contestant.OURS)
    match workload.window:
        case Session(gap):
            _sessions(connection, gap)
        case Tumbling(seconds):
            _aligned(connection, seconds, seconds, taken(contestant, workload.lateness))
        case Sliding(seconds, every):
            _aligned(connection, seconds, every, taken(contestant, workload.lateness))
        case Everything():
            _for_ever(connection)
        case Distinct():
            _distinct(connection)
        case _:
            assert_never(workload.window)
    changes = workload.panes is Panes.CHANGES
    return Expected(connection, _late(connection, workload), _live(connection, workload, contestant), changes)


def _read(connection: duckdb.DuckDBPyConnection, folder: Path, batches: int | None) -> None:
    limit = "TRUE" if batches is None else f"batch < {batches} OR key = {FLUSH_KEY}"
    connection.execute(
        f"""CREATE TEMP TABLE events AS SELECT * FROM (
            SELECT key, value, epoch_ms("at") AS ms, regexp_extract(filename, '(\\d+)-\\d\\.parquet$', 1)::INT AS batch,
                   regexp_extract(filename, '(\\d)\\.parquet$', 1)::INT AS part
            FROM read_parquet('{folder}/*.parquet', filename = true)) WHERE {limit}"""  # noqa: S608
    )


def watermarks(connection: duckdb.DuckDBPyConnection, delay: int, *, apart: bool) -> None:
    """Return for each batch the watermark after it and after the two batches before."""
    connection.execute(
        f"""CREATE TEMP TABLE marks AS
        WITH highest AS (SELECT {"part" if apart else 0} AS part, batch, max(ms) AS ms FROM events GROUP BY ALL),
             marked AS (SELECT batch, max(ms) OVER (PARTITION BY part ORDER BY batch) - {delay * 1000} AS mark
                        FROM highest),
             after AS (SELECT batch, min(mark) AS mark FROM marked GROUP BY batch)
        SELECT batch, coalesce(lag(mark) OVER (ORDER BY batch), 0) AS before,
               coalesce(lag(mark, 2) OVER (ORDER BY batch), 0) AS earlier, mark AS after FROM after"""  # noqa: S608
    )


def taken(contestant: Contestant, lateness: int) -> str:
    """Return the SQL condition under which a window accepts an element."""
    match contestant:
        case Contestant.OURS:
            return f"end_ms + {lateness * 1000} > before"
        case Contestant.NATIVE_ROCKSDB | Contestant.NATIVE_MEMORY:
            return "end_ms > earlier"
        case Contestant.BY_KEY | Contestant.BY_KEY_ROW:
            return "end_ms > before AND NOT too_old"
        case Contestant.CEILING | Contestant.AT_ONCE | Contestant.PLAIN:
            return "TRUE"
        case Contestant.POLARS | Contestant.POLARS_EACH | Contestant.DUCKDB:
            return "TRUE"
    assert_never(contestant)


def _aligned(connection: duckdb.DuckDBPyConnection, seconds: int, every: int, taken: str) -> None:
    """Compute windows with common bounds: sum events by slice and batch, then assign slices to windows."""
    step, overlaps = every * 1000, seconds // every
    connection.execute(
        f"""CREATE TEMP TABLE expected AS
        WITH slices AS (
                SELECT key, ms // {step} * {step} AS slice, batch, before, earlier, ms <= earlier AS too_old,
                       sum(value) AS total, count(*) AS plays
                FROM events JOIN marks USING (batch) WHERE key <> {FLUSH_KEY} GROUP BY ALL),
             placed AS (
                SELECT *, slice - n * {step} AS start_ms, slice - n * {step} + {seconds * 1000} AS end_ms
                FROM slices, range({overlaps}) AS window_numbers(n))
        SELECT key, start_ms, end_ms, sum(total)::BIGINT AS total, sum(plays)::BIGINT AS plays
        FROM placed WHERE {taken} GROUP BY key, start_ms, end_ms"""  # noqa: S608
    )


def _sessions(connection: duckdb.DuckDBPyConnection, gap: int) -> None:
    """Compute sessions. Their corpus has no late events, so all contestants agree."""
    connection.execute(
        f"""CREATE TEMP TABLE expected AS
        WITH breaks AS (
                SELECT key, value, ms, ms - lag(ms) OVER (PARTITION BY key ORDER BY ms) > {gap * 1000} AS opens
                FROM events WHERE key <> {FLUSH_KEY}),
             numbered AS (
                SELECT *, sum(coalesce(opens, TRUE)::INT) OVER (PARTITION BY key ORDER BY ms) AS number FROM breaks)
        SELECT key, min(ms) AS start_ms, max(ms) + {gap * 1000} AS end_ms, sum(value)::BIGINT AS total,
               count(*) AS plays
        FROM numbered GROUP BY key, number"""  # noqa: S608
    )


def _for_ever(connection: duckdb.DuckDBPyConnection) -> None:
    """Compute totals per key over all time."""
    connection.execute(
        f"""CREATE TEMP TABLE expected AS
        SELECT key, 0 AS start_ms, 0 AS end_ms, sum(value)::BIGINT AS total, count(*) AS plays
        FROM events WHERE key <> {FLUSH_KEY} GROUP BY key"""  # noqa: S608
    )


def _distinct(connection: duckdb.DuckDBPyConnection) -> None:
    """Compute distinct events by key, time and value. Their corpus has no late events, so all contestants agree."""
    connection.execute(
        f"""CREATE TEMP TABLE expected AS
        SELECT DISTINCT key, ms AS start_ms, value AS end_ms, value AS total, 1 AS plays
        FROM events WHERE key <> {FLUSH_KEY}"""  # noqa: S608
    )


def _late(connection: duckdb.DuckDBPyConnection, workload: Workload) -> int:
    """Count elements whose last window has expired, by our rule."""
    match workload.window:
        case Session() | Everything():
            return 0
        case Distinct():
            again = "SELECT batch > min(batch) OVER (PARTITION BY key, value, ms) AS again FROM events"
            return _number(connection, f"SELECT count(*) FROM ({again}) WHERE again")  # noqa: S608
        case Tumbling(seconds):
            last = f"ms // {seconds * 1000} * {seconds * 1000} + {seconds * 1000}"
        case Sliding(seconds, every):
            last = f"ms // {every * 1000} * {every * 1000} + {seconds * 1000}"
        case _:
            assert_never(workload.window)
    return _number(
        connection,
        f"SELECT count(*) FROM events JOIN marks USING (batch) WHERE {last} + {workload.lateness * 1000} <= before",  # noqa: S608
    )


def _live(connection: duckdb.DuckDBPyConnection, workload: Workload, contestant: Contestant) -> int:
    """Count open windows: ours closes in the batch that moves the watermark past the end, others one batch later."""
    held = f"end_ms + {workload.lateness * 1000} > before" if contestant is Contestant.OURS else "end_ms > earlier"
    match workload.window:
        case Everything():
            held = "TRUE"
        case Distinct(seconds) if contestant is Contestant.OURS:
            held = f"start_ms // {seconds * 1000} * {seconds * 1000} + {seconds * 1000} > before"
        case Distinct():
            held = "start_ms > earlier"
        case _:
            pass
    flush = "SELECT before, earlier FROM marks ORDER BY batch DESC LIMIT 1"
    return _number(connection, f"SELECT count(*) FROM expected, ({flush}) WHERE {held}")  # noqa: S608


def _number(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    found: Any = connection.execute(query).fetchone()
    return int(found[0])
