"""Run bounded input as one batch job, without micro-batches and without a state store (decision 0016).

    read all ──► prepare ──► shuffle by key group ──► step, from empty state, once ──► deliver

Prepare, step, delivery and ledger are those of a stream. The whole input is one range, and the heartbeat ticks once,
with a drain, so that every key group advances to the end of time.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from strandline.execution.block_addresses import CARRIER
from strandline.execution.keyed_step import sender_of
from strandline.execution.prepare import CARRIED
from strandline.execution.row_decoding import Batches
from strandline.execution.task_metrics import Measured, collected, with_metrics
from strandline.execution.task_writes import NO_WRITERS, Writers
from strandline.kernel.blocks.block import pack, unpack
from strandline.plan.stages import Scan, Stages
from strandline.ports.raw_records import DRAINED, RAW_COLUMNS
from strandline.ports.sources import BoundedSource, SplittableSource
from strandline.spark.launch.session import OF_RECORDS
from strandline.spark.patches.worker_gc import freeze_imports
from strandline.spark.sources.read_in_task import pieces_task
from strandline.spark.sources.read_in_task import tasks_can_read as is_read_in_task
from strandline.spark.sources.source_extent import Extent
from strandline.spark.tasks.key_group_processor import Play, play_level
from strandline.spark.tasks.prepare_task import tick_task
from strandline.spark.translate import prepared, steps_of

_GROUP: Final = "strandline-at-once"


class Query:
    """A batch job with the interface of a streaming query: it ends, it may fail, it can be stopped."""

    recentProgress: Final = ()  # noqa: N815 - Spark's name

    def __init__(
        self, spark: SparkSession, act: Callable[[], None], name: str, read: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self._spark, self._name = spark, f"{_GROUP}-{name}"
        ends = [{"endOffset": offsets, "latestOffset": offsets} for offsets in read]
        self.lastProgress: dict[str, Any] = {"batchId": 0, "sources": ends}
        """Spark reports no progress of a batch job. Its only batch reads each topic to the end of the slice."""
        self._problem: Exception | None = None
        self._stopped = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=[act], daemon=True)

    @property
    def group(self) -> str:
        """Return the group in which Spark runs the job."""
        return self._name

    def start(self) -> "Query":
        self._thread.start()
        return self

    def _run(self, act: Callable[[], None]) -> None:
        self._spark.sparkContext.setJobGroup(self._name, "bounded input, at once", interruptOnCancel=True)
        try:
            act()
        except Exception as problem:  # noqa: BLE001 - exception() returns it
            self._problem = problem
        finally:
            self._ended.set()

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's name
        self._ended.wait()

    def exception(self) -> Exception | None:
        return None if self._stopped else self._problem

    def stop(self) -> None:
        if not self._ended.is_set():
            self._stopped = True
            self._spark.sparkContext.cancelJobGroup(self._name)
            self._ended.wait()


def all_at_once(stages: Stages, extent: Extent, spark: SparkSession, writers: Writers = NO_WRITERS) -> DataFrame:
    """Return the blocks for delivery, as a DataFrame of addressed blocks."""
    session = _session(spark)
    frames: list[DataFrame] = []
    for scan, part in zip(stages.scans, extent.sources, strict=True):
        frames += _read(scan, part, stages, session, writers)
    last = session.createDataFrame([(None, 0, None, DRAINED)], RAW_COLUMNS).coalesce(1)
    frames.append(last.mapInArrow(tick_task(stages.timed), CARRIER))
    carried = reduce(DataFrame.unionByName, frames)
    for level, _ in enumerate(stages.levels, 1):
        play, tasks_can_read = play_level(stages.by_number, level)
        # Sorted by address, so that one key group is in memory at a time.
        shuffled = carried.repartition(spark.sparkContext.defaultParallelism, "kg")
        carried = shuffled.sortWithinPartitions("kg").mapInArrow(_play(play, tasks_can_read), CARRIER)
    return carried


def _read(scan: Scan, part: Any, stages: Stages, spark: SparkSession, writers: Writers) -> list[DataFrame]:
    """Read a source and prepare its rows. Where tasks can read it in Python, rows do not pass through Spark."""
    assert isinstance(scan.source, BoundedSource)  # noqa: S101 - an extent exists only for such sources
    pieces = (
        scan.source.pieces(part) if is_read_in_task(scan, spark) and isinstance(scan.source, SplittableSource) else None
    )
    if pieces and isinstance(scan.source, SplittableSource):
        numbers = spark.range(0, len(pieces), 1, len(pieces))
        task = pieces_task(scan, steps_of(scan, stages), pieces, scan.source.reader(part), writers)
        return [numbers.mapInArrow(task, CARRIER)]
    frame = scan.source.table(part, spark)
    return [] if frame is None else [prepared(scan, stages, frame, writers)]


def _session(spark: SparkSession) -> SparkSession:
    """Return a session with smaller Arrow batches: blocks are long, and an Arrow batch over 2 GB fails."""
    session = spark.newSession()
    for name, value in (spark.conf.getAll | OF_RECORDS).items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


def _play(play: Play, tasks_can_read: Callable[[int], bool]) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        freeze_imports()
        for to, packed in groupby(_rows(batches), key=lambda row: row[0]):
            if not tasks_can_read(to):
                yield from (_carried([(to, data)]) for _, data in packed)
                continue
            blocks = sorted((unpack(data, f"key group {to}, input") for _, data in packed), key=sender_of)
            begun, seen = time.perf_counter(), collected(blocks)
            _, sent = play(to, {}, blocks)
            if seen is not None:
                where, last = sent[-1]
                sent[-1] = where, with_metrics(last, seen + Measured({"step": time.perf_counter() - begun}))
            yield from (_carried([(where, pack(block))]) for where, block in sent)

    return run


def _rows(batches: Batches) -> Iterator[tuple[int, bytes]]:
    for batch in batches:
        yield from zip(batch["kg"].to_pylist(), batch["block"].to_pylist(), strict=True)


def _carried(rows: list[tuple[int, Any]]) -> pa.RecordBatch:
    columns = [pa.array([to for to, _ in rows], pa.int64()), pa.array([data for _, data in rows], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=CARRIED)
