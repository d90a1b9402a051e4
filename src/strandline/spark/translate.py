"""Translate stages into a Spark DataFrame: sources and heartbeat, then blocks by key group, level by level."""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from strandline.kernel.blocks.block import OWN
from strandline.plan.stages import Flagged, KeyedStep, Scan, Stages
from strandline.plan.stateless_operations import FlatMap, Gather, Map, Operation, Select, Spread, Where
from strandline.ports.codecs import REASON
from strandline.ports.raw_records import RECORD
from strandline.ports.sources import FileListSource, SparkSource, TaskReadSource, topic_of
from strandline.spark.sources.paused_source import PausedSource
from strandline.spark.sources.read_in_task import named_task, tasks_can_read
from strandline.spark.tasks.block_addresses import CARRIER
from strandline.spark.tasks.keyed_step import KeyGroupProcessor, play_level
from strandline.spark.tasks.partition_codes import without_names
from strandline.spark.tasks.prepare import Seam, prepare_task, tick_task
from strandline.spark.tasks.row_decoding import CLOCK, DECODED, MARK, decode_task
from strandline.spark.tasks.task_writes import NO_WRITERS, Writers


def translate(
    stages: Stages,
    spark: SparkSession,
    ticks: Callable[[], DataFrame],
    *,
    clock: bool = False,
    seam: Seam | None = None,
    writers: Writers = NO_WRITERS,
) -> DataFrame:
    """Return a stream of addressed blocks; those that leave the last level are delivered.

    `ticks` returns the heartbeat. It is called last, because it may still be starting while the sources are set up.
    `clock` adds the batch's time to every row, where no driver sends it to the tasks.
    `writers` are sinks to which tasks write rows themselves.
    """
    frames = [_read(scan, stages, spark, writers, clock=clock) for scan in stages.scans]
    beats = ticks().withColumn(CLOCK, F.current_timestamp()) if clock else ticks()
    # Sources come first, so that their offsets come first in Spark's offset log.
    carried, *others = [*frames, beats.mapInArrow(tick_task(stages.timed, seam), CARRIER)]
    for frame in others:
        carried = carried.unionByName(frame)
    for level, _ in enumerate(stages.levels, 1):
        processor = KeyGroupProcessor(*play_level(stages.by_number, level))
        carried = carried.groupBy("kg").transformWithState(processor, CARRIER, "Append", "None")
    return carried


def _read(scan: Scan, stages: Stages, spark: SparkSession, writers: Writers, *, clock: bool) -> DataFrame:
    if isinstance(scan.source, PausedSource):
        return scan.source.carried(spark)
    if not clock and tasks_can_read(scan, spark) and isinstance(scan.source, TaskReadSource) and scan.source.is_plain:
        task = named_task(scan, steps_of(scan, stages), scan.source.by_name(), writers)
        return scan.source.names(spark).mapInArrow(task, CARRIER)
    frame = _source(scan).stream(spark)
    named = frame if clock or not isinstance(scan.source, FileListSource) else without_names(frame)
    return prepared(scan, stages, named, writers, clock=clock)


def _source(scan: Scan) -> SparkSource:
    return scan.source  # type: ignore[return-value]


def steps_of(scan: Scan, stages: Stages) -> Mapping[int, KeyedStep]:
    """Return the steps that rows of a scan go to. Spark sends them to each task."""
    targets = {route.step for flow in scan.flows for route in flow.routes}
    return {number: step for number, step in stages.by_number.items() if number in targets}


def prepared(scan: Scan, stages: Stages, frame: DataFrame, writers: Writers, *, clock: bool = False) -> DataFrame:
    """Prepare the rows of a source for the key groups."""
    source = _source(scan)
    decoder = source.decoder
    if decoder is not None and scan.native:
        columns = ", ".join(f"`{name}` {kind}" for name, kind in source.types.items())
        frame = frame.mapInArrow(decode_task(decoder, topic_of(source)), f"{DECODED}, {columns}")
    for operation in scan.native:
        frame = _native(frame, operation)
    if clock:
        # The clock is the timestamp of the batch, which Spark stores in its offset log and repeats on replay.
        frame = frame.withColumn(CLOCK, F.current_timestamp())
    return frame.mapInArrow(prepare_task(scan, steps_of(scan, stages), decoder, writers), CARRIER)


def _native(frame: DataFrame, operation: Operation | Flagged) -> DataFrame:
    """Apply an operation as a Spark expression. Undecodable records and marks pass every condition."""
    match operation:
        case Flagged(flag, condition):
            return frame.withColumn(flag, F.expr(condition))
        case Where(condition):
            held = F.expr(condition.text)
            if MARK in frame.columns:
                held = (F.col(MARK) != RECORD) | F.col(REASON).isNotNull() | held
            return frame.where(held)
        case Select(columns, beside):
            made = [F.expr(each.text).alias(name) for name, each in columns]
            names = {name for name, _ in columns}
            stay = [name for name in frame.columns if name not in names and (beside or name.startswith(OWN))]
            return frame.select(*(F.col(f"`{name}`") for name in stay), *made)
        case Map() | FlatMap() | Spread() | Gather():
            raise AssertionError(f"{operation} is not native")
