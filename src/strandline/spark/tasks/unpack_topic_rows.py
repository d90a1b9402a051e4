"""Unpack rows that hold many Kafka records, as views of the received bytes, without copying."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from strandline.errors import BrokenBlock
from strandline.kernel.blocks.binary_views import views
from strandline.kernel.blocks.column_types import YEAR_ONE, YEAR_TEN_THOUSAND
from strandline.ports.raw_records import PACKED, RECORD, SIZE

_INT: Final = 4
_NONE: Final = -1

Many = npt.NDArray[np.int64]
"""Number of records in each row."""


def is_packed(batch: pa.RecordBatch) -> bool:
    """Whether the rows of a batch are packed."""
    return f"{PACKED}value" in batch.schema.names


def unpacked(batches: Sequence[pa.RecordBatch]) -> pl.DataFrame:
    """Return one row for each record. Other columns of a packed row are repeated for each of its records."""
    table = pa.Table.from_batches(batches)
    cells = {name.removeprefix(PACKED): table[name] for name in table.column_names if name.startswith(PACKED)}
    others = pl.DataFrame(table.select([name for name in table.column_names if not name.startswith(PACKED)]))
    offsets = [cell.as_buffer() if cell.is_valid else b"" for cell in cells["offset"]]
    counts: Many = np.array([len(each) // 8 for each in offsets], np.int64)
    rows = np.repeat(np.arange(len(counts)), counts)
    places = pl.DataFrame({"topic": pl.Series(cells["topic"]), "number": pl.Series(cells["partition"])})
    found = {
        "partition": places.select(pl.format("{}-{}", "topic", "number")).to_series().gather(rows),
        "offset": _numbers(cells["offset"], counts, np.int64),
        "value": _bytes(cells["value"], counts),
        "mark": pl.repeat(RECORD, len(rows), dtype=pl.Int32, eager=True),
    }
    if "size" in cells:
        sizes = _numbers(cells["size"], counts, np.int32)
        found[SIZE] = sizes.set(sizes == _NONE, None)
    named = (place.partition(":") for place in cells)
    found |= {name: _field(field, cells[f"{field}:{name}"], counts, rows) for field, _, name in named if name}
    return pl.DataFrame(found).hstack(others[rows])


def _field(field: str, column: pa.ChunkedArray, counts: Many, rows: Many) -> pl.Series:
    """Unpack a metadata column of Kafka."""
    match field:
        case "key":
            return _bytes(column, counts)
        case "offset":
            return _numbers(column, counts, np.int64)
        case "timestamp":
            return _instants(_numbers(column, counts, np.int64))
        case "timestampType":
            return _numbers(column, counts, np.int32)
        case _:
            return pl.Series(column).gather(rows)


def _instants(milliseconds: pl.Series) -> pl.Series:
    """Convert timestamps; those outside years 1 to 9999, which a broker may accept, become null."""
    there = milliseconds.is_between(YEAR_ONE, YEAR_TEN_THOUSAND, closed="left")
    return (milliseconds.set(~there, None) * 1000).cast(pl.Datetime("us", "UTC"))


def _numbers(column: pa.ChunkedArray, counts: Many, kind: Any) -> pl.Series:
    """Unpack numbers. A null cell means null for all records of its row."""
    found = [np.empty(0, kind)]
    for cell, records in zip(column, counts, strict=True):
        if not cell.is_valid:
            found.append(np.full(records, _NONE, kind))
            continue
        block = cell.as_buffer()
        if len(block) != records * np.dtype(kind).itemsize:
            raise _broken(f"{len(block)} bytes are no {records} numbers")
        found.append(np.frombuffer(block, kind))
    return pl.Series(np.concatenate(found))


def _bytes(column: pa.ChunkedArray, counts: Many) -> pl.Series:
    """Unpack bytes. A cell has the length of each record, negative for null, and then all bytes."""
    found = [pl.Series([], dtype=pl.Binary)]
    for cell, records in zip(column, counts, strict=True):
        block = cell.as_buffer() if cell.is_valid else b""
        if len(block) < _INT * records:
            raise _broken(f"{len(block)} bytes hold no {records} lengths")
        sizes = np.frombuffer(block, np.int32, records).astype(np.int64)
        ends = np.cumsum(np.maximum(sizes, 0)) + _INT * records
        if records and ends[-1] > len(block):  # a view beyond the block would read foreign memory
            raise _broken(f"{len(block)} bytes hold no records of {ends[-1] - _INT * records} bytes")
        found.append(views(block, ends - np.maximum(sizes, 0), sizes))
    return pl.concat(found).rechunk()


def _broken(why: str) -> BrokenBlock:
    return BrokenBlock("a packed row of a topic is damaged", detail=why, hint="STRANDLINE_PATCHES=-topic_blocks")
