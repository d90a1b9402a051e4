"""Compute in DuckDB which rows a deduplication must emit, and compare the rows that a contestant emitted.

The two semantics agree on this stream only because copies have the event time of their original and no event is late.
The judge checks both before it compares.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb

from benchmarks.dedupe.events import SPAN
from benchmarks.oracle import Verdict, watermarks

COLUMNS: Final = "id, ms, account, amount, method"


@dataclass(frozen=True, slots=True)
class Expected:
    """The rows to emit, in a table of DuckDB."""

    connection: duckdb.DuckDBPyConnection
    events: int
    rows: int
    live: int
    """Ids that must be in state after the last batch: closer to the highest event time than both spans together."""

    def judge(self, output: str) -> Verdict:
        """Compare with Parquet files of emitted rows: each expected row once, and no other."""
        self.connection.execute(
            f"""CREATE OR REPLACE TEMP TABLE got AS
            SELECT {COLUMNS}, count(*) AS times
            FROM (SELECT *, epoch_ms("at") AS ms FROM read_parquet('{output}', union_by_name = true)) GROUP BY ALL"""  # noqa: S608
        )
        differing = f"""FROM expected e FULL JOIN got g USING ({COLUMNS})
            WHERE NOT (e.there AND g.times = 1) OR e.there IS NULL OR g.times IS NULL"""
        wrong = _number(self.connection, f"SELECT count(*) {differing}")
        found = self.connection.execute(f"SELECT id, ms, e.there, g.times {differing} ORDER BY ms LIMIT 1").fetchone()
        example = (
            "" if found is None else f"id {found[0]} at {found[1]}: {found[3] or 0} times, not {int(bool(found[2]))}"
        )
        return Verdict(self.rows, wrong, example)


def expect(folder: Path) -> Expected:
    """Compute the rows to emit for a stream, and check what makes them unambiguous."""
    connection = duckdb.connect()
    # The judge runs alone, on the same small machine.
    connection.execute("SET threads = 2; SET memory_limit = '6GB'; SET TimeZone = 'UTC'")
    connection.execute(
        f"""CREATE TEMP TABLE events AS
        SELECT id, epoch_ms("at") AS ms, account, amount, method,
               regexp_extract(filename, '(\\d+)-\\d\\.parquet$', 1)::INT AS batch, 0 AS part
        FROM read_parquet('{folder}/*.parquet', filename = true)"""  # noqa: S608
    )
    watermarks(connection, SPAN, apart=False)
    late = _number(connection, "SELECT count(*) FROM events JOIN marks USING (batch) WHERE ms <= before")
    connection.execute(f"CREATE TEMP TABLE expected AS SELECT DISTINCT {COLUMNS}, true AS there FROM events")  # noqa: S608
    rows = _number(connection, "SELECT count(*) FROM expected")
    if late or rows != _number(connection, "SELECT count(DISTINCT id) FROM events"):
        raise ValueError(f"{folder} has {late} late events, or copies that differ from their originals")
    live = _number(connection, f"SELECT count(*) FROM expected WHERE ms > (SELECT max(ms) - {2000 * SPAN} FROM events)")  # noqa: S608
    return Expected(connection, _number(connection, "SELECT count(*) FROM events"), rows, live)


def _number(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    found: Any = connection.execute(query).fetchone()
    return int(found[0])
