"""Read files in Python tasks. Spark only lists them, divides them among tasks and keeps offsets.

A row that Spark reads is converted to columns, rows, columns and bytes of a socket before Python has it. Where
Spark has nothing to do to rows, only file names cross to Python (decision 0020).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from pyspark.sql import SparkSession

from strandline.execution.prepare import SourceName, Steps, carried, leaving_task, prepare_scan
from strandline.execution.row_decoding import Batches
from strandline.execution.task_writes import Writers
from strandline.plan.stages import Scan
from strandline.ports.raw_records import FILE_NAME
from strandline.ports.sources import SparkSource, TaskReadSource
from strandline.spark.batch_properties import current_batch, task_number
from strandline.spark.patches.worker_gc import freeze_imports


def passes_no_row(scan: Scan) -> bool:
    """Whether a local Spark never gets a row of this scan."""
    return not scan.native and isinstance(scan.source, TaskReadSource) and scan.source.is_plain


def tasks_can_read(scan: Scan, spark: SparkSession) -> bool:
    """Whether tasks can open the driver's files, and Spark has nothing to do to the rows."""
    return not scan.native and (spark.sparkContext.master or "").startswith("local")


def pieces_task(
    scan: Scan, steps: Steps, pieces: Sequence[Any], reader: Callable[[Any], pl.DataFrame], writers: Writers
) -> Callable[[Batches], Batches]:
    """Return the function for mapInArrow over numbers of pieces, one a task."""

    def read(batches: Batches) -> Iterator[pl.DataFrame]:
        for arrow in batches:
            yield from (reader(pieces[number]) for number in arrow["id"].to_pylist())

    return _task(scan, steps, read, writers)


def named_task(
    scan: Scan, steps: Steps, reader: Callable[[Sequence[str]], Iterator[pl.DataFrame]], writers: Writers
) -> Callable[[Batches], Batches]:
    """Return the function for mapInArrow over file names."""

    def read(batches: Batches) -> Iterator[pl.DataFrame]:
        yield from reader([name for arrow in batches for name in arrow[FILE_NAME].to_pylist()])

    return _task(scan, steps, read, writers)


def _task(
    scan: Scan, steps: Steps, read: Callable[[Batches], Iterator[pl.DataFrame]], writers: Writers
) -> Callable[[Batches], Batches]:
    source: SparkSource = scan.source  # type: ignore[assignment]
    single_partition, decoder = source.partitions == ("",), source.decoder
    scan = replace(scan, source=SourceName(scan.source.name))  # type: ignore[arg-type]

    def run(batches: Batches) -> Batches:
        freeze_imports()
        batch, started = current_batch(), time.perf_counter()
        for part, frame in enumerate(read(batches)):
            read_at = time.perf_counter()
            blocks = prepare_scan(frame, scan, steps, decoder, batch, task_number(), alone=single_partition, part=part)
            yield from carried(leaving_task(blocks, writers, batch, started, read_at))
            started = time.perf_counter()

    return run
