"""Our side of a run, through the public names only."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import strandline as sl
from benchmarks.corpus import FILES
from benchmarks.feeds import AVRO, EVENTS, Feed, Folder, Form, Lines, Topic
from benchmarks.workloads import DELAY, Panes, Session, Sliding, Tumbling, Window, Workload

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import SparkSession

    from strandline.model.windows import WindowKind
    from strandline.plan.endpoints import Source
    from strandline.spark.deliver import Delivered
    from strandline.spark.job import Job


def pipeline(feed: Feed, workload: Workload, *, ends: bool = False) -> sl.Pipeline:
    """The workload in our words."""
    keyed = (
        read(feed, ends=ends)
        .event_time("at", sl.bounded(seconds=DELAY))
        .key_by("key")
        .window(kind_of(workload.window))
        .allow_lateness(seconds=workload.lateness)
    )
    if workload.panes is Panes.ALL:
        spoken = sl.after_watermark(early=sl.repeatedly(sl.after_count(1)), late=sl.repeatedly(sl.after_count(1)))
        keyed = keyed.trigger(spoken).accumulate(sl.retracting)
    return keyed.aggregate(total=sl.sum("value"), plays=sl.count()).write(sl.discard())


def read(feed: Feed, *, ends: bool = False) -> sl.Elements:
    """The events of a feed."""
    if not isinstance(feed, Lines):
        return sl.read(source_of(feed, ends=ends))
    import polars as pl  # noqa: PLC0415 - where lines are read

    source = sl.files(feed.lines, sl.json("key long, value long, ms long"), files_per_batch=1)
    return sl.read(source).with_columns(at=pl.from_epoch("ms", time_unit="ms").dt.replace_time_zone("UTC"))


def source_of(feed: Folder | Topic, *, ends: bool = False) -> "Source":
    """A feed in our words."""
    match feed:
        case Folder(path):
            return sl.files(path, EVENTS, format="parquet", files_per_batch=FILES, ends=ends)
        case Topic(name, servers, form, per_batch, url):
            value = sl.json(EVENTS) if form is Form.JSON else sl.avro(AVRO, registry=sl.registry(url))
            return sl.kafka(name, servers=servers, value=value, records_per_batch=per_batch)
    assert_never(feed)


def kind_of(window: Window) -> "WindowKind":
    """A workload's window in our words."""
    match window:
        case Tumbling(seconds):
            return sl.tumbling(seconds=seconds)
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
    """A job that reads what is there and ends: as a stream, or at once."""
    asked = pipeline(feed, workload, ends=at_once)
    job: Job = asked.run(spark, checkpoint=checkpoint, available_now=not at_once, listener=listener)
    return job


def as_cells(panes: "pl.DataFrame") -> "pl.DataFrame":
    """Our panes as the judge reads them: a retraction counts against what it takes back."""
    import polars as pl  # noqa: PLC0415 - beside Spark, in the process that runs it

    from strandline.kernel.blocks import END, START  # noqa: PLC0415
    from strandline.kernel.panes import RETRACTION  # noqa: PLC0415

    sign: Any = pl.when(pl.col(RETRACTION)).then(-1).otherwise(1)
    return panes.select(
        "key", pl.col(START).alias("start_ms"), pl.col(END).alias("end_ms"), "total", "plays", sign.alias("sign")
    )
