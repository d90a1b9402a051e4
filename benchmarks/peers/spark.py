"""Define the Spark peers: native operators, or hand-written state per key."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, assert_never

from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.corpus import FILES
from benchmarks.feeds import AVRO, EVENTS, Feed, Folder, Form, Topic
from benchmarks.workloads import (
    DELAY,
    Contestant,
    Distinct,
    Everything,
    Session,
    Sliding,
    Tumbling,
    Window,
    Workload,
)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

SAID: Final = "key long, start_ms long, end_ms long, total long, plays long"


def stream(spark: "SparkSession", folder: str, *, files: int = FILES, columns: str = EVENTS) -> "DataFrame":
    """Read the corpus as a stream, a number of files per batch."""
    return spark.readStream.schema(columns).option("maxFilesPerTrigger", files).parquet(folder)


def records(spark: "SparkSession", topic: Topic) -> "DataFrame":
    """Read a topic's records undecoded."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", topic.servers)
        .option("subscribe", topic.name)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", topic.per_batch)
        .load()
    )


def read(spark: "SparkSession", feed: Feed) -> "DataFrame":
    """Decode a feed's events with Spark's functions."""
    match feed:
        case Folder(path):
            return stream(spark, path)
        case Topic(form=Form.JSON):
            event = F.from_json(F.col("value").cast("string"), EVENTS)
        case Topic(form=Form.AVRO):
            # Spark does not support registries: cut off the id and use one schema for all.
            event = from_avro(F.expr("substring(value, 6)"), AVRO)
        case _:
            raise ValueError(f"no peer reads {feed}")
    return records(spark, feed).select(event.alias("event")).select("event.*")


def peer(spark: "SparkSession", feed: Feed, workload: Workload, contestant: Contestant) -> "DataFrame":
    """Build a peer's query."""
    events = read(spark, feed)
    match contestant:
        case Contestant.NATIVE_ROCKSDB | Contestant.NATIVE_MEMORY:
            return native(events, workload.window)
        case Contestant.BY_KEY:
            return by_key(events, workload.window)
        case Contestant.BY_KEY_ROW:
            return by_key_row(events, workload.window)
        case Contestant.CEILING:
            return events.mapInArrow(_unchanged, EVENTS)
        case (
            Contestant.OURS
            | Contestant.AT_ONCE
            | Contestant.PLAIN
            | Contestant.POLARS
            | Contestant.POLARS_EACH
            | Contestant.DUCKDB
        ):
            raise ValueError(f"{contestant} is no stream of a peer's")
    assert_never(contestant)


def _unchanged(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    return batches


def native(events: "DataFrame", window: Window) -> "DataFrame":
    """Build the native query: windows emit once, late rows are dropped; without a window all state is kept."""
    totals = F.sum("value").alias("total"), F.count("*").alias("plays")
    timed = events.withWatermark("at", f"{DELAY} seconds")
    match window:
        case Distinct():
            return timed.dropDuplicates(["key", "value", "at"])
        case Everything():
            return events.groupBy("key").agg(*totals)
        case _:
            return timed.groupBy("key", _window(window).alias("window")).agg(*totals)


def plain(spark: "SparkSession", folder: str, window: Window) -> "DataFrame":
    """Compute the same result as a batch job."""
    grouped = spark.read.schema(EVENTS).parquet(folder).groupBy("key", _window(window).alias("window"))
    return grouped.agg(F.sum("value").alias("total"), F.count("*").alias("plays"))


def _window(window: Window) -> "Column":
    match window:
        case Tumbling(seconds):
            return F.window("at", f"{seconds} seconds")
        case Sliding(seconds, every):
            return F.window("at", f"{seconds} seconds", f"{every} seconds")
        case Session(gap):
            return F.session_window("at", f"{gap} seconds")
        case Everything() | Distinct():
            raise ValueError(f"Spark has no window that is {window}")
    assert_never(window)


def as_cells(frame: "DataFrame") -> "DataFrame":
    """Convert a peer's output to cells; it has no retractions."""
    if "window" in frame.columns:
        bounds = [F.unix_millis(f"window.{name}").alias(f"{name}_ms") for name in ("start", "end")]
        frame = frame.select("key", *bounds, "total", "plays")
    elif "at" in frame.columns:
        value, once = F.col("value"), F.lit(1).cast("long")
        told = {"start_ms": F.unix_millis("at"), "end_ms": value, "total": value, "plays": once}
        frame = frame.select("key", *(column.alias(name) for name, column in told.items()))
    elif "start_ms" not in frame.columns:
        never = F.lit(0).cast("long")
        frame = frame.select("key", never.alias("start_ms"), never.alias("end_ms"), "total", "plays")
    return frame.withColumn("sign", F.lit(1))


def by_key(events: "DataFrame", window: Window) -> "DataFrame":
    """Build the query with state and timers per key and window; without windows, state with a time to live."""
    if isinstance(window, Everything):
        # With processing-time timers, batches without events would never end.
        events.sparkSession.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        forgetting = ForgettingTotals(window.forgotten * 1000)
        return events.groupBy("key").transformWithStateInPandas(forgetting, SAID, "Update", "ProcessingTime")
    if not isinstance(window, Tumbling):
        raise TypeError("written for tumbling windows only")
    return (
        events.withWatermark("at", f"{DELAY} seconds")
        .groupBy("key")
        .transformWithStateInPandas(WindowedTotals(window.seconds * 1000), SAID, "Append", "EventTime")
    )


def by_key_row(events: "DataFrame", window: Window) -> "DataFrame":
    """Build the same query row by row."""
    if not isinstance(window, Tumbling):
        raise TypeError("written for tumbling windows only")
    return (
        events.withWatermark("at", f"{DELAY} seconds")
        .groupBy("key")
        .transformWithState(RowTotals(window.seconds * 1000), SAID, "Append", "EventTime")
    )


class WindowedTotals(StatefulProcessor):
    """Totals per key: a map of open windows with an event-time timer each."""

    def __init__(self, length_ms: int) -> None:
        self._length = length_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._open = handle.getMapState("open", "end_ms long", "total long, plays long")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,  # noqa: ARG002
        rows: Any,
        timerValues: Any,  # noqa: N803
    ) -> "Iterator[pd.DataFrame]":
        watermark = timerValues.getCurrentWatermarkInMs()
        added: dict[int, tuple[int, int]] = {}
        for frame in rows:
            # With few rows per key, plain loops over arrays cost a fraction of pandas' grouping.
            times = frame["at"].to_numpy("datetime64[ms]").astype("int64").tolist()
            for at, value in zip(times, frame["value"].tolist(), strict=True):
                end = at // self._length * self._length + self._length
                total, plays = added.get(end, (0, 0))
                added[end] = (total + value, plays + 1)
        for end, (total, plays) in added.items():
            if end > watermark:
                self._add(end, total, plays)
        return iter(())

    def _add(self, end: int, total: int, plays: int) -> None:
        held = self._open.getValue((end,))
        if held is None:
            self._handle.registerTimer(end)
        else:
            total, plays = held[0] + total, held[1] + plays
        self._open.updateValue((end,), (total, plays))

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: Any,  # noqa: ARG002, N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> "Iterator[pd.DataFrame]":
        import pandas as pd  # noqa: PLC0415 - in the worker

        end = expiredTimerInfo.getExpiryTimeInMs()
        held: Any = self._open.getValue((end,))
        self._open.removeKey((end,))
        yield pd.DataFrame({
            "key": [key[0]], "start_ms": [end - self._length], "end_ms": [end], "total": [held[0]], "plays": [held[1]],
        })  # fmt: skip

    def close(self) -> None:
        pass


class ForgettingTotals(StatefulProcessor):
    """Totals per key with a time to live."""

    def __init__(self, kept_ms: int) -> None:
        self._kept = kept_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._totals = handle.getValueState("totals", "total long, plays long", ttlDurationMs=self._kept)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Any,
        timerValues: Any,  # noqa: ARG002, N803
    ) -> "Iterator[pd.DataFrame]":
        import pandas as pd  # noqa: PLC0415 - in the worker

        total, plays = self._totals.get() or (0, 0)
        for frame in rows:
            total, plays = total + int(frame["value"].sum()), plays + len(frame)
        self._totals.update((total, plays))
        yield pd.DataFrame({"key": [key[0]], "start_ms": [0], "end_ms": [0], "total": [total], "plays": [plays]})

    def close(self) -> None:
        pass


class RowTotals(WindowedTotals):
    """The same, processing single rows."""

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,  # noqa: ARG002
        rows: Any,
        timerValues: Any,  # noqa: N803
    ) -> "Iterator[Any]":
        watermark = timerValues.getCurrentWatermarkInMs()
        added: dict[int, tuple[int, int]] = {}
        for row in rows:
            at = round(row.at.timestamp() * 1000)
            end = at // self._length * self._length + self._length
            total, plays = added.get(end, (0, 0))
            added[end] = (total + row.value, plays + 1)
        for end, (total, plays) in added.items():
            if end > watermark:
                self._add(end, total, plays)
        return iter(())

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: Any,  # noqa: ARG002, N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> "Iterator[Any]":
        end = expiredTimerInfo.getExpiryTimeInMs()
        held: Any = self._open.getValue((end,))
        self._open.removeKey((end,))
        yield Row(key=key[0], start_ms=end - self._length, end_ms=end, total=held[0], plays=held[1])
