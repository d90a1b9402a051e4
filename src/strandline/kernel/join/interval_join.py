"""Join rows of two streams whose event times are close: the interval join operator.

Order of a batch: split off late rows; match new left rows with stored and new right rows, and stored left rows with
new right rows; emit unmatched rows that end; store new rows; delete slices in which every row has ended. A row ends
when the watermark shows that it can get no further partner.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from strandline.kernel.blocks.block import AT, INPUT, OFFSET, PARTITION, REASON, element_columns
from strandline.kernel.blocks.column_types import to_polars
from strandline.kernel.blocks.hashing import hashed
from strandline.kernel.blocks.small_frames import only, stacked, without
from strandline.kernel.expressions import to_expr
from strandline.kernel.join.pairs import Longs, Sorted, close_pairs
from strandline.kernel.join.side_store import (
    HASH,
    STORES,
    Flags,
    OpenSlice,
    Side,
    SideState,
    ended,
    open_side,
    plus,
    reached,
    rows_at,
    sorted_rows,
    write_side,
)
from strandline.kernel.operator import PARTIAL, ROWS, WATERMARK, Batch, BatchResult, Exported, Fit, Prepared
from strandline.kernel.single_elements import by_key_group, with_valid_time
from strandline.kernel.state.slice_deltas import Run
from strandline.kernel.state.slice_store import HOLD, INDEX, Index, Slices, write_index
from strandline.kernel.watermarks import FOREVER, NEVER, Rule
from strandline.model.counts import InputCounts
from strandline.model.joins import LEFT, RIGHT, How, IntervalJoin
from strandline.model.operators import OperatorInput
from strandline.model.panes import LateReason

_POSITION: Final = (INPUT, PARTITION, OFFSET)
_OWN: Final = (*_POSITION, HASH, HOLD)
"""Internal columns, which output rows do not have."""


@dataclass(slots=True, eq=False)
class _New:
    """The new rows of one side in a batch, sorted by key hash and time, and which of them are matched."""

    rows: pl.DataFrame
    sorted: Sorted
    matched: Flags
    first: Longs
    """The event time of the earliest pair of each row; used by semi joins."""


@dataclass(slots=True, eq=False)
class _SideCounts:
    """What became of the rows of one side in a batch."""

    accepted: int = 0
    late: int = 0
    ended: int = 0
    unmatched: int = 0


@dataclass(slots=True, eq=False)
class _Result:
    """What a batch emits, how many rows it drops because their key is null, and the counts of each side."""

    parts: list[pl.DataFrame] = field(default_factory=list)
    filtered: int = 0
    sides: dict[str, _SideCounts] = field(default_factory=lambda: {LEFT: _SideCounts(), RIGHT: _SideCounts()})


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Rows to match: the new rows of a side, or one run of a slice."""

    sorted: Sorted
    new: _New | None = None
    opened: OpenSlice | None = None
    run: Run | None = None

    def rows(self, places: Longs) -> pl.DataFrame:
        if self.new is not None:
            return self.new.rows[places]
        assert self.run is not None  # noqa: S101 - a part has new rows or a run
        return self.run.at(places)

    def valid(self, places: Longs) -> Flags:
        """Tell which rows were not replaced by a later delta."""
        if self.opened is None or self.run is None:
            return np.ones(len(places), np.bool_)
        found: Flags = self.opened.valid[self.run.since + places]
        return found

    def match(self, places: Longs) -> None:
        """Mark rows as matched."""
        if self.new is not None:
            self.new.matched[places] = True
        elif self.opened is not None and self.run is not None:
            self.opened.matched.append(self.run.since + np.unique(places))


@dataclass(frozen=True, slots=True)
class IntervalJoinOperator:
    """The interval join for given key columns and inputs."""

    definition: IntervalJoin
    keys: tuple[str, ...]
    inputs: tuple[OperatorInput, ...]

    @property
    def takes_signs(self) -> bool:
        return False

    def admit(self, elements: pl.DataFrame, rule: Rule | None, clock: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        return with_valid_time(elements, rule, clock)

    def probe(self, elements: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        return elements, None

    def prepare(self, elements: pl.DataFrame, groups: int, horizon: int | None) -> Prepared:  # noqa: ARG002 - a part of the protocol
        """Rename columns as in the result, and split elements by key group."""
        if elements.is_empty():
            return Prepared({}, 0)
        source = self.inputs[int(elements[INPUT][0])]
        names = {}
        if source.role == RIGHT:
            names = dict(self.definition.renamed) | dict(zip(source.keys, self.keys, strict=True))
        named = elements.rename({old: new for old, new in names.items() if old != new and old in elements.columns})
        return by_key_group(named, self.keys, groups)

    def play(self, batch: Batch) -> BatchResult:
        result = _Result()
        new, late = self._arrivals(batch, result)
        left, right = (self._open(batch, role, new) for role in (LEFT, RIGHT))
        self._pair(new, left, right, result)
        writes: dict[str, bytes | None] = {}
        stores: dict[str, Slices] = {}
        inputs: dict[str, InputCounts] = {}
        for role, state in ((LEFT, left), (RIGHT, right)):
            gone = self._end(state, result, batch.now.after)
            kept = self._kept(state.side, new.get(role), result, batch.now.after)
            changed, slices, removed = write_side(state, kept, gone, batch.now.after)
            writes |= changed
            stores |= {state.side.store.name: slices} if slices else {}
            result.sides[role].ended += removed
            inputs[role] = self._counts(state, slices, result.sides[role])
        rows = self._result_frame(result.parts)
        contributed = sum(side.accepted for side in inputs.values()) - result.filtered
        refused = sum(side.late for side in inputs.values())
        return BatchResult(writes, stores, rows, late, contributed, refused, result.filtered, inputs=inputs)

    def _counts(self, state: SideState, slices: Slices, counts: _SideCounts) -> InputCounts:
        """Return the counts of a side; which rows are unmatched is known where the join emits them."""
        before, after = (sum(entry.rows for entry in each.values()) for each in (state.slices, slices))
        oldest = min((entry.hold for entry in slices.values() if entry.hold is not None), default=None)
        unmatched = counts.unmatched if state.side.pads else None
        return InputCounts(counts.accepted, counts.late, before, counts.ended, after, unmatched, oldest)

    def _arrivals(self, batch: Batch, result: _Result) -> tuple[dict[str, _New], pl.DataFrame | None]:
        """Return the timely rows of each side, and late rows."""
        found: dict[str, list[pl.DataFrame]] = {}
        for block in batch.blocks:
            if ROWS in block.frames:
                frame = block.frames[ROWS]
                found.setdefault(self.inputs[int(frame[INPUT][0])].role, []).append(frame)
        late: list[pl.DataFrame] = []
        new: dict[str, _New] = {}
        for role in sorted(found):
            rows, behind = self._split_late(stacked(found[role]), batch.now.before)
            late += [] if behind is None else [behind]
            result.sides[role].accepted += rows.height
            result.sides[role].late += 0 if behind is None else behind.height
            rows = self._without_null_keys(rows, Side(self.definition, role), result)
            if rows.height:
                new[role] = _sorted_by_key(rows, self.keys)
        return new, pl.concat(late, how="diagonal_relaxed") if late else None

    def _split_late(self, rows: pl.DataFrame, watermark: int) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Split off late rows, behind the watermark by the allowed lateness or more: their partners may be deleted."""
        if watermark == NEVER:
            return rows, None
        behind = rows[AT].to_numpy() <= watermark - self.definition.lateness.ms
        if not bool(behind.any()):
            return rows, None
        late = rows.filter(pl.Series(behind)).with_columns(
            pl.lit(LateReason.BEHIND.value).alias(REASON),
            pl.lit(watermark, pl.Int64).alias(WATERMARK),
            pl.lit(False).alias(PARTIAL),
        )
        return rows.filter(pl.Series(~behind)), late.sort(element_columns(late))

    def _without_null_keys(self, rows: pl.DataFrame, side: Side, result: _Result) -> pl.DataFrame:
        """Remove rows with a null key, which never match; emit them if the join emits unmatched rows of this side."""
        null = rows.select(pl.any_horizontal(pl.col(name).is_null() for name in self.keys).alias("null"))["null"]
        if not null.any():
            return rows
        alone = rows.filter(null).sort(element_columns(rows))
        result.sides[side.role].ended += alone.height
        result.sides[side.role].unmatched += alone.height
        if side.pads:
            result.parts.append(without(alone, _OWN))
        else:
            result.filtered += alone.height
        return rows.filter(~null)

    def _open(self, batch: Batch, role: str, new: Mapping[str, _New]) -> SideState:
        """Open the slices that may match new rows of the other side, and those that new rows of this side go to."""
        side, other = Side(self.definition, role), Side(self.definition, LEFT if role == RIGHT else RIGHT)
        slices = batch.index.store(side.store.name)
        numbers: list[int] = []
        if other.role in new:
            numbers += reached(slices, side.span, new[other.role].sorted.times, *other.bounds)
        if role in new:
            numbers += np.unique(new[role].sorted.times // side.span).tolist()
        return open_side(batch.held, side, slices, numbers, batch.now.after)

    def _pair(self, new: Mapping[str, _New], left: SideState, right: SideState, result: _Result) -> None:
        """Find each pair of this batch once, and mark matched rows."""
        definition = self.definition
        lower, upper = definition.lower.ms, definition.upper.ms
        new_left, new_right = new.get(LEFT), new.get(RIGHT)
        if new_left is not None:
            own = _Part(new_left.sorted, new_left)
            others = [*_stored(right, new_left.sorted.times, lower, upper)]
            others += [] if new_right is None else [_Part(new_right.sorted, new_right)]
            for other in others:
                self._emit_pairs(own, other, *close_pairs(own.sorted, other.sorted, lower, upper), result)
        if new_right is not None:
            own = _Part(new_right.sorted, new_right)
            for other in _stored(left, new_right.sorted.times, -upper, -lower):
                places, partners = close_pairs(own.sorted, other.sorted, -upper, -lower)
                self._emit_pairs(other, own, partners, places, result)
        if definition.how is How.SEMI and new_left is not None and new_left.matched.any():
            first = pl.Series(AT, new_left.first).filter(pl.Series(new_left.matched))
            result.parts.append(without(new_left.rows.filter(pl.Series(new_left.matched)), _OWN).with_columns(first))

    def _emit_pairs(self, left: _Part, right: _Part, rows: Longs, partners: Longs, result: _Result) -> None:
        """Check candidate pairs, mark matched rows, and add the output rows to the result."""
        if not len(rows):
            return
        valid = left.valid(rows) & right.valid(partners)
        if not valid.all():
            rows, partners = rows[valid], partners[valid]
        if not len(rows):
            return
        one, other = left.rows(rows), right.rows(partners)
        true = self._is_true(one, other)
        if not true.all():
            rows, partners = rows[true], partners[true]
            one, other = one.filter(pl.Series(true)), other.filter(pl.Series(true))
        if not len(rows):
            return
        if self.definition.emits_pairs:
            result.parts.append(self._pairs(one, other))
        elif self.definition.how is How.SEMI:
            times = np.maximum(one[AT].to_numpy(), other[AT].to_numpy())
            if left.new is not None:
                np.minimum.at(left.new.first, rows, times)
            else:
                result.parts.append(_first_matches(left, rows, times))
        left.match(rows)
        right.match(partners)

    def _is_true(self, left: pl.DataFrame, right: pl.DataFrame) -> Flags:
        """Compare the keys of candidate pairs, since different keys may have equal hashes, and test the condition."""
        true = np.ones(left.height, np.bool_)
        for name in self.keys:
            true &= left[name].eq_missing(right[name].cast(left.schema[name])).to_numpy()
        condition = self.definition.condition
        if condition is not None:
            pair = self._pairs(left, right)
            known = {*pair.columns}
            test = to_expr(condition.tree, lambda name: pl.col(name.name) if name.name in known else pl.lit(None))
            found = pair.select(test.cast(pl.Boolean).alias("true"))["true"]
            true &= found.fill_null(False).to_numpy()
        return true

    def _pairs(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Return one row per pair; its event time is the later one of the two."""
        times = np.maximum(left[AT].to_numpy(), right[AT].to_numpy())
        columns = [*without(left, (*_OWN, AT)), *without(right, (*_OWN, AT, *self.keys))]
        return pl.DataFrame([*columns, pl.Series(AT, times)])

    def _end(self, state: SideState, result: _Result, watermark: int) -> dict[int, Longs]:
        """Emit stored rows that end unmatched, and return the rows to remove, by slice.

        Semi and anti joins remove matched left rows too.
        """
        gone: dict[int, list[Longs]] = {}
        for opened, places in ended(state, watermark):
            result.parts.append(without(rows_at(opened, places), _OWN))
            result.sides[state.side.role].unmatched += len(places)
            gone.setdefault(opened.number, []).append(places)
        if state.side.role == LEFT and not self.definition.emits_pairs:
            for opened in state.opened.values():
                gone.setdefault(opened.number, []).extend(opened.matched)
        return {number: np.unique(np.concatenate(each)) for number, each in gone.items() if each}

    def _kept(self, side: Side, new: _New | None, result: _Result, watermark: int) -> pl.DataFrame | None:
        """Return the new rows to store; emit those that have already ended unmatched."""
        if new is None:
            return None
        over = plus(new.sorted.times, side.reach) <= watermark
        if side.pads:
            alone = over & ~new.matched
            result.sides[side.role].unmatched += int(np.count_nonzero(alone))
            if alone.any():
                result.parts.append(without(new.rows.filter(pl.Series(alone)), _OWN))
        if side.role == LEFT and not self.definition.emits_pairs:
            over = over | new.matched
        rows = new.rows
        if side.pads:
            rows = rows.with_columns(pl.when(pl.lit(pl.Series(~new.matched))).then(pl.col(AT)).alias(HOLD))
        rows = without(rows, _POSITION)
        result.sides[side.role].ended += int(np.count_nonzero(over))
        return rows if not over.any() else rows.filter(pl.Series(~over))

    def _result_frame(self, parts: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
        """Concatenate the output rows of a batch, with the columns of the result in order."""
        found = [part for part in parts if part.height]
        if not found:
            return None
        rows = pl.concat(found, how="diagonal_relaxed")
        complete = self._with_missing(without(rows, _OWN))
        known = [name for _, name, _ in self.definition.columns if name in complete.columns]
        others = [name for name in complete.columns if name not in {*self.keys, *known, AT}]
        return only(complete, [*self.keys, *known, *others, AT])

    def _with_missing(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add columns of the result that no row of this batch has, as nulls."""
        wanted = [
            (name, kind)
            for role, name, kind in self.definition.columns
            if name not in rows.columns and (role == LEFT or self.definition.emits_pairs)
        ]
        return rows.with_columns(
            pl.lit(None, pl.String if kind is None else to_polars(kind)).alias(name) for name, kind in wanted
        )

    def blocks_of(self, exported: Exported) -> dict[str, bytes]:
        blocks: dict[str, bytes] = {}
        stores: dict[str, Slices] = {}
        for role, store in STORES.items():
            rows = exported.frames.get(store.rows)
            if rows is None or rows.is_empty():
                continue
            side = Side(self.definition, role)
            new = side.with_deadline(_with_hash(self._with_hold(rows, side), self.keys))
            state = SideState(side, {}, {})
            writes, slices, _ = write_side(state, new, {}, NEVER)
            blocks |= {place: data for place, data in writes.items() if data is not None}
            stores[store.name] = slices
        index = Index(exported.progress, exported.batch_number, stores)
        return {**blocks, INDEX: write_index(index, blocks)}

    def _with_hold(self, rows: pl.DataFrame, side: Side) -> pl.DataFrame:
        """Add or drop HOLD, which marks unmatched rows.

        A join that never emits unmatched rows does not store it. A definition that does emit them, restored from such
        state, takes the restored rows as matched.
        """
        if not side.pads:
            return without(rows, (HOLD,))
        return rows if HOLD in rows.columns else rows.with_columns(pl.lit(None, pl.Int64).alias(HOLD))

    def fitted(self, exported: Exported, fit: Fit) -> Exported:  # noqa: ARG002 - a part of the protocol
        return exported

    def missing(self, exported: Exported) -> list[str]:
        found = []
        for store in STORES.values():
            rows = exported.frames.get(store.rows)
            if rows is not None:
                found += [f"{store.rows} has no column {name}" for name in (*self.keys, AT) if name not in rows.columns]
        return found


def _stored(state: SideState, times: Longs, lower: int, upper: int) -> Iterator[_Part]:
    """Yield the runs of a side that may hold partners of rows with these times."""
    for opened in state.near(times, lower, upper):
        for run in opened.runs:
            yield _Part(sorted_rows(run), opened=opened, run=run)


def _first_matches(left: _Part, rows: Longs, times: Longs) -> pl.DataFrame:
    """Return each left row once, with the event time of its earliest pair."""
    order = np.lexsort((times, rows))
    first = order[np.flatnonzero(np.append(True, rows[order][1:] != rows[order][:-1]))]
    return without(left.rows(rows[first]), _OWN).with_columns(pl.Series(AT, times[first]))


def _with_hash(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    return rows.with_columns(pl.Series(HASH, hashed(only(rows, keys)).view(np.int64)))


def _sorted_by_key(rows: pl.DataFrame, keys: Sequence[str]) -> _New:
    """Sort new rows by key hash, event time and position."""
    ready = _with_hash(rows, keys).sort(HASH, AT, *element_columns(rows), maintain_order=True)
    return _New(
        ready,
        Sorted(ready[HASH].to_numpy(), ready[AT].to_numpy()),
        np.zeros(ready.height, np.bool_),
        np.full(ready.height, FOREVER),
    )
