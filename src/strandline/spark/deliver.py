"""foreachBatch: gather what the key groups say, check that nobody is missing, and commit it under one ledger entry."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from strandline.errors import StateError
from strandline.kernel.blocks import unpack
from strandline.kernel.output import Output, gather
from strandline.spark.checkpoint import Checkpoint
from strandline.spark.ports import LedgerEntry, OpenSink
from strandline.spark.prepare import HORIZON


@dataclass(frozen=True, slots=True)
class Delivered:
    """A batch that is in the sink: what it said, and where its sources stood."""

    batch: int
    output: Output
    offsets: dict[str, Any]
    repeated: bool


class Deliverer:
    """Carries batches from Spark to a sink, one after the other."""

    def __init__(
        self,
        spark: SparkSession,
        sink: OpenSink,
        checkpoint: Checkpoint,
        lineage: str,
        tell: Callable[[Delivered], None],
    ) -> None:
        self._spark = spark
        self._sink = sink
        self._checkpoint = checkpoint
        self._lineage = lineage
        self._epoch = sink.claim(lineage)
        self._tell = tell

    def __call__(self, frame: DataFrame, batch: int) -> None:
        # What the sink will hold may not outlive the range it came from.
        digest = self._checkpoint.seal(batch)
        before = self._sink.recorded(self._lineage, batch - 1)
        # Tasks of this batch see the property, since the batch runs inside this call.
        self._spark.sparkContext.setLocalProperty(HORIZON, None if before is None else str(before.watermark))  # type: ignore[arg-type]
        output = _gather(frame)
        if output.counts.missing:
            raise StateError(
                f"batch {batch}: {output.counts.missing} elements are unaccounted for", detail=str(output.counts)
            )
        written = self._sink.commit(output, LedgerEntry(self._lineage, self._epoch, batch, digest))
        offsets = self._checkpoint.offsets(batch) or {}
        self._tell(Delivered(batch, output, offsets, repeated=not written))


def _gather(frame: DataFrame) -> Output:
    """One action over the whole frame: a second would play the batch again."""
    carried = pl.DataFrame(frame.toArrow()).sort("kg")
    return gather(
        unpack(data, f"key group {group}, output") for group, data in carried.select("kg", "block").iter_rows()
    )
