"""Run Strandline's side of a benchmark, with public names only."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import strandline as sl
from benchmarks.corpus import FILES
from benchmarks.feeds import AVRO, EVENTS, Feed, Folder, Form, Lines, Topic
from benchmarks.workloads import DELAY, Distinct, Everything, Panes, Session, Sliding, Tumbling, Window, Workload

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import SparkSession

    from strandline.model.windows import WindowKind
    from strandline.plan.endpoints import Source
    from strandline.spark.delivery.deliver import Delivered
    from strandline.spark.job import Job


def pipeline(feed: Feed, workload: Workload, *, ends: bool = False) -> sl.Pipeline:
    """Build the workload in Strandline."""
    events = read(feed, ends=ends).event_time("at", sl.bounded(seconds=DELAY))
    match workload.window:
        case Distinct():
            # Elements for a window that has fired are emitted as late.
            keyed = events.key_by("key", "value", "at").window(kind_of(workload.window))
            first = keyed.trigger(sl.after_count(1), may_close=True)
            return first.aggregate(plays=sl.count()).write(sl.discard())
        case Everything(forgotten):
            keyed = events.key_by("key").window(sl.everything()).time_to_live(seconds=forgotten)
        case _:
            keyed = events.key_by("key").window(kind_of(workload.window)).allow_lateness(seconds=workload.lateness)
    if workload.panes is Panes.CHANGES:
        keyed = keyed.trigger(sl.repeatedly(sl.after_count(1))).accumulate(sl.accumulating)
    if workload.panes is Panes.ALL:
        spoken = sl.after_watermark(early=sl.repeatedly(sl.after_count(1)), late=sl.repeatedly(sl.after_count(1)))
        keyed = keyed.trigger(spoken).accumulate(sl.retracting)
    return keyed.aggregate(total=sl.sum("value"), plays=sl.count()).write(sl.discard())


def read(feed: Feed, *, ends: bool = False) -> sl.Elements:
    """Read the events of a feed."""
    if not isinstance(feed, Lines):
        return sl.read(source_of(feed, ends=ends))
    import polars as pl  # noqa: PLC0415 - where lines are read

    source = sl.files(feed.lines, sl.json("key long, value long, ms long"), files_per_batch=1)
    return sl.read(source).with_columns(at=pl.from_epoch("ms", time_unit="ms").dt.replace_time_zone("UTC"))


def source_of(feed: Folder | Topic, *, ends: bool = False) -> "Source":
    """Return the Strandline source of a feed."""
    match feed:
        case Folder(path):
            return sl.files(path, EVENTS, format="parquet", files_per_batch=FILES, ends=ends)
        case Topic(name, servers, form, per_batch, url):
            value = sl.json(EVENTS) if form is Form.JSON else sl.avro(AVRO, registry=sl.registry(url))
            return sl.kafka(name, servers=servers, value=value, records_per_batch=per_batch)
    assert_never(feed)


def kind_of(window: Window) -> "WindowKind":
    """Return the Strandline window of a workload."""
    match window:
        case Tumbling(seconds) | Distinct(seconds):
            return sl.tumbling(seconds=seconds)
        case Everything():
            return sl.everything()
        case Sliding(seconds, every):
            return sl.sliding(seconds=seconds, every=f"{every}s")
        case Session(gap):
            return sl.session(seconds=gap)
    assert_never(window)


def start(
    spark: "SparkSession",
    feed: Feed,
    workload: Workload,
    checkpoint: Path,
    listener: "Callable[[Delivered], None] | None" = None,
    *,
    at_once: bool = False,
) -> "Job":
    """Start a job over the available data, as a stream or as one batch."""
    asked = pipeline(feed, workload, ends=at_once)
    job: Job = asked.run(spark, checkpoint=checkpoint, available_now=not at_once, listener=listener)
    return job


def as_cells(panes: "pl.DataFrame", window: Window) -> "pl.DataFrame":
    """Convert our panes to signed cells; a retraction counts negatively."""
    import polars as pl  # noqa: PLC0415 - beside Spark, in the process that runs it

    from strandline.kernel.blocks.block import END, START  # noqa: PLC0415
    from strandline.kernel.window.panes import RETRACTION  # noqa: PLC0415

    sign: Any = pl.when(pl.col(RETRACTION)).then(-1).otherwise(1)
    start, end, total, plays = pl.col(START), pl.col(END), pl.col("total"), pl.col("plays")
    match window:
        case Everything():
            start = end = pl.lit(0, pl.Int64)
        case Distinct():
            # The number of copies at once depends on the batch.
            start, plays = pl.col("at").dt.epoch("ms"), pl.lit(1, pl.Int64)
            end = total = pl.col("value")
        case _:
            pass
    return panes.select("key", start_ms=start, end_ms=end, total=total, plays=plays, sign=sign)
