"""How soon an early pane is seen: files fall into a folder on schedule, whether anyone keeps up or not.

A writer of its own drops a small file every hundred milliseconds, a thousand events in each, and every event carries
the moment at which it was due. A pane's latency is the moment at which the driver holds it, less the moment at which
the last event it counts was due: so a writer or a reader that falls behind makes it worse, never better.

usage: python -m benchmarks.latency ORDER.json
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import strandline as sl
from benchmarks import sessions
from benchmarks.peers import stream
from benchmarks.workloads import DELAY, Contestant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.spark.deliver import Delivered

RATE: Final = 10_000
EVERY: Final = 0.1
KEYS: Final = 1_000
WINDOW: Final = 10
COLUMNS: Final = "key long, value long, at timestamp, due long"
FILES: Final = 1_000
"""The most files a batch may take: more than ever wait."""

Hear = Callable[[list[int]], None]


def write(folder: Path, seconds: float) -> None:
    """Drops files on schedule; `due` and event time are the moment a file is due, in milliseconds."""
    random = np.random.default_rng(7)
    count = int(RATE * EVERY)
    begin = time.time() + EVERY
    for number in range(int(seconds / EVERY)):
        due = begin + number * EVERY
        key, value = random.integers(0, KEYS, count), random.integers(0, 100, count)
        at = pa.array(np.full(count, int(due * 1000) * 1000), pa.timestamp("us", tz="UTC"))
        table = pa.table({"key": key, "value": value, "at": at, "due": np.full(count, int(due * 1000))})
        draft = folder / f".{number:06d}.parquet"
        time.sleep(max(0.0, due - time.time()))
        pq.write_table(table, draft)
        draft.rename(folder / f"{number:06d}.parquet")


def main(arguments: list[str]) -> None:
    path = Path(arguments[0])
    order = json.loads(path.read_text())
    if order["contestant"] == "writer":
        write(Path(order["folder"]), order["seconds"])
        return
    contestant = Contestant(order["contestant"])
    folder = path.parent / "events"
    folder.mkdir()
    spark = sessions.start(contestant, path.parent / "spark.log")
    heard: list[tuple[float, list[int]]] = []
    play = _ours if contestant is Contestant.OURS else _native
    stop = play(spark, folder, path.parent / "checkpoint", lambda dues: heard.append((time.time(), dues)))
    batches = _fed(path.parent, folder, order["seconds"], spark)
    stop()
    told = {"heard": [[moment, dues] for moment, dues in heard], "batches": batches}
    (path.parent / "run.json").write_text(json.dumps(told))
    spark.stop()


def _fed(home: Path, folder: Path, seconds: float, spark: "SparkSession") -> list[float]:
    """The writer runs as a process of its own while the query does; the seconds of each of its batches."""
    (home / "writer.json").write_text(json.dumps({"contestant": "writer", "folder": str(folder), "seconds": seconds}))
    command = [sys.executable, "-m", "benchmarks.latency", str(home / "writer.json")]
    subprocess.run(command, env=os.environ, check=True)
    query = spark.streams.active[0]
    return [each["durationMs"]["triggerExecution"] / 1000 for each in query.recentProgress if each["numInputRows"] > 1]


def _native(spark: "SparkSession", folder: Path, checkpoint: Path, hear: Hear) -> Callable[[], None]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - Spark's own habit

    totals = (
        stream(spark, str(folder), files=FILES, columns=COLUMNS)
        .withWatermark("at", f"{DELAY} seconds")
        .groupBy("key", F.window("at", f"{WINDOW} seconds"))
        .agg(F.sum("value").alias("total"), F.count("*").alias("plays"), F.max("due").alias("due"))
    )

    def deliver(frame: "DataFrame", batch: int) -> None:  # noqa: ARG001 - Spark's signature
        hear(frame.toArrow()["due"].to_pylist())

    query = (
        totals.writeStream.foreachBatch(deliver)
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )
    return query.stop


def _ours(spark: "SparkSession", folder: Path, checkpoint: Path, hear: Hear) -> Callable[[], None]:
    totals = (
        sl.read(sl.files(str(folder), COLUMNS, format="parquet", files_per_batch=FILES))
        .event_time("at", sl.bounded(seconds=DELAY))
        .key_by("key")
        .window(sl.tumbling(seconds=WINDOW))
        .trigger(sl.after_watermark(early=sl.repeatedly(sl.after_count(1))))
        .accumulate(sl.accumulating)
        .aggregate(total=sl.sum("value"), plays=sl.count(), due=sl.max("due"))
    )

    def deliver(delivered: "Delivered") -> None:
        panes = delivered.output.panes
        if panes is not None:
            hear(panes["due"].to_list())

    job = totals.write(sl.discard()).run(spark, checkpoint=checkpoint, listener=deliver)
    stop: Callable[[], None] = job.stop
    return stop


def latencies(told: dict[str, Any], warm_up: float) -> list[float]:
    """Milliseconds from due to seen, pane by pane; those due in the warm-up, and repeated ones, do not count."""
    begin = min((due for _, dues in told["heard"] for due in dues), default=0)
    found, newest = [], begin + warm_up * 1000
    for moment, dues in told["heard"]:
        # A window that closes speaks once more with nothing new in it: nobody waited for that.
        found += [moment * 1000 - due for due in dues if due > newest]
        newest = max([newest, *dues])
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
