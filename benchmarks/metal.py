"""The distance to the metal: the same sums over the same files by Polars or DuckDB alone, and nothing else.

No stream, no watermark, no state, nothing counted or kept: what a machine can do at most with such a question.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl

from benchmarks.feeds import Feed, Folder
from benchmarks.workloads import Contestant, Tumbling, Window, Workload

AT_LEAST: Final = 5.0
"""Seconds that it goes on, over and over: one time is too short for the meter."""


def timed(contestant: Contestant, workload: Workload, feed: Feed, least: float = AT_LEAST) -> dict[str, Any]:
    """As one batch, in which everything was read several times."""
    files, size = _files(feed), _size(workload.window)
    rows = int(pl.scan_parquet(files).select(pl.len()).collect().item())
    started, times = time.time(), 0
    while not times or time.time() < started + least:
        _TOTALS[contestant](files, size)
        times += 1
    return _told(started, rows * times)


def checked(contestant: Contestant, workload: Workload, feed: Feed, kept: Path) -> dict[str, Any]:
    """Once, with every window kept for the judge."""
    started = time.time()
    totals = _TOTALS[contestant](_files(feed), _size(workload.window))
    totals.with_columns(pl.lit(1).alias("sign")).write_parquet(kept / "0.parquet")
    return _told(started, int(totals["plays"].sum()))


def _told(started: float, rows: int) -> dict[str, Any]:
    ended = time.time()
    batch = {"batch": 0, "rows": rows, "started": started, "ended": ended, "state": []}
    return {"started": started, "ended": ended, "batches": [batch]}


def _files(feed: Feed) -> str:
    if not isinstance(feed, Folder):
        raise TypeError("it reads a folder")
    return f"{feed.path}/*.parquet"


def _size(window: Window) -> int:
    if not isinstance(window, Tumbling):
        raise TypeError("it knows tumbling windows only")
    return window.seconds * 1000


def _by_polars(files: str, size: int) -> pl.DataFrame:
    start = pl.col("at").dt.timestamp("ms") // size * size
    placed = pl.scan_parquet(files).select("key", "value", start.alias("start_ms"))
    totals = placed.group_by("key", "start_ms").agg(pl.col("value").sum().alias("total"), pl.len().alias("plays"))
    found = totals.collect(engine="streaming")
    plays, end = pl.col("plays").cast(pl.Int64), (pl.col("start_ms") + size).alias("end_ms")
    return found.select("key", "start_ms", end, "total", plays)


def _by_duckdb(files: str, size: int) -> pl.DataFrame:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found: pl.DataFrame = connection.sql(
            f"""SELECT key, epoch_ms("at") // {size} * {size} AS start_ms, start_ms + {size} AS end_ms,
                       sum(value)::BIGINT AS total, count(*) AS plays
                FROM read_parquet('{files}') GROUP BY key, start_ms"""  # noqa: S608 - a folder of ours
        ).pl()
        return found


_TOTALS: Final[dict[Contestant, Callable[[str, int], pl.DataFrame]]] = {
    Contestant.POLARS: _by_polars,
    Contestant.DUCKDB: _by_duckdb,
}
METAL: Final = tuple(_TOTALS)
