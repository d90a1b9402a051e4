"""Define the state stores and columns of deduplication, and write their slices."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from strandline.kernel.blocks.block import AT
from strandline.kernel.blocks.hashing import hashed
from strandline.kernel.blocks.small_frames import only
from strandline.kernel.state import slice_deltas
from strandline.kernel.state.partitioning import key_slices, ordered
from strandline.kernel.state.slice_deltas import SliceChanges
from strandline.kernel.state.slice_rows import Store
from strandline.kernel.state.slice_store import DUE_CLOCK, DUE_WATERMARK, Slice, by_slice, pack_slice
from strandline.kernel.watermarks import FOREVER
from strandline.model.deduplicate import Deduplicate

FIRST: Final = Store("first", "first")
"""Keys and times of emitted elements, in slices by event time, or by key if they never expire."""
LAST: Final = Store("last", "last")
"""The last element of each key, in slices by key."""
HASH: Final = "@hash"
"""Hash of the key columns, as a signed integer; rows of a block are sorted by it."""
SLICES: Final = 8
"""Slices per `within`; expired rows are deleted this many times per span."""


def with_hash(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Add the hash of the key columns."""
    return rows.with_columns(pl.Series(HASH, hashed(only(rows, keys)).view(np.int64)))


def span_of(definition: Deduplicate) -> int | None:
    """Return the event time that a slice covers; None if elements never expire."""
    return None if definition.within is None else max(definition.within.ms // SLICES, 1)


def first_slices(rows: pl.DataFrame, keys: Sequence[str], definition: Deduplicate) -> pl.Series:
    """Number the slice of each row of the first store."""
    span = span_of(definition)
    return key_slices(only(rows, keys)) if span is None else rows.select((pl.col(AT) // span).alias("slice"))["slice"]


def with_deadline(rows: pl.DataFrame, definition: Deduplicate) -> pl.DataFrame:
    """Add the watermark at which rows expire, rounded up so that a slice is rarely rewritten for cleanup."""
    within, span = definition.within, span_of(definition)
    gone = pl.lit(FOREVER)
    if within is not None and span is not None:
        gone = (pl.col(AT) // span + 1) * span + within.ms + definition.lateness.ms
        gone = pl.when(pl.col(AT) >= FOREVER - 2 * within.ms - definition.lateness.ms).then(FOREVER).otherwise(gone)
    return rows.with_columns(gone.cast(pl.Int64).alias(DUE_WATERMARK), pl.lit(None, pl.Int64).alias(DUE_CLOCK))


def write_rows(
    store: Store, rows: pl.DataFrame, numbers: pl.Series, changing: Mapping[int, SliceChanges]
) -> tuple[dict[str, bytes | None], dict[int, Slice]]:
    """Write rows by slice: a delta if the slice is in `changing`, else the whole slice."""
    writes: dict[str, bytes | None] = {}
    entries: dict[int, Slice] = {}
    for number, part in by_slice(rows, numbers).items():
        if number in changing:
            deltas, entries[number] = slice_deltas.end(changing[number], part, (HASH,))
            writes |= deltas
        else:
            writes[store.place(number)], entries[number] = pack_slice(store, ordered(part, (HASH, AT)), {})
    return writes, entries


def deleted(store: Store, number: int, entry: Slice) -> dict[str, bytes | None]:
    """Delete a slice with its deltas."""
    return dict.fromkeys((store.place(number), *store.delta_places(number, entry.deltas)))
