"""Translate stages into a Spark DataFrame: sources and heartbeat, then blocks by key group, level by level."""

from collections.abc import Callable, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from strandline.errors import InvalidStep, hide_internal_columns
from strandline.execution.block_addresses import CARRIER
from strandline.execution.prepare import Seam
from strandline.execution.row_decoding import CLOCK, DECODED, MARK
from strandline.execution.task_writes import NO_WRITERS, Writers
from strandline.kernel.blocks.block import OWN
from strandline.model.lookup_join import LookupJoin
from strandline.plan.stages import Flagged, KeyedStep, Scan, Stages
from strandline.plan.stateless_operations import FlatMap, Gather, Map, Operation, Select, Spread, Where
from strandline.ports.codecs import REASON
from strandline.ports.raw_records import RECORD
from strandline.ports.sources import FileListSource, SparkSource, TaskReadSource, topic_of
from strandline.spark.error_messages import translate_error, unresolved, without_query_context_logs
from strandline.spark.sources.paused_source import PausedSource
from strandline.spark.sources.read_in_task import named_task, tasks_can_read
from strandline.spark.tasks.decode_task import decode_task
from strandline.spark.tasks.key_group_processor import KeyGroupProcessor, play_level
from strandline.spark.tasks.partition_codes import without_names
from strandline.spark.tasks.prepare_task import prepare_task, tick_task


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
    frame = with_native(frame, scan)
    if clock:
        # The clock is the timestamp of the batch, which Spark stores in its offset log and repeats on replay.
        frame = frame.withColumn(CLOCK, F.current_timestamp())
    return frame.mapInArrow(prepare_task(scan, steps_of(scan, stages), decoder, writers), CARRIER)


def with_native(frame: DataFrame, scan: Scan) -> DataFrame:
    """Run the operations of a scan that are expressions of Spark."""
    for operation in scan.native:
        frame = _native(frame, operation)
    return frame


def _native(frame: DataFrame, operation: Operation | Flagged) -> DataFrame:
    """Apply an operation as a Spark expression; raise Spark's error in the user's words."""
    with without_query_context_logs():
        return _translated(frame, operation)


def _translated(frame: DataFrame, operation: Operation | Flagged) -> DataFrame:
    try:
        return _applied(frame, operation)
    except PySparkException as problem:
        for sql in _texts(operation):
            _refuse_sql(frame, sql, is_condition=not isinstance(operation, Select))
        raise (translate_error(problem) or InvalidStep("Spark cannot run this step", hint="see spark.log")) from problem


def _refuse_sql(frame: DataFrame, sql: str, *, is_condition: bool) -> None:
    """Raise the error of an expression by itself, without what Strandline adds to it."""
    try:
        (field,) = frame.select(F.expr(sql)).schema.fields
    except PySparkException as problem:
        found = unresolved(problem, sql, frame.columns)
        if found is not None:
            raise found from problem
        first = hide_internal_columns(str(problem).strip().partition("\n")[0])
        raise InvalidStep(f"Spark cannot run «{sql}»", detail=first, hint="correct the expression") from problem
    kind = field.dataType.simpleString()
    if is_condition and kind != "boolean":
        raise InvalidStep(
            f"the condition «{sql}» is a {kind}", detail="a condition is true or false", hint="compare it: … > 0"
        )


def _texts(operation: Operation | Flagged) -> tuple[str, ...]:
    match operation:
        case Flagged(_, condition):
            return (condition,)
        case Where(condition):
            return (condition.text,)
        case Select(columns, _):
            return tuple(each.text for _, each in columns)
        case _:
            return ()


def _applied(frame: DataFrame, operation: Operation | Flagged) -> DataFrame:
    """Return the frame after an operation. Undecodable records and marks pass every condition."""
    match operation:
        case Flagged(flag, condition):
            flagged = frame.withColumn(flag, F.expr(condition))
            if flagged.schema[flag].dataType.simpleString() != "boolean":
                _refuse_sql(frame, condition, is_condition=True)
            return flagged
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
        case Map() | FlatMap() | Spread() | Gather() | LookupJoin():
            raise AssertionError(f"{operation} is not native")
