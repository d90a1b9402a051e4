"""Turn Arrow batches from Spark into rows: raw records to decode, columns of Spark, or records decoded earlier."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import polars as pl
import pyarrow as pa

from strandline.kernel.blocks.block import OFFSET, OWN, PARTITION
from strandline.kernel.dead_letters import CUT, MASKED, TOO_LARGE
from strandline.kernel.panics import PanicException, message_of
from strandline.kernel.stateless_steps import spread
from strandline.ports.codecs import DETAIL, RAW, REASON, UNDECODABLE, Decoded, Decoder
from strandline.ports.raw_records import RECORD, SIZE, SPLIT, TICKED

MARK: Final = "@mark"
CLOCK: Final = "@clock"

Batches = Iterator[pa.RecordBatch]

DECODED: Final = (
    f"`{PARTITION}` string, `{OFFSET}` long, `{MARK}` int, "
    f"`{RAW}` binary, `{REASON}` string, `{DETAIL}` string, `{MASKED}` string"
)
"""Columns beside the user's where records are decoded in an earlier mapInArrow."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """Rows with PARTITION and OFFSET, undecodable records, and marks about partitions."""

    rows: pl.DataFrame
    dead: pl.DataFrame
    marks: pl.DataFrame
    read: int


_DECODED: Final = {
    PARTITION: pl.String, OFFSET: pl.Int64, RAW: pl.Binary, REASON: pl.String, DETAIL: pl.String, MASKED: pl.String,
}  # fmt: skip
"""Columns of an undecodable record."""
_MARKS: Final = {PARTITION: pl.String, MARK: pl.Int32, OFFSET: pl.Int64, "rows": pl.Int64}
_CUT: Final = "a record of {} bytes, more than are read; its first {} are kept here, the whole where it came from"


def of_records(frame: pl.DataFrame, decoder: Decoder) -> Arrived:
    """Decode raw records."""
    known = _known(frame)
    records = known.filter(pl.col(MARK) == RECORD)
    decoded = _decode(records, decoder)
    rows = _unique_places(_with_others(decoded.rows, known), records.height - decoded.dead.height)
    return Arrived(rows, decoded.dead, _marks(known), rows.height + decoded.dead.height)


def _known(frame: pl.DataFrame) -> pl.DataFrame:
    """Rename the columns and make offsets unique: lines are numbered from the start of their block.

    A line has at least one byte, so the numbers of one block end before the next block starts.
    """
    known = frame.rename({"partition": PARTITION, "offset": OFFSET, "value": RAW, "mark": MARK})
    if SPLIT not in known.columns:
        return known
    block, row = pl.struct(PARTITION, OFFSET).rle_id(), pl.int_range(pl.len(), dtype=pl.Int64)
    numbered = known.with_columns(block.alias("@block"), row.alias("@row"))
    return numbered.with_columns(pl.col(OFFSET) + pl.col("@row") - pl.col("@row").first().over("@block")).drop(
        "@block", "@row"
    )


def _decode(records: pl.DataFrame, decoder: Decoder) -> Decoded:
    """Decode records. Records that their source cut off become dead letters: the rest might decode to something."""
    place = [PARTITION, OFFSET, RAW, *([SPLIT] if SPLIT in records.columns else [])]
    if SIZE not in records.columns or records[SIZE].null_count() == records.height:
        return decode_or_refuse(records.select(place), decoder)
    whole = pl.col(SIZE).is_null()
    found = decode_or_refuse(records.filter(whole).select(place), decoder)
    cut = records.filter(~whole).select(
        PARTITION,
        OFFSET,
        RAW,
        pl.lit(TOO_LARGE).alias(REASON),
        pl.format(_CUT, SIZE, pl.col(RAW).bin.size()).alias(DETAIL),
        pl.lit(CUT).alias(MASKED),
    )
    return Decoded(found.rows, pl.concat([found.dead, cut], how="diagonal"))


def decode_or_refuse(records: pl.DataFrame, decoder: Decoder) -> Decoded:
    """Decode records. If Polars panics, halve them: the record on which it does becomes a dead letter."""
    try:
        return decoder.decode(records)
    except PanicException as problem:
        if records.height < 2:
            reason = pl.lit(UNDECODABLE).alias(REASON)
            dead = records.select(PARTITION, OFFSET, RAW, reason, pl.lit(message_of(problem)).alias(DETAIL))
            return Decoded(decoder.decode(records.clear()).rows, dead)
    middle = records.height // 2
    halves = [decode_or_refuse(part, decoder) for part in (records[:middle], records[middle:])]
    return Decoded(
        pl.concat([each.rows for each in halves], how="vertical_relaxed"),
        pl.concat([each.dead for each in halves], how="diagonal_relaxed"),
    )


def _unique_places(rows: pl.DataFrame, records: int) -> pl.DataFrame:
    """Make places unique where one record gave several rows, as an update in a changelog does."""
    if rows.height <= records:
        return rows
    return spread(rows, pl.int_range(pl.len(), dtype=pl.Int64).over(PARTITION, OFFSET))


def _with_others(rows: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Join the columns that are known without decoding."""
    others = [name for name in known.columns if not name.startswith(OWN)]
    if not others:
        return rows
    return rows.join(
        known.select(PARTITION, OFFSET, *others), on=[PARTITION, OFFSET], how="left", maintain_order="left"
    )


def of_columns(frame: pl.DataFrame, clock: int, task: int, *, alone: bool = False) -> Arrived:
    """Take Spark's columns. If the source gives no offsets, the batch, task and row identify an element."""
    placed = PARTITION in frame.columns
    if not placed:
        frame = frame.with_columns(
            pl.lit(f"{clock}.{task}").alias(PARTITION), pl.int_range(pl.len(), dtype=pl.Int64).alias(OFFSET)
        )
    if alone or not placed:
        marks = pl.DataFrame({PARTITION: [""], OFFSET: [0], MARK: [RECORD], "rows": [frame.height]})
        return Arrived(frame, pl.DataFrame(schema=_DECODED), marks, frame.height)
    marks = _marks(frame.with_columns(pl.lit(RECORD).alias(MARK)))
    return Arrived(frame, pl.DataFrame(schema=_DECODED), marks, frame.height)


def of_decoded(frame: pl.DataFrame) -> Arrived:
    """Split records that an earlier mapInArrow decoded."""
    records = frame.filter(pl.col(MARK) == RECORD)
    rows = records.filter(pl.col(REASON).is_null()).drop(MARK, REASON, DETAIL, MASKED)
    dead = records.filter(pl.col(REASON).is_not_null()).select(*_DECODED)
    return Arrived(rows, dead, _marks(frame), records.height)


def decoded(frame: pl.DataFrame, decoder: Decoder) -> pl.DataFrame:
    """Return records with the columns DECODED and the user's."""
    known = _known(frame)
    found = _decode(known.filter(pl.col(MARK) == RECORD), decoder)
    marks = known.filter(pl.col(MARK) != RECORD).select(PARTITION, OFFSET, MARK)
    rows = [_with_others(found.rows, known), found.dead, marks]
    whole = pl.concat(rows, how="diagonal_relaxed").with_columns(pl.col(MARK).fill_null(RECORD).cast(pl.Int32))
    order = [PARTITION, OFFSET, MARK, RAW, REASON, DETAIL, MASKED]
    missing = [pl.lit(None, _DECODED[name]).alias(name) for name in order if name not in whole.columns]
    return whole.with_columns(missing).select(*order, pl.exclude(f"^{OWN}.*$"))


def as_one(arrived: Arrived) -> Arrived:
    """Count all marks as those of one partition."""
    if not arrived.marks.height:
        return arrived
    one = {PARTITION: [""], OFFSET: [0], MARK: [RECORD], "rows": [int(arrived.marks["rows"].sum())]}
    return replace(arrived, marks=pl.DataFrame(one))


def _marks(known: pl.DataFrame) -> pl.DataFrame:
    """Count rows by partition and mark, with their first offset."""
    if known.height and (known[MARK] == RECORD).all() and (known[PARTITION] == known[PARTITION][0]).all():
        # Most tasks have records of one partition, which need no grouping.
        first = {PARTITION: [known[PARTITION][0]], MARK: [RECORD], OFFSET: [known[OFFSET].min()]}
        return pl.DataFrame({**first, "rows": [known.height]}, schema=_MARKS)
    marks = known.lazy().filter(pl.col(MARK) < TICKED)
    counted = marks.group_by(PARTITION, MARK).agg(pl.col(OFFSET).min(), pl.len().cast(pl.Int64).alias("rows"))
    return counted.sort(PARTITION, MARK).collect()
