"""Files that tasks read by themselves: Spark lists them, divides them among tasks and keeps positions.

A row that Spark reads becomes columns, rows, columns again and bytes in a socket before Python has it. Where nothing is
to be done to rows in Spark, only the names of their files need to cross. See docs/decisions/0020.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from pyspark.sql import SparkSession

from strandline.plan.stages import Scan
from strandline.ports.protocols import FILE_NAME, ByName, SparkSource
from strandline.spark.batch_properties import task_number, told
from strandline.spark.patches.worker_gc import spare_imports
from strandline.spark.tasks.prepare import SourceName, Steps, carried, leaving_task, prepare_scan
from strandline.spark.tasks.row_decoding import Batches
from strandline.spark.tasks.task_writes import Writers


def passes_no_row(scan: Scan) -> bool:
    """Whether a local Spark would never see a row of it."""
    return not scan.native and isinstance(scan.source, ByName) and scan.source.is_plain


def is_here(scan: Scan, spark: SparkSession) -> bool:
    """Whether tasks find the driver's files under the same names, and Spark has nothing to do to the rows."""
    return not scan.native and (spark.sparkContext.master or "").startswith("local")


def pieces_task(
    scan: Scan, steps: Steps, pieces: Sequence[Any], reader: Callable[[Any], pl.DataFrame], writers: Writers
) -> Callable[[Batches], Batches]:
    """The function that Spark runs over the numbers of pieces, one to a task."""

    def read(batches: Batches) -> Iterator[pl.DataFrame]:
        for batch in batches:
            yield from (reader(pieces[number]) for number in batch["id"].to_pylist())

    return _task(scan, steps, read, writers)


def named_task(
    scan: Scan, steps: Steps, reader: Callable[[Sequence[str]], Iterator[pl.DataFrame]], writers: Writers
) -> Callable[[Batches], Batches]:
    """The function that Spark runs over the names of files."""

    def read(batches: Batches) -> Iterator[pl.DataFrame]:
        yield from reader([name for batch in batches for name in batch[FILE_NAME].to_pylist()])

    return _task(scan, steps, read, writers)


def _task(
    scan: Scan, steps: Steps, read: Callable[[Batches], Iterator[pl.DataFrame]], writers: Writers
) -> Callable[[Batches], Batches]:
    source: SparkSource = scan.source  # type: ignore[assignment]
    alone, decoder = source.partitions == ("",), source.decoder
    scan = replace(scan, source=SourceName(scan.source.name))  # type: ignore[arg-type]

    def run(batches: Batches) -> Batches:
        spare_imports()
        mine, begun = told(), time.perf_counter()
        for part, frame in enumerate(read(batches)):
            came = time.perf_counter()
            blocks = prepare_scan(frame, scan, steps, decoder, mine, task_number(), alone=alone, part=part)
            yield from carried(leaving_task(blocks, writers, mine, begun, came))
            begun = time.perf_counter()

    return run
