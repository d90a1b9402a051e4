"""Keep when each key of a table join has changed last, if keys are forgotten after a time to live.

A key is forgotten exactly when its time to live has passed; its rows are deleted a little later, so that slices are
rarely rewritten for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from strandline.kernel.blocks.block import AT
from strandline.kernel.blocks.small_frames import only, without
from strandline.kernel.join.pairs import Longs
from strandline.kernel.join.table_rows import (
    HASH,
    TABLE,
    Flags,
    Keys,
    StoredRows,
    find_rows,
    has_null,
    with_hash,
    write_table,
)
from strandline.kernel.operator import Batch, BatchTimes, Exported
from strandline.kernel.state.slice_rows import Store
from strandline.kernel.state.slice_store import DUE_CLOCK, DUE_WATERMARK, Slices, due, read_slices
from strandline.kernel.watermarks import FOREVER, NEVER
from strandline.model.elements import TimeDomain
from strandline.model.table_join import TableJoin

_SLICES = 8
"""Times per time to live that the rows of forgotten keys are deleted."""


@dataclass(slots=True, eq=False)
class ChangedKeys:
    """The keys of a batch, each with the time of its last change; NEVER if it has no rows."""

    definition: TableJoin
    keys: Keys
    stored: StoredRows
    times: Longs
    due: frozenset[int]
    """Slices with a deadline in this batch."""

    def note(self, keys: Longs, times: Longs, now: BatchTimes) -> None:
        """Record that keys change, by rows with these times."""
        by_event_time = self.definition.ttl_time is TimeDomain.EVENT
        np.maximum.at(self.times, keys, times if by_event_time else np.full(len(keys), now.clock))

    def forgotten_before(self, now: BatchTimes) -> Flags:
        return _passed(self.definition, self.times, now.before, now.clock_before)

    def forgotten_after(self, now: BatchTimes) -> Flags:
        return _passed(self.definition, self.times, now.after, now.clock)


@dataclass(frozen=True, slots=True)
class Ended:
    """The keys whose time to live ends in a batch; None if there are none, or keys are kept forever."""

    STORE: ClassVar[Store] = Store("changed", "changed")

    batch: Batch
    definition: TableJoin
    due: pl.DataFrame | None
    slices: frozenset[int]

    def of(self, keys: Keys) -> ChangedKeys | None:
        """Look up the last changes of keys."""
        if self.definition.ttl is None:
            return None
        stored = find_rows(
            self.batch.held, self.STORE, self.batch.index.store(self.STORE.name), keys, None, self.slices
        )
        times = np.full(keys.size, NEVER)
        times[stored.keys] = stored.times
        return ChangedKeys(self.definition, keys, stored, times, self.slices)


def open_changed(batch: Batch, definition: TableJoin, names: tuple[str, ...]) -> Ended:
    """Find the keys whose time to live ends in this batch."""
    slices = batch.index.store(Ended.STORE.name)
    numbers = frozenset(due(slices, batch.progress)) if definition.ttl is not None else frozenset[int]()
    if not numbers:
        return Ended(batch, definition, None, numbers)
    rows = read_slices(batch.held, Ended.STORE, numbers, slices)[Ended.STORE.rows]
    # A slice that is due is written with new deadlines, even if none of its keys ends.
    return Ended(batch, definition, only(rows, [HASH, TABLE, *names]), numbers)


def write_changed(changed: ChangedKeys, kept: Flags) -> tuple[dict[str, bytes | None], Slices]:
    """Write the last change of the keys that are kept, and remove the others."""
    was = np.full(changed.keys.size, NEVER)
    was[changed.stored.keys] = changed.stored.times
    now = np.where(kept, changed.times, NEVER)
    gone = np.flatnonzero(now[changed.stored.keys] != was[changed.stored.keys])
    added = np.flatnonzero((now != was) & kept)
    new = changed.keys.columns[added].with_columns(
        pl.Series(HASH, changed.keys.hashes[added]),
        pl.Series(TABLE, changed.keys.table[added]),
        pl.Series(AT, now[added]),
    )
    return write_table(
        changed.stored, new, gone, lambda rows: with_end(rows, changed.definition), changed.due
    )  # fmt: skip


def with_end(rows: pl.DataFrame, definition: TableJoin) -> pl.DataFrame:
    """Add the deadline at which the rows of keys are deleted, rounded up."""
    assert definition.ttl is not None  # noqa: S101 - only such joins have the store
    ttl, times = definition.ttl.ms, rows[AT].to_numpy()
    step = max(ttl // _SLICES, 1)
    end = (np.minimum(times, FOREVER - ttl - 2 * step) + ttl) // step * step + step
    none = pl.lit(None, pl.Int64)
    if definition.ttl_time is TimeDomain.EVENT:
        return rows.with_columns(pl.Series(DUE_WATERMARK, end), none.alias(DUE_CLOCK))
    return rows.with_columns(pl.lit(FOREVER).alias(DUE_WATERMARK), pl.Series(DUE_CLOCK, end))


def restored_changes(
    exported: Exported, definition: TableJoin, names: tuple[str, ...], tables: Mapping[int, pl.DataFrame]
) -> tuple[dict[str, bytes], Slices]:
    """Write the last changes of restored keys. A key without one has changed last when its latest row did."""
    if definition.ttl is None or not tables:
        return {}, {}
    rows = exported.frames.get(Ended.STORE.rows)
    if rows is None:
        parts = []
        for number, frame in tables.items():
            null = np.where(has_null(only(frame, names)), number, -1)
            parts.append(only(frame, [*names, AT]).with_columns(pl.Series(TABLE, null, pl.Int64)))
        last = pl.concat(parts, how="vertical_relaxed").group_by([*names, TABLE], maintain_order=True).agg(pl.max(AT))
        by_event_time = definition.ttl_time is TimeDomain.EVENT
        rows = last if by_event_time else last.with_columns(pl.lit(exported.progress.clock, pl.Int64).alias(AT))
    ready = with_hash(without(rows, (HASH,)), names)
    store = StoredRows(Ended.STORE, {})
    writes, slices = write_table(store, ready, np.zeros(0, np.int64), lambda each: with_end(each, definition))
    return {place: data for place, data in writes.items() if data is not None}, slices


def _passed(definition: TableJoin, times: Longs, watermark: int, clock: int) -> Flags:
    """Tell for each last change whether the time to live has passed since."""
    assert definition.ttl is not None  # noqa: S101 - only such joins have the store
    ttl = definition.ttl.ms
    if definition.ttl_time is TimeDomain.EVENT:
        found: Flags = (times != NEVER) & (times <= max(watermark, NEVER + ttl) - ttl)
        return found if watermark > NEVER + ttl else np.zeros(len(times), np.bool_)
    ended: Flags = (times != NEVER) & (times < clock - ttl)
    return ended
