"""Measure the upper bound: the same sums over the same files by Polars or DuckDB alone.

No stream, watermark, state or ledger: the most the machine can do with the query. Also the gain of a second core: the
same by programs that share nothing but the machine.
"""

import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import polars as pl

from benchmarks.feeds import Feed, Folder
from benchmarks.workloads import Contestant, Tumbling, Window, Workload

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

AT_LEAST: Final = 5.0
"""Seconds of repetition: a single run is too short to measure."""


def timed(contestant: Contestant, workload: Workload, feed: Feed, least: float = AT_LEAST) -> dict[str, Any]:
    """Measure repeated reads as one batch."""
    files, size = _files(feed), _size(workload.window)
    if contestant is Contestant.POLARS_EACH:
        return _on_each(files, size, least)
    rows = _rows(files)
    started, times = time.time(), 0
    while not times or time.time() < started + least:
        _TOTALS[contestant](files, size)
        times += 1
    return _told(started, rows * times)


def _on_each(files: str, size: int, least: float) -> dict[str, Any]:
    """Run on all allowed cores at once, each for the given time."""
    cores = sorted(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(len(cores))
    with ProcessPoolExecutor(len(cores), context, _share, (ready,)) as pool:
        done = [pool.submit(_alone, core, files, size, least) for core in cores]
        spans = [each.result() for each in done]
    # A process that ends earlier frees the machine for others: each counts for its own time.
    seconds = sum(ended - started for started, ended, _ in spans) / len(spans)
    started, rows = min(started for started, _, _ in spans), sum(rows for _, _, rows in spans)
    batch = {"batch": 0, "rows": rows, "started": started, "ended": started + seconds, "state": []}
    return {"started": started, "ended": time.time(), "batches": [batch]}


_barrier: "Barrier"


def _share(barrier: "Barrier") -> None:
    global _barrier  # noqa: PLW0603 - a process that is spawned is told so, and in no other way
    _barrier = barrier


def _alone(core: int, files: str, size: int, least: float) -> tuple[float, float, int]:
    """Run on one core after a warm-up; return start, end and rows read."""
    # Before Polars reads its thread limit.
    os.sched_setaffinity(0, {core})
    _by_polars(files, size)
    rows, times = _rows(files), 0
    _barrier.wait()
    started = time.time()
    while time.time() < started + least:
        _by_polars(files, size)
        times += 1
    return started, time.time(), rows * times


def _rows(files: str) -> int:
    return int(pl.scan_parquet(files).select(pl.len()).collect().item())


def checked(contestant: Contestant, workload: Workload, feed: Feed, kept: Path) -> dict[str, Any]:
    """Run once and keep all windows for the check."""
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
    Contestant.POLARS_EACH: _by_polars,
    Contestant.DUCKDB: _by_duckdb,
}
METAL: Final = tuple(_TOTALS)
