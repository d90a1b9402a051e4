"""Measure early-pane latency: files arrive in a folder on a fixed schedule (open loop).

A separate writer creates a file of a thousand events every hundred milliseconds. Each event carries the moment it was
due. A pane's latency runs from the moment its last event was due to the moment the driver holds it, so a slow writer or
reader makes it worse, never better.

usage: python -m benchmarks.latency ORDER.json
"""

import json
import os
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import strandline as sl
from benchmarks import sessions
from benchmarks.feeds import Folder
from benchmarks.peers.spark import stream
from benchmarks.sessions import Room
from benchmarks.suite import CORES
from benchmarks.workloads import DELAY, Contestant
from strandline.model.panes import Timing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.spark.delivery.deliver import Delivered
    from strandline.spark.job import Job

RATE: Final = 10_000
EVERY: Final = 0.1
KEYS: Final = 1_000
WINDOW: Final = 10
COLUMNS: Final = "key long, value long, at timestamp, due long"
FILES: Final = 1_000
"""Maximum files per batch: more than ever wait."""

PRIMED: Final = 10
PATIENCE: Final = 120

Hear = Callable[[list[int], list[int]], None]
"""Output of a batch: due time of each pane's last event, and ends of on-time windows."""

Heard = list[tuple[float, list[int], list[int]]]


@dataclass(frozen=True, slots=True)
class Setting:
    """How a job runs: events per second, trigger interval, shuffle partitions, our key groups, and further Spark
    settings."""

    rate: int = RATE
    trigger: str = "0 seconds"
    partitions: int | None = None
    key_groups: int | None = None
    settings: dict[str, str] = field(default_factory=dict)


def write(folder: Path, seconds: float, rate: int = RATE, every: float = EVERY) -> None:
    """Write files on schedule."""
    random = np.random.default_rng(7)
    begin = time.time() + every
    for number in range(int(seconds / every)):
        due = begin + number * every
        time.sleep(max(0.0, due - time.time()))
        drop(folder, f"{number:06d}.parquet", due, random, max(int(rate * every), 1))


def drop(folder: Path, name: str, due: float, random: np.random.Generator, count: int = int(RATE * EVERY)) -> None:
    """Write one file atomically; `due` and event time are its scheduled moment in milliseconds."""
    moment = int(due * 1000)
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
        write(Path(order["folder"]), order["seconds"], order["rate"], order["every"])
        return
    contestant, how = Contestant(order["contestant"]), Setting(**order.get("setting", {}))
    folder = path.parent / "events"
    folder.mkdir()
    log, room = path.parent / "spark.log", Room(CORES, how.partitions)
    spark = sessions.start(contestant, log, Folder(str(folder)), room, how.settings)
    heard: Heard = []
    play = partial(_ours, key_groups=how.key_groups) if contestant is Contestant.OURS else _native
    hear: Hear = lambda dues, ends: heard.append((time.time(), dues, ends))  # noqa: E731 - a single word
    stop = play(spark, folder, path.parent / "checkpoint", hear, how.trigger)
    prime(folder, lambda due: any(due in dues for _, dues, _ in heard))
    began = time.time()
    feed(path.parent, folder, order["seconds"], how.rate)
    stop()
    (path.parent / "run.json").write_text(json.dumps({"began": began, "heard": heard}))
    spark.stop()


def prime(folder: Path, is_heard: Callable[[int], bool]) -> None:
    """Process a few files first, so that compiling and loading code is not measured."""
    random = np.random.default_rng(8)
    for number in range(PRIMED):
        due = time.time()
        drop(folder, f"prime-{number}.parquet", due, random)
        while not is_heard(int(due * 1000)):
            if time.time() > due + PATIENCE:
                raise TimeoutError(f"a first file was not heard of for {PATIENCE} s")
            time.sleep(0.02)


def feed(home: Path, folder: Path, seconds: float, rate: int = RATE, every: float = EVERY) -> None:
    """Run the writer as a separate process, so that it keeps its schedule."""
    order = {"contestant": "writer", "folder": str(folder), "seconds": seconds, "rate": rate, "every": every}
    (home / "writer.json").write_text(json.dumps(order))
    command = [sys.executable, "-m", "benchmarks.latency", str(home / "writer.json")]
    subprocess.run(command, env=os.environ, check=True)


def _native(spark: "SparkSession", folder: Path, checkpoint: Path, hear: Hear, trigger: str) -> Callable[[], None]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - Spark's own habit

    totals = (
        stream(spark, str(folder), files=FILES, columns=COLUMNS)
        .withWatermark("at", f"{DELAY} seconds")
        .groupBy("key", F.window("at", f"{WINDOW} seconds"))
        .agg(F.sum("value").alias("total"), F.count("*").alias("plays"), F.max("due").alias("due"))
    )

    def deliver(frame: "DataFrame", batch: int) -> None:  # noqa: ARG001 - Spark's signature
        hear(frame.toArrow()["due"].to_pylist(), [])

    query = (
        totals.writeStream.foreachBatch(deliver)
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime=trigger)
        .start()
    )
    return query.stop


def _ours(
    spark: "SparkSession", folder: Path, checkpoint: Path, hear: Hear, trigger: str, key_groups: int | None = None
) -> Callable[[], None]:
    from strandline.kernel.blocks.block import END  # noqa: PLC0415 - beside Spark, in the process that runs it
    from strandline.kernel.window.panes import TIMING  # noqa: PLC0415

    def deliver(delivered: "Delivered") -> None:
        panes = delivered.output.panes
        if panes is not None:
            on_time = panes.filter(panes[TIMING] == Timing.ON_TIME)
            hear(panes["due"].to_list(), on_time[END].unique().to_list())

    stop: Callable[[], None] = start(spark, folder, checkpoint, deliver, trigger, key_groups).stop
    return stop


def start(
    spark: "SparkSession",
    folder: Path,
    checkpoint: Path,
    listener: "Callable[[Delivered], None]",
    trigger: str,
    key_groups: int | None = None,
) -> "Job":
    """Start our job: an early pane per change, and one on time."""
    totals = (
        sl.read(sl.files(str(folder), COLUMNS, format="parquet", files_per_batch=FILES))
        .event_time("at", sl.bounded(seconds=DELAY))
        .key_by("key")
        .window(sl.tumbling(seconds=WINDOW))
        .trigger(sl.after_watermark(early=sl.repeatedly(sl.after_count(1))))
        .accumulate(sl.accumulating)
        .aggregate(total=sl.sum("value"), plays=sl.count(), due=sl.max("due"))
    )
    written = totals.write(sl.discard())
    job: Job = written.run(spark, checkpoint=checkpoint, listener=listener, every=trigger, key_groups=key_groups)
    return job


def latencies(told: dict[str, Any], warm_up: float) -> list[float]:
    """Return milliseconds from due to seen per pane, without the warm-up."""
    found: list[float] = []
    newest = (told["began"] + warm_up) * 1000
    for moment, dues, *_ in told["heard"]:
        # A closing window emits once more without new elements; that pane does not count.
        found += [moment * 1000 - due for due in dues if due > newest]
        newest = max([newest, *dues])
    return found


def on_time(told: dict[str, Any], warm_up: float) -> list[float]:
    """Return milliseconds from the due time of the event that completed a window to its on-time pane."""
    found, since = [], (told["began"] + warm_up) * 1000
    dues = sorted({due for _, dues, _ in told["heard"] for due in dues})
    for moment, _, ends in told["heard"]:
        complete = [end + DELAY * 1000 for end in ends]
        # No pane can be on time before the first file past the watermark delay; take the schedule from the output.
        waited = [dues[place] for place in (bisect_left(dues, each) for each in complete) if place < len(dues)]
        found += [moment * 1000 - due for due in waited if due > since]
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
