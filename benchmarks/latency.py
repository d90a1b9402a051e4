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
from benchmarks.feeds import Folder
from benchmarks.peers.spark import stream
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

PRIMED: Final = 10
PATIENCE: Final = 120

Hear = Callable[[list[int]], None]


def write(folder: Path, seconds: float) -> None:
    """Drops files on schedule."""
    random = np.random.default_rng(7)
    begin = time.time() + EVERY
    for number in range(int(seconds / EVERY)):
        due = begin + number * EVERY
        time.sleep(max(0.0, due - time.time()))
        drop(folder, f"{number:06d}.parquet", due, random)


def drop(folder: Path, name: str, due: float, random: np.random.Generator) -> None:
    """One file, there at once and whole; `due` and event time are the moment it is due, in milliseconds."""
    count, moment = int(RATE * EVERY), int(due * 1000)
    table = pa.table({
        "key": random.integers(0, KEYS, count),
        "value": random.integers(0, 100, count),
        "at": pa.array(np.full(count, moment * 1000), pa.timestamp("us", tz="UTC")),
        "due": np.full(count, moment),
    })  # fmt: skip
    draft = folder / f".{name}"
    pq.write_table(table, draft)
    draft.rename(folder / name)


def main(arguments: list[str]) -> None:
    path = Path(arguments[0])
    order = json.loads(path.read_text())
    if order["contestant"] == "writer":
        write(Path(order["folder"]), order["seconds"])
        return
    contestant = Contestant(order["contestant"])
    folder = path.parent / "events"
    folder.mkdir()
    spark = sessions.start(contestant, path.parent / "spark.log", Folder(str(folder)))
    heard: list[tuple[float, list[int]]] = []
    play = _ours if contestant is Contestant.OURS else _native
    stop = play(spark, folder, path.parent / "checkpoint", lambda dues: heard.append((time.time(), dues)))
    _prime(folder, heard)
    began = time.time()
    _feed(path.parent, folder, order["seconds"])
    stop()
    (path.parent / "run.json").write_text(json.dumps({"began": began, "heard": heard}))
    spark.stop()


def _prime(folder: Path, heard: list[tuple[float, list[int]]]) -> None:
    """A first few files, one after the other: nobody is measured by how its code is compiled and loaded."""
    random = np.random.default_rng(8)
    for number in range(PRIMED):
        before, due = len(heard), time.time()
        drop(folder, f"prime-{number}.parquet", due, random)
        while not any(int(due * 1000) in dues for _, dues in heard[before:]):
            if time.time() > due + PATIENCE:
                raise TimeoutError(f"a first file was not heard of for {PATIENCE} s")
            time.sleep(0.02)


def _feed(home: Path, folder: Path, seconds: float) -> None:
    """The writer is a process of its own, so that it keeps its schedule while the query runs."""
    (home / "writer.json").write_text(json.dumps({"contestant": "writer", "folder": str(folder), "seconds": seconds}))
    command = [sys.executable, "-m", "benchmarks.latency", str(home / "writer.json")]
    subprocess.run(command, env=os.environ, check=True)


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
    """Milliseconds from due to seen, pane by pane; those due in the warm-up do not count."""
    found: list[float] = []
    newest = (told["began"] + warm_up) * 1000
    for moment, dues in told["heard"]:
        # A window that closes speaks once more with nothing new in it: nobody waited for that.
        found += [moment * 1000 - due for due in dues if due > newest]
        newest = max([newest, *dues])
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
