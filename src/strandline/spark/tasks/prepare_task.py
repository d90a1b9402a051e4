"""Prepare the rows of a task in mapInArrow: read the facts of its batch, and send addressed blocks."""

import time
from collections.abc import Callable
from dataclasses import replace

import polars as pl
import pyarrow as pa

from strandline.execution.prepare import Seam, SourceName, Steps, carried, leaving_task, prepare_scan, tick
from strandline.execution.row_decoding import Batches
from strandline.execution.task_writes import NO_WRITERS, Writers
from strandline.plan.stages import KeyedStep, Scan
from strandline.ports.codecs import Decoder
from strandline.ports.sources import topic_of
from strandline.spark.batch_properties import current_batch, task_number
from strandline.spark.patches.worker_gc import freeze_imports
from strandline.spark.tasks.decode_task import as_crossed


def prepare_task(
    scan: Scan, steps: Steps, decoder: Decoder | None, writers: Writers = NO_WRITERS
) -> Callable[[Batches], Batches]:
    """Return the function that Spark runs over one partition of a source. The source itself is not pickled."""
    alone, topic = scan.source.partitions == ("",), topic_of(scan.source)
    scan = replace(scan, source=SourceName(scan.source.name))  # type: ignore[arg-type]

    def run(batches: Batches) -> Batches:
        freeze_imports()
        begun = time.perf_counter()
        tables = [batch for batch in batches if batch.num_rows]
        if tables:
            read, batch = time.perf_counter(), current_batch()
            frame = as_crossed(tables, batch.files, topic)
            blocks = prepare_scan(frame, scan, steps, decoder, batch, task_number(), alone=alone)
            yield from carried(leaving_task(blocks, writers, batch, begun, read))

    return run


def tick_task(steps: tuple[KeyedStep, ...], seam: Seam | None = None) -> Callable[[Batches], Batches]:
    """Return the function that Spark runs over the heartbeat: it sends clock, drain or seam to every key group."""

    def run(batches: Batches) -> Batches:
        freeze_imports()
        tables = [batch for batch in batches if batch.num_rows]
        if tables:
            yield from carried(
                tick(pl.DataFrame(pa.Table.from_batches(tables)), steps, current_batch(), task_number(), seam)
            )

    return run
