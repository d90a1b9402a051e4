"""Compute in DuckDB which rows an interval join must emit, and compare the rows that a contestant emitted.

Every pair must be emitted once. A left row without a partner must be emitted once if the streams go on long enough
after it for every contestant to know, and may be emitted if they nearly do; no other row may be emitted.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb

from benchmarks.joins.events import DELAY, WITHIN
from benchmarks.oracle import Verdict

SETTLED: Final = 30
"""Seconds before the end of the streams after which a contestant may still wait with rows without a partner."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The rows to emit, in a table of DuckDB."""

    connection: duckdb.DuckDBPyConnection
    rows: int

    def judge(self, output: str) -> Verdict:
        """Compare with Parquet files of emitted rows: columns `number` and `number_right`."""
        self.connection.execute(
            f"""CREATE OR REPLACE TEMP TABLE got AS
            SELECT number, number_right, count(*) AS times
            FROM read_parquet('{output}', union_by_name = true) GROUP BY ALL"""  # noqa: S608
        )
        differing = """FROM expected e FULL JOIN got g
            ON e.number = g.number AND e.number_right IS NOT DISTINCT FROM g.number_right
            WHERE (e.needed AND g.times IS NULL) OR e.number IS NULL OR g.times > 1"""
        wrong = _number(self.connection, f"SELECT count(*) {differing}")
        found = self.connection.execute(
            "SELECT coalesce(e.number, g.number), coalesce(e.number_right, g.number_right), g.times "
            f"{differing} LIMIT 1"
        ).fetchone()
        example = "" if found is None else f"left {found[0]}, right {found[1]}: {found[2] or 0} times"
        return Verdict(self.rows, wrong, example)


def expect(folder: Path, *, outer: bool) -> Expected:
    """Compute the rows to emit for two streams."""
    connection = duckdb.connect()
    connection.execute("SET threads = 2; SET memory_limit = '6GB'; SET TimeZone = 'UTC'")
    for side in ("left", "right"):
        connection.execute(
            f"""CREATE TEMP TABLE {side}_rows AS
            SELECT key, epoch_ms("at") AS ms, number FROM read_parquet('{folder}/{side}/*.parquet')"""  # noqa: S608
        )
    kind = "LEFT" if outer else "INNER"
    settled = f"(SELECT max(ms) FROM left_rows) - {SETTLED + WITHIN + DELAY} * 1000"  # noqa: S608
    connection.execute(
        f"""CREATE TEMP TABLE expected AS
        SELECT l.number, r.number AS number_right,
               r.number IS NOT NULL OR l.ms < {settled} AS needed
        FROM left_rows l {kind} JOIN right_rows r
        ON r.key = l.key AND r.ms BETWEEN l.ms AND l.ms + {WITHIN * 1000}"""  # noqa: S608
    )
    return Expected(connection, _number(connection, "SELECT count(*) FROM expected WHERE needed"))


def _number(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    found: Any = connection.execute(query).fetchone()
    return int(found[0])
