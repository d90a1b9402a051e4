"""Keep the last element of each key: emit a changelog in which a newer element replaces the one before it.

State has one row per key, in slices by key. An element replaces the stored row if it is not earlier and less than
`within` later: the operator emits a retraction, then the new element. An element that is `within` or more later starts
a new span: it replaces the stored row without a retraction. An earlier element is a duplicate.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from strandline.kernel.blocks.block import AT, SIGN, element_columns
from strandline.kernel.blocks.small_frames import only, without
from strandline.kernel.deduplicate.stores import HASH, LAST, deleted, with_deadline, write_rows
from strandline.kernel.operator import Batch
from strandline.kernel.state import slice_deltas
from strandline.kernel.state.partitioning import key_slices
from strandline.kernel.state.slice_store import NOT_STORED, Slices, due, read_slices
from strandline.model.deduplicate import Deduplicate

_OLD, _ROW, _GAP, _CHANGE = "@old", "@row", "@gap", "@change"


def keep_last(
    batch: Batch, elements: pl.DataFrame | None, keys: Sequence[str], definition: Deduplicate
) -> tuple[pl.DataFrame | None, int, dict[str, bytes | None], Slices]:
    """Return rows with signs, how many elements are duplicates, the blocks to write and the slices after the batch.

    Elements have HASH and are grouped by key, sorted by time and position.
    """
    known = batch.index.store(LAST.name)
    due_now = set[int]() if definition.within is None else due(known, batch.progress)
    new = elements if elements is not None and elements.height else None
    if new is None and not due_now:
        return None, 0, {}, known
    touched = {} if new is None else _touched(new, keys)
    with_delta = slice_deltas.slices_with_few_changes(
        known, {n: frames[0].height for n, frames in touched.items()}, due_now
    )
    whole = sorted(({*touched, *due_now} - with_delta) & known.keys())
    changing = slice_deltas.begin(batch.held, LAST, known, {n: touched[n] for n in with_delta}, (HASH,))
    read = [each.touched for each in changing.values() if each.touched.height]
    read += [*read_slices(batch.held, LAST, whole, known).values()]
    state = pl.concat(read, how="diagonal_relaxed") if read else None
    rows, last, duplicates = (None, state, 0) if new is None else _changed(state, new, keys, definition)
    writes: dict[str, bytes | None] = {}
    for number in whole:
        writes |= deleted(LAST, number, known[number])
    slices = {number: entry for number, entry in known.items() if number not in whole}
    kept = None if last is None else _unexpired(with_deadline(last, definition), batch.now.after, definition)
    if kept is not None and kept.height:
        added, entries = write_rows(LAST, kept, key_slices(only(kept, keys)), changing)
        writes |= added
        slices |= entries
    return rows, duplicates, writes, slices


def _touched(new: pl.DataFrame, keys: Sequence[str]) -> Mapping[int, list[pl.DataFrame]]:
    numbers = key_slices(only(new, keys))
    return {int(number): [new.filter(numbers == number)] for number in numbers.unique().sort()}


def _changed(
    state: pl.DataFrame | None, new: pl.DataFrame, keys: Sequence[str], definition: Deduplicate
) -> tuple[pl.DataFrame | None, pl.DataFrame, int]:
    """Return the changelog of new elements, the state rows after them, and the number of duplicates."""
    old = None if state is None else without(state, NOT_STORED).with_columns(pl.lit(True).alias(_OLD))
    fresh = new.with_columns(pl.lit(False).alias(_OLD))
    both = fresh if old is None else pl.concat([old, fresh], how="diagonal_relaxed")
    # The row of state is sorted first, so that a new element at the same time replaces it.
    order = [HASH, *keys, AT, _OLD, *element_columns(both)]
    down = [name == _OLD for name in order]
    ordered = both.sort(order, descending=down, maintain_order=True).with_row_index(_ROW)
    groups = list(keys)
    known_at = pl.col(AT).filter(pl.col(_OLD)).first().over(groups)
    valid = ordered.filter(known_at.is_null() | (pl.col(AT) >= known_at))
    step = pl.col(AT) - pl.col(AT).shift(1).over(groups)
    begins = pl.lit(False) if definition.within is None else (step >= definition.within.ms)
    runs = valid.with_columns(begins.fill_null(False).cum_sum().over(groups).alias(_GAP))
    is_end = pl.col(_ROW) == pl.col(_ROW).last().over([*groups, _GAP])
    is_last = pl.col(_ROW) == pl.col(_ROW).last().over(groups)
    marked = runs.with_columns(is_end.alias(_CHANGE), is_last.alias("@last"))
    inserted = marked.filter(pl.col(_CHANGE) & ~pl.col(_OLD)).with_columns(pl.lit(1, pl.Int64).alias(SIGN))
    retracted = marked.filter(~pl.col(_CHANGE) & pl.col(_OLD)).with_columns(pl.lit(-1, pl.Int64).alias(SIGN))
    own = (_OLD, _ROW, _GAP, _CHANGE, "@last")
    changes = pl.concat([retracted, inserted]).sort(_ROW, maintain_order=True)
    duplicates = new.height - inserted.height
    rows = without(changes, (*own, HASH)) if changes.height else None
    return rows, without(marked.filter("@last"), own), duplicates


def _unexpired(rows: pl.DataFrame, watermark: int, definition: Deduplicate) -> pl.DataFrame:
    if definition.within is None:
        return rows
    alive = rows["@due_watermark"].to_numpy() > watermark
    return rows if bool(np.all(alive)) else rows.filter(pl.Series(alive))
