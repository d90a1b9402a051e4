"""Run one query in its own process and JVM: timed over the log, then checked over its first batches.

usage: python -m benchmarks.nexmark.contestant ORDER.json      the file names the run; the result is written beside it
"""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import sessions
from benchmarks.contestant import batches_of, counts_of, played, rows_of
from benchmarks.feeds import Folder
from benchmarks.nexmark import native, ours
from benchmarks.workloads import Contestant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.spark.delivery.deliver import Delivered


@dataclass(frozen=True, slots=True)
class Order:
    """What to run: the log to time and, optionally, its first batches to check."""

    query: str
    contestant: Contestant
    folder: str
    check: str | None
    home: Path
    warm_up: float = 0


def read_order(path: Path) -> Order:
    """Read an order written by the harness."""
    told = json.loads(path.read_text())
    return Order(**{**told, "contestant": Contestant(told["contestant"])}, home=path.parent)


def main(arguments: list[str]) -> None:
    order = read_order(Path(arguments[0]))
    spark = sessions.start(order.contestant, order.home / "spark.log", Folder(order.folder))
    until, times = time.monotonic() + order.warm_up, 0
    while time.monotonic() < until:
        answered(spark, order, order.folder, f"warm-{times}")
        times += 1
    told: dict[str, Any] = {"timed": answered(spark, order, order.folder, "timed")}
    if order.check is not None:
        kept = order.home / "said"
        kept.mkdir()
        told["checked"] = answered(spark, order, order.check, "checked", kept)
    (order.home / "run.json").write_text(json.dumps(told))
    spark.stop()


def answered(spark: "SparkSession", order: Order, folder: str, name: str, kept: Path | None = None) -> dict[str, Any]:
    """Run a query into a no-op sink, or keep its output for the check."""
    if order.contestant is Contestant.OURS:
        return _ours(spark, order, folder, order.home / name, kept)
    frame, mode = native.answer(spark, order.query, folder), native.mode_of(order.query)
    if kept is None:
        return played(frame.writeStream.format("noop"), order.home / name, mode)

    def keep(rows: "DataFrame", batch: int) -> None:
        native.as_rows(rows, batch).write.parquet(f"{kept}/{batch}")

    return played(frame.writeStream.foreachBatch(keep), order.home / name, mode)


def _ours(spark: "SparkSession", order: Order, folder: str, checkpoint: Path, kept: Path | None) -> dict[str, Any]:
    started = time.time()
    read: dict[int, int] = {}
    spent: dict[int, dict[str, Any]] = {}

    def hear(delivered: "Delivered") -> None:
        read[delivered.batch] = rows_of(delivered)
        spent[delivered.batch] = {"busy": dict(delivered.measured.seconds), "took": dict(delivered.took)}
        rows = delivered.output.panes
        if kept is not None and rows is not None and rows.height:
            ours.as_rows(rows, delivered.batch).write_parquet(kept / f"{delivered.batch}.parquet")

    job = ours.start(spark, order.query, folder, checkpoint, hear, shown=kept is not None)
    query = spark.streams.active[0]
    job.await_end()
    batches = [batch | spent.get(batch["batch"], {}) for batch in batches_of(query.recentProgress, read)]
    return {"started": started, "ended": time.time(), "batches": batches, "counts": counts_of(job)}


if __name__ == "__main__":
    main(sys.argv[1:])
