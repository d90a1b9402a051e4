"""Run one contestant in its own process and JVM: timed over the corpus, then checked over its first batches.

usage: python -m benchmarks.contestant ORDER.json      the file names the run; the result is written beside it
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import feeds, metal, ours, sessions
from benchmarks.feeds import Feed
from benchmarks.peers import spark as peers
from benchmarks.sessions import Room
from benchmarks.workloads import Contestant, Panes, Window, Workload, from_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.spark.delivery.deliver import Delivered
    from strandline.spark.job import Job


MINE: Final = (Contestant.OURS, Contestant.AT_ONCE)


@dataclass(frozen=True, slots=True)
class Order:
    """What to run: the corpus to time and, optionally, its first batches to check."""

    contestant: Contestant
    workload: Workload
    feed: Feed
    check: Feed | None
    home: Path
    warm_up: float = 0
    """Warm-up seconds."""
    room: Room = Room()


def read_order(path: Path) -> Order:
    """Read an order written by the harness."""
    told = json.loads(path.read_text())
    workload = from_json(told["workload"])
    check = None if told["check"] is None else feeds.from_json(told["check"])
    room = Room(**told.get("room", {}))
    feed = feeds.from_json(told["feed"])
    return Order(Contestant(told["contestant"]), workload, feed, check, path.parent, told["warm_up"], room)


def main(arguments: list[str]) -> None:
    order = read_order(Path(arguments[0]))
    order.room.enter()
    if order.contestant in metal.METAL:
        (order.home / "run.json").write_text(json.dumps(_on_metal(order)))
        return
    spark = sessions.start(order.contestant, order.home / "spark.log", order.feed, order.room)
    warm(spark, order)
    told: dict[str, Any] = {"timed": timed(spark, order), "ended": time.time()}
    if order.check is not None:
        told["checked"] = checked(spark, order, order.check)
    (order.home / "run.json").write_text(json.dumps(told))
    spark.stop()


def _on_metal(order: Order) -> dict[str, Any]:
    """Run Polars or DuckDB alone; the first of several repetitions warms the file cache."""
    told: dict[str, Any] = {"timed": metal.timed(order.contestant, order.workload, order.feed), "ended": time.time()}
    if order.check is not None:
        kept = order.home / "panes"
        kept.mkdir()
        told["checked"] = metal.checked(order.contestant, order.workload, order.check, kept)
    return told


def warm(spark: "SparkSession", order: Order) -> None:
    """Repeat the run until the JVM has compiled its hot code."""
    until, times = time.monotonic() + order.warm_up, 0
    while time.monotonic() < until:
        timed(spark, order, f"warm-{times}")
        times += 1


def timed(spark: "SparkSession", order: Order, name: str = "timed") -> dict[str, Any]:
    """Run without keeping output and return Spark's progress of each batch."""
    if order.contestant in MINE:
        return _ours(spark, order, order.feed, name, None)
    if order.contestant is Contestant.PLAIN:
        return _plain(spark, order, order.feed, None)
    frame = peers.peer(spark, order.feed, order.workload, order.contestant)
    return played(frame.writeStream.format("noop"), order.home / name, mode_of(order.workload))


def checked(spark: "SparkSession", order: Order, feed: Feed) -> dict[str, Any]:
    """Run untimed and keep all panes for the check."""
    for name, value in sessions.while_checking().items():
        spark.conf.set(name, value)
    kept = order.home / "panes"
    kept.mkdir()
    if order.contestant in MINE:
        return _ours(spark, order, feed, "checked", kept)
    if order.contestant is Contestant.PLAIN:
        return _plain(spark, order, feed, kept)
    frame = peers.peer(spark, feed, order.workload, order.contestant)

    def keep(panes: "DataFrame", batch: int) -> None:
        peers.as_cells(panes).write.parquet(f"{kept}/{batch}")

    return played(frame.writeStream.foreachBatch(keep), order.home / "checked", mode_of(order.workload))


def mode_of(workload: Workload) -> str:
    """Return the Spark output mode."""
    return "update" if workload.panes is Panes.CHANGES else "append"


def played(writer: Any, checkpoint: Path, mode: str = "append") -> dict[str, Any]:
    """Run a Spark query over the available data to its end."""
    started = time.time()
    query = writer.outputMode(mode).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return {"started": started, "ended": time.time(), "batches": batches_of(query.recentProgress)}


def _ours(spark: "SparkSession", order: Order, feed: Feed, name: str, kept: Path | None) -> dict[str, Any]:
    said = {"panes": 0, "retractions": 0}
    read: dict[int, int] = {}
    spent: dict[int, dict[str, Any]] = {}
    started = time.time()
    at_once = order.contestant is Contestant.AT_ONCE
    hear = _listener(said, read, spent, kept, order.workload.window)
    job = ours.start(spark, feed, order.workload, order.home / name, hear, at_once=at_once)
    query = None if at_once else spark.streams.active[0]
    job.await_end()
    batches = [_only(started, job.counts.read)] if query is None else batches_of(query.recentProgress, read)
    batches = [batch | spent.get(batch["batch"], {}) for batch in batches]
    return {"started": started, "ended": time.time(), "batches": batches, "said": said, "counts": counts_of(job)}


def counts_of(job: "Job") -> dict[str, int]:
    """Return the element counts."""
    return {each: getattr(job.counts, each) for each in ("read", "again", "contributed", "late", "dead", "filtered")}


def _plain(spark: "SparkSession", order: Order, feed: Feed, kept: Path | None) -> dict[str, Any]:
    if not isinstance(feed, feeds.Folder):
        raise TypeError("a batch job reads a folder")
    frame = peers.plain(spark, feed.path, order.workload.window)
    started = time.time()
    if kept is None:
        frame.write.format("noop").mode("overwrite").save()
    else:
        peers.as_cells(frame).write.parquet(f"{kept}/0")
    ended = time.time()
    rows = spark.read.parquet(feed.path).count()
    return {"started": started, "ended": ended, "batches": [_only(started, rows, ended)]}


def _only(started: float, rows: int, ended: float | None = None) -> dict[str, Any]:
    """Describe a single-batch run in the form of the others."""
    return {"batch": 0, "rows": rows, "started": started, "ended": ended or time.time(), "state": []}


def _listener(
    said: dict[str, int], read: dict[int, int], spent: dict[int, dict[str, Any]], kept: Path | None, window: Window
) -> "Callable[[Delivered], None]":
    """Record output rows, rows read and stage times per batch."""

    def hear(delivered: "Delivered") -> None:
        panes = delivered.output.panes
        read[delivered.batch] = rows_of(delivered)
        spent[delivered.batch] = {"busy": dict(delivered.measured.seconds), "took": dict(delivered.took)}
        if panes is None:
            return
        said["panes"] += panes.height
        if kept is not None:
            ours.as_cells(panes, window).write_parquet(kept / f"{delivered.batch}.parquet")

    return hear


def rows_of(delivered: "Delivered") -> int:
    """Return how many source elements a batch read; later steps read panes, which are fewer."""
    return max((counts.read for counts in delivered.counts.values()), default=0)


def batches_of(progress: Any, read: Mapping[int, int] | None = None) -> list[dict[str, Any]]:
    """Return Spark's progress per batch: time, rows, duration, state.

    Spark counts rows it has read itself, which may be file names; for our jobs `read` has the number.
    """
    found = []
    for each in progress:
        told = json.loads(each.json) if hasattr(each, "json") else dict(each)
        started = datetime.fromisoformat(told["timestamp"]).timestamp()
        found.append({
            "batch": told["batchId"],
            "rows": told["numInputRows"] if read is None else read.get(told["batchId"], 0),
            "started": started,
            "ended": started + told["durationMs"]["triggerExecution"] / 1000,
            "milliseconds": told["durationMs"],
            "state": [_state(operator) for operator in told["stateOperators"]],
        })  # fmt: skip
    return found


def _state(operator: dict[str, Any]) -> dict[str, Any]:
    metrics = operator.get("customMetrics", {})
    return {
        "bytes": metrics.get("rocksdbSstFileSize", metrics.get("stateOnCurrentVersionSizeBytes")),
        "memory": operator["memoryUsedBytes"],
        "removed": operator["numRowsRemoved"],
        "dropped": operator["numRowsDroppedByWatermark"],
    }


if __name__ == "__main__":
    main(sys.argv[1:])
