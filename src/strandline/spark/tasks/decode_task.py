"""Decode records in mapInArrow, before expressions of Spark run on them."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import polars as pl
import pyarrow as pa

from strandline.execution.row_decoding import Batches, decoded
from strandline.kernel.blocks.column_types import to_arrow
from strandline.ports.codecs import Decoder
from strandline.ports.raw_records import SPLIT
from strandline.spark.batch_properties import current_batch
from strandline.spark.tasks.partition_codes import with_names
from strandline.spark.tasks.unpack_topic_rows import is_packed, unpacked


def decode_task(decoder: Decoder, topic: str | None = None) -> Callable[[Batches], Batches]:
    """Return the function for mapInArrow that decodes records for expressions of Spark."""

    def run(batches: Batches) -> Batches:
        for some in _grouped(batches):
            frame = decoded(as_crossed(some, current_batch().files, topic), decoder)
            yield from _for_spark(frame, decoder).to_batches()

    return run


def _for_spark(frame: pl.DataFrame, decoder: Decoder) -> pa.Table:
    """Convert decoded rows to Arrow types that Spark reads: it knows no large lists, which Polars makes."""
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    nested = {name: to_arrow(kind) for name, kind in decoder.types.items() if "<" in kind}
    if not nested:
        return table
    kinds = [each.with_type(nested.get(each.name) or each.type) for each in table.schema]
    return table.cast(pa.schema(kinds))


def _grouped(batches: Batches) -> Iterator[list[pa.RecordBatch]]:
    """Group batches: one at a time, but lines all at once, because they are numbered."""
    full = (batch for batch in batches if batch.num_rows)
    for batch in full:
        yield [batch, *full] if SPLIT in batch.schema.names else [batch]


def as_crossed(batches: Sequence[pa.RecordBatch], files: Mapping[int, str], topic: str | None = None) -> pl.DataFrame:
    """Return rows with the columns of the source's stream, packed or not."""
    if is_packed(batches[0]):
        return unpacked(batches)
    return with_names(pl.DataFrame(pa.Table.from_batches(batches)), files, topic)
