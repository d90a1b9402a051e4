"""Run one contestant in a process and a JVM of its own: timed over the streams, then checked over their beginning.

usage: python -m benchmarks.joins.contestant ORDER.json     what to run is in the file; the result is in run.json
"""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import strandline as sl
from benchmarks import sessions
from benchmarks.contestant import batches_of, counts_of, played, rows_of
from benchmarks.corpus import FILES
from benchmarks.feeds import Folder
from benchmarks.joins.events import COLUMNS, DELAY, WITHIN
from benchmarks.peers.spark import stream
from benchmarks.workloads import Contestant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.spark.delivery.deliver import Delivered


@dataclass(frozen=True, slots=True)
class Order:
    """What to run: the streams to time, and the beginning of them to check, unless this run is not checked."""

    contestant: Contestant
    how: str
    folder: str
    check: str | None
    home: Path
    state_format: int = 2
    warm_up: float = 0


def read_order(path: Path) -> Order:
    """Read an order that the harness wrote."""
    order = json.loads(path.read_text())
    return Order(**{**order, "contestant": Contestant(order["contestant"])}, home=path.parent)


def main(arguments: list[str]) -> None:
    order = read_order(Path(arguments[0]))
    also = {"spark.sql.streaming.join.stateFormatVersion": str(order.state_format)}
    spark = sessions.start(order.contestant, order.home / "spark.log", Folder(order.folder), also=also)
    until, times = time.monotonic() + order.warm_up, 0
    while time.monotonic() < until:
        run(spark, order, order.folder, f"warm-{times}")
        times += 1
    result: dict[str, Any] = {"timed": run(spark, order, order.folder, "timed")}
    if order.check is not None:
        for name, value in sessions.while_checking().items():
            spark.conf.set(name, value)
        emitted = order.home / "emitted"
        emitted.mkdir()
        result["checked"] = run(spark, order, order.check, "checked", emitted)
    (order.home / "run.json").write_text(json.dumps(result))
    spark.stop()


def pipeline(folder: str, how: str, *, shown: bool = False) -> sl.Pipeline:
    """Build our pipeline. `shown` brings the emitted rows to the driver; otherwise they are discarded."""
    left, right = (
        sl.read(sl.files(f"{folder}/{side}", COLUMNS, format="parquet", files_per_batch=FILES)).event_time(
            "at", sl.bounded(seconds=DELAY)
        )
        for side in ("left", "right")
    )
    joined = left.join(right).on("key").within(after=f"{WITHIN}s", how=how)
    if shown:
        return joined.write(sl.call(lambda *_: None, name="shown"), delivery="at_least_once")
    return joined.write(sl.discard())


def native(spark: "SparkSession", folder: str, how: str) -> "DataFrame":
    """Build the same in native Spark."""
    left, right = (
        stream(spark, f"{folder}/{side}", columns=COLUMNS).withWatermark("at", f"{DELAY} seconds")
        for side in ("left", "right")
    )
    other = right.selectExpr("key as key_right", "at as at_right", "number as number_right", "amount as amount_right")
    condition = f"key = key_right AND at_right >= at AND at_right <= at + interval {WITHIN} seconds"
    from pyspark.sql.functions import expr  # noqa: PLC0415 - only a process with Spark needs it

    return left.join(other, expr(condition), "inner" if how == "inner" else "left_outer")


def run(spark: "SparkSession", order: Order, folder: str, name: str, emitted: Path | None = None) -> dict[str, Any]:
    """Run to the end of the streams; write the emitted rows for the judge, or discard them."""
    if order.contestant is Contestant.OURS:
        return _ours(spark, order, folder, order.home / name, emitted)
    frame = native(spark, folder, order.how)
    if emitted is None:
        return played(frame.writeStream.format("noop"), order.home / name)

    def keep(rows: "DataFrame", batch: int) -> None:
        rows.select("number", "number_right").write.parquet(f"{emitted}/{batch}")

    return played(frame.writeStream.foreachBatch(keep), order.home / name)


def _ours(spark: "SparkSession", order: Order, folder: str, checkpoint: Path, emitted: Path | None) -> dict[str, Any]:
    started = time.time()
    read: dict[int, int] = {}
    spent: dict[int, dict[str, Any]] = {}

    def hear(delivered: "Delivered") -> None:
        read[delivered.batch] = rows_of(delivered)
        spent[delivered.batch] = {"busy": dict(delivered.measured.seconds), "took": dict(delivered.took)}
        rows = delivered.output.panes
        if emitted is not None and rows is not None and rows.height:
            rows.select("number", "number_right").write_parquet(emitted / f"{delivered.batch}.parquet")

    asked = pipeline(folder, order.how, shown=emitted is not None)
    job = asked.run(spark, checkpoint=checkpoint, available_now=True, listener=hear)
    query = spark.streams.active[0]
    job.await_end()
    batches = [batch | spent.get(batch["batch"], {}) for batch in batches_of(query.recentProgress, read)]
    return {"started": started, "ended": time.time(), "batches": batches, "counts": counts_of(job)}


if __name__ == "__main__":
    main(sys.argv[1:])
