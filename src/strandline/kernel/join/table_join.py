"""Join the current rows of several tables: the table join operator.

Order of a batch: find the stored rows of the keys that change; refuse insertions whose key may be forgotten; remove
retracted rows; emit the changes of the result; forget keys that have not changed for their time to live; write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from strandline.kernel.blocks.block import AT, INPUT, OFFSET, PARTITION, REASON, SIGN, element_columns
from strandline.kernel.blocks.column_types import to_polars
from strandline.kernel.blocks.small_frames import only, stacked, without
from strandline.kernel.join.changed_keys import ChangedKeys, Ended, open_changed, restored_changes, write_changed
from strandline.kernel.join.pairs import Longs
from strandline.kernel.join.retractions import Removed, remove_retracted, without_cancelled
from strandline.kernel.join.table_changes import ResultChanges, TableRows, result_changes
from strandline.kernel.join.table_rows import (
    HASH,
    TABLE,
    Flags,
    Keys,
    StoredRows,
    distinct_keys,
    find_rows,
    has_null,
    table_store,
    with_hash,
    write_table,
)
from strandline.kernel.operator import PARTIAL, ROWS, WATERMARK, Batch, BatchResult, Exported, Fit, Prepared
from strandline.kernel.single_elements import by_key_group, with_valid_time
from strandline.kernel.state.slice_store import INDEX, Index, Slices, write_index
from strandline.kernel.watermarks import Rule
from strandline.model.counts import InputCounts
from strandline.model.elements import TimeDomain
from strandline.model.operators import OperatorInput
from strandline.model.panes import LateReason
from strandline.model.table_join import TableJoin, table_role

_POSITION: Final = (INPUT, PARTITION, OFFSET)
_NOT_STORED: Final = (*_POSITION, SIGN, TABLE)
_RETRACTION: Final = "retraction"
"""Column of panes that tells their sign; it is not a part of a row."""


@dataclass(slots=True, eq=False)
class _Table:
    """One table in one batch: its stored rows, its changes with their keys, and what becomes of both."""

    number: int
    stored: StoredRows
    alive: Flags
    """Stored rows whose key is not forgotten."""
    changes: pl.DataFrame | None = None
    keys: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    removed: Removed | None = None
    new: pl.DataFrame | None = None
    """The inserted rows that stay after the batch."""
    new_keys: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    late: int = 0
    ended: int = 0
    """Rows that leave the table, or need no state."""

    @property
    def is_stored_after(self) -> Flags:
        """Mark the stored rows that stay."""
        return self.alive if self.removed is None else self.alive & ~self.removed.stored

    def rows(self) -> TableRows:
        """Return the rows before and after the batch: the stored ones, then the new ones."""
        times = self.stored.times if self.new is None else np.append(self.stored.times, self.new[AT].to_numpy())
        new = np.zeros(len(self.new_keys), np.bool_)
        return TableRows.of(
            np.append(self.stored.keys, self.new_keys), times, np.append(self.alive, new),
            np.append(self.is_stored_after, ~new),
        )  # fmt: skip

    def at(self, rows: Longs) -> pl.DataFrame:
        """Read rows by number; the columns of -1 are null."""
        wanted = np.unique(rows[rows >= 0])
        split = int(np.searchsorted(wanted, self.stored.height))
        parts = [self.stored.at(wanted[:split])] if split else []
        if split < len(wanted) and self.new is not None:
            parts.append(self.new[wanted[split:] - self.stored.height])
        frame = stacked(parts) if parts else self._no_rows()
        frame = without(frame, (*_NOT_STORED, HASH, AT))
        if not frame.width:
            return frame
        places = np.searchsorted(wanted, rows)
        if rows.min() < 0:
            frame = pl.concat([frame, frame.clear(1)])
            places = np.where(rows < 0, len(wanted), places)
        return frame[places]

    def _no_rows(self) -> pl.DataFrame:
        """Return an empty frame with the columns of the table, if a row of it is at hand."""
        if self.new is not None:
            return self.new.clear()
        runs = [run for opened in self.stored.opened.values() for run in opened.runs]
        return runs[0].at(np.zeros(0, np.int64)) if runs else pl.DataFrame()


@dataclass(frozen=True, slots=True)
class TableJoinOperator:
    """The table join for given key columns and inputs."""

    definition: TableJoin
    keys: tuple[str, ...]
    inputs: tuple[OperatorInput, ...]

    @property
    def takes_signs(self) -> bool:
        return True

    def admit(self, elements: pl.DataFrame, rule: Rule | None, clock: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        if self.definition.time is TimeDomain.PROCESSING:
            elements = elements.with_columns(pl.lit(clock, pl.Int64).alias(AT))
        return with_valid_time(elements, rule, clock)

    def probe(self, elements: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        return elements, None

    def prepare(self, elements: pl.DataFrame, groups: int, horizon: int | None) -> Prepared:  # noqa: ARG002 - a part of the protocol
        """Rename columns as in the result, and split rows by key group."""
        if elements.is_empty():
            return Prepared({}, 0)
        source = self.inputs[int(elements[INPUT][0])]
        names = self.definition.names(source.role) | dict(zip(source.keys, self.keys, strict=True))
        named = without(elements, (_RETRACTION,))
        named = named.rename({old: new for old, new in names.items() if old != new and old in named.columns})
        return by_key_group(named, self.keys, groups)

    def play(self, batch: Batch) -> BatchResult:
        arrived, dropped = self._arrivals(batch)
        ended = open_changed(batch, self.definition, self.keys)
        changing = [*arrived.values()] + ([] if ended.due is None else [ended.due])
        if not changing:
            tables = [_Table(n, StoredRows(table_store(n), {}), np.zeros(0, np.bool_)) for n in range(len(dropped))]
            inputs = self._counts(batch, tables, dropped, batch.index.stores)
            return BatchResult({}, batch.index.stores, filtered=sum(dropped), inputs=inputs)
        keys = distinct_keys(changing, self.keys)
        changed = ended.of(keys)
        tables = [
            self._open(batch, number, keys, changed, arrived.get(number)) for number in range(self.definition.tables)
        ]
        late = self._refused(batch, tables, keys, changed)
        rows = self._result(tables, keys)
        writes, stores = self._write(batch, tables, keys, changed)
        refused = sum(table.late for table in tables)
        contributed = sum(frame.height for frame in arrived.values()) - refused
        inputs = self._counts(batch, tables, dropped, stores)
        return BatchResult(writes, stores, rows, late, contributed, refused, sum(dropped), inputs=inputs)

    def _counts(
        self, batch: Batch, tables: Sequence[_Table], dropped: Sequence[int], stores: Mapping[str, Slices]
    ) -> dict[str, InputCounts]:
        """Return what became of the rows of each table."""
        found: dict[str, InputCounts] = {}
        for table, none in zip(tables, dropped, strict=True):
            name = table_store(table.number).name
            before, after = (
                sum(entry.rows for entry in each.get(name, {}).values()) for each in (batch.index.stores, stores)
            )
            accepted = none + (0 if table.changes is None else table.changes.height)
            found[table_role(table.number)] = InputCounts(accepted, table.late, before, none + table.ended, after)
        return found

    def _arrivals(self, batch: Batch) -> tuple[dict[int, pl.DataFrame], list[int]]:
        """Return the changes of each table, sorted by key hash, time and position, and how many of each are dropped.

        A row with a null key is dropped if the result never shows rows of its table alone.
        """
        frames: dict[int, list[pl.DataFrame]] = {}
        roles = self.definition.roles
        for block in batch.blocks:
            if ROWS in block.frames:
                frame = block.frames[ROWS]
                number = roles.index(self.inputs[int(frame[INPUT][0])].role)
                signed = frame if SIGN in frame.columns else frame.with_columns(pl.lit(1, pl.Int64).alias(SIGN))
                frames.setdefault(number, []).append(signed)
        found: dict[int, pl.DataFrame] = {}
        dropped = [0] * len(roles)
        for number in sorted(frames):
            rows = stacked(frames[number])
            null = has_null(only(rows, self.keys))
            if null.any() and self.definition.combined([n == number for n in range(len(roles))]) is None:
                dropped[number] = int(null.sum())
                rows, null = rows.filter(pl.Series(~null)), null[~null]
            if rows.height:
                tables = pl.Series(TABLE, np.where(null, number, -1), pl.Int64)
                ready = with_hash(rows, self.keys).with_columns(tables)
                found[number] = ready.sort(HASH, AT, *element_columns(rows), maintain_order=True)
        return found, dropped

    def _open(
        self, batch: Batch, number: int, keys: Keys, changed: ChangedKeys | None, rows: pl.DataFrame | None
    ) -> _Table:
        store = table_store(number)
        stored = find_rows(batch.held, store, batch.index.store(store.name), keys, number)
        dead = np.zeros(keys.size, np.bool_) if changed is None else changed.forgotten_before(batch.now)
        own = np.zeros(0, np.int64) if rows is None else keys.of_rows(rows, number)
        return _Table(number, stored, ~dead[stored.keys], rows, own)

    def _refused(
        self, batch: Batch, tables: Sequence[_Table], keys: Keys, changed: ChangedKeys | None
    ) -> pl.DataFrame | None:
        """Apply the changes to their tables; return the changes that are refused."""
        known = np.zeros(keys.size, np.bool_)
        for table in tables:
            known[table.stored.keys[table.alive]] = True
        late = []
        for table in tables:
            if table.changes is None:
                continue
            expired = self._expired(batch, table, known)
            table.changes, refused, table.keys = _split(table.changes, table.keys, expired)
            own = [] if refused is None else [_late(refused, LateReason.EXPIRED, batch.now.before)]
            own += self._apply(table, batch.now.before)
            table.late = sum(each.height for each in own)
            late += own
            if changed is not None:
                changed.note(table.keys, table.changes[AT].to_numpy(), batch.now)
        return pl.concat(late, how="diagonal_relaxed") if late else None

    def _expired(self, batch: Batch, table: _Table, known: Flags) -> Flags:
        """Mark the insertions whose key may have been forgotten."""
        asked = self.definition
        assert table.changes is not None  # noqa: S101 - the caller has checked it
        if asked.ttl is None or asked.ttl_time is TimeDomain.PROCESSING:
            return np.zeros(table.changes.height, np.bool_)
        old = table.changes[AT].to_numpy() <= batch.now.before - asked.ttl.ms
        found: Flags = old & ~known[table.keys] & (table.changes[SIGN].to_numpy() > 0)
        return found

    @staticmethod
    def _apply(table: _Table, watermark: int) -> list[pl.DataFrame]:
        """Insert and remove rows of a table; return the retractions without a row as late rows."""
        assert table.changes is not None  # noqa: S101 - the caller has checked it
        table.removed = removed = remove_retracted(table.stored, table.alive, table.changes, table.keys)
        stays = (table.changes[SIGN].to_numpy() > 0) & ~removed.new
        table.new, _, table.new_keys = _split(table.changes, table.keys, ~stays)
        table.changes, unmatched, table.keys = _split(table.changes, table.keys, removed.unmatched)
        # A retraction ends at once, and so does the row that it removes.
        table.ended += int((table.changes[SIGN].to_numpy() < 0).sum()) + int(removed.new.sum())
        return [] if unmatched is None else [_late(unmatched, LateReason.NO_SUCH_ROW, watermark)]

    def _result(self, tables: Sequence[_Table], keys: Keys) -> pl.DataFrame | None:
        """Return the rows that are retracted and inserted in the result."""
        changes = result_changes(self.definition, [table.rows() for table in tables], keys.size)
        if not len(changes.keys):
            return None
        rows = self._frame(changes, tables, keys)
        stays = without_cancelled(rows, changes.keys)
        if stays is not None:
            rows = rows.filter(pl.Series(stays))
        return rows if rows.height else None

    def _frame(self, changes: ResultChanges, tables: Sequence[_Table], keys: Keys) -> pl.DataFrame:
        """Read the rows that changes are made of, with the columns of the result in order."""
        columns = [column.gather(changes.keys) for column in keys.columns]
        for number, chosen in changes.chosen.items():
            columns += [*without(tables[number].at(chosen), self.keys)]
        columns += [pl.Series(AT, changes.times), pl.Series(SIGN, changes.signs, pl.Int64)]
        rows = pl.DataFrame(columns)
        shown = {table_role(number) for number in self.definition.shown}
        known = [(name, kind) for role, name, kind in self.definition.columns if role in shown]
        complete = rows.with_columns(
            pl.lit(None, pl.Null if kind is None else to_polars(kind)).alias(name)
            for name, kind in known
            if name not in rows.columns
        )
        names = [*self.keys, *(name for name, _ in known)]
        others = [name for name in complete.columns if name not in {*names, AT, SIGN}]
        return only(complete, [*names, *others, AT, SIGN])

    def _write(
        self, batch: Batch, tables: Sequence[_Table], keys: Keys, changed: ChangedKeys | None
    ) -> tuple[dict[str, bytes | None], dict[str, Slices]]:
        """Write the tables after the batch, without the rows of keys that are forgotten."""
        forgotten = np.zeros(keys.size, np.bool_) if changed is None else changed.forgotten_after(batch.now)
        writes: dict[str, bytes | None] = {}
        stores: dict[str, Slices] = {}
        kept = np.zeros(keys.size, np.bool_)
        for table in tables:
            stays = table.is_stored_after & ~forgotten[table.stored.keys]
            new = table.new
            table.ended += int((~stays).sum()) + int(forgotten[table.new_keys].sum())
            if new is not None:
                is_kept = ~forgotten[table.new_keys]
                kept[table.new_keys[is_kept]] = True
                new = without(new if is_kept.all() else new.filter(pl.Series(is_kept)), _NOT_STORED)
            kept[table.stored.keys[stays]] = True
            changed_blocks, slices = write_table(table.stored, new, np.flatnonzero(~stays))
            writes |= changed_blocks
            stores |= {table.stored.store.name: slices} if slices else {}
        if changed is not None:
            blocks, slices = write_changed(changed, kept)
            writes |= blocks
            stores |= {changed.stored.store.name: slices} if slices else {}
        return writes, stores

    def blocks_of(self, exported: Exported) -> dict[str, bytes]:
        blocks: dict[str, bytes] = {}
        stores: dict[str, Slices] = {}
        frames: dict[int, pl.DataFrame] = {}
        for number in range(self.definition.tables):
            store = table_store(number)
            rows = exported.frames.get(store.rows)
            if rows is None or rows.is_empty():
                continue
            frames[number] = with_hash(without(rows, (HASH,)), self.keys)
            writes, slices = write_table(StoredRows(store, {}), frames[number], np.zeros(0, np.int64))
            blocks |= {place: data for place, data in writes.items() if data is not None}
            stores[store.name] = slices
        kept, slices = restored_changes(exported, self.definition, self.keys, frames)
        blocks |= kept
        stores |= {Ended.STORE.name: slices} if slices else {}
        index = Index(exported.progress, exported.batch_number, stores)
        return {**blocks, INDEX: write_index(index, blocks)}

    def fitted(self, exported: Exported, fit: Fit) -> Exported:  # noqa: ARG002 - a part of the protocol
        return exported

    def missing(self, exported: Exported) -> list[str]:
        found = []
        for number in range(self.definition.tables):
            rows = exported.frames.get(table_store(number).rows)
            if rows is not None:
                name = table_store(number).rows
                found += [f"{name} has no column {each}" for each in (*self.keys, AT) if each not in rows.columns]
        return found


def _split(rows: pl.DataFrame, keys: Longs, out: Flags) -> tuple[pl.DataFrame, pl.DataFrame | None, Longs]:
    """Split off marked rows; return the other rows, the marked ones if there are any, and the keys of the others."""
    if not out.any():
        return rows, None, keys
    return rows.filter(pl.Series(~out)), rows.filter(pl.Series(out)), keys[~out]


def _late(rows: pl.DataFrame, reason: LateReason, watermark: int) -> pl.DataFrame:
    found = without(rows, (HASH, SIGN, TABLE)).with_columns(
        pl.lit(reason.value).alias(REASON),
        pl.lit(watermark, pl.Int64).alias(WATERMARK),
        pl.lit(False).alias(PARTIAL),
    )
    return found.sort(element_columns(found))
