"""Join rows of two streams in windows: the window join operator.

The window operator assigns windows, splits off late rows and fires triggers, over rows without their columns. The rows
themselves are stored once, by side. Order of a batch: play the windows; join the windows that fire; remove rows whose
windows have expired; store new rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from strandline.kernel.blocks.block import AT, END, INPUT, OFFSET, PARTITION, REASON, START, Block, element_columns
from strandline.kernel.blocks.column_types import to_polars
from strandline.kernel.blocks.hashing import hashed
from strandline.kernel.blocks.small_frames import only, stacked, without
from strandline.kernel.join.firings import PANE, FiredJoin, firings_of
from strandline.kernel.join.window_rows import bounds_of, find, has_keys_of, members_of
from strandline.kernel.join.window_store import BATCH, HASH, STORES, Flags, SideRows, layout_of, write_side
from strandline.kernel.operator import PARTIAL, ROWS, WATERMARK, Batch, BatchResult, BatchTimes, Exported, Fit, Prepared
from strandline.kernel.single_elements import by_key_group, with_valid_time
from strandline.kernel.state.slice_store import INDEX, Index, Slices, read_index, write_index
from strandline.kernel.watermarks import FOREVER, NEVER, Rule
from strandline.kernel.window.assign import expires
from strandline.kernel.window.operator import WindowOperator, WindowsResult
from strandline.model.aggregates import Max
from strandline.model.counts import InputCounts
from strandline.model.joins import LEFT, RIGHT
from strandline.model.operators import OperatorInput
from strandline.model.steps import WindowedStep
from strandline.model.window_join import WindowJoin
from strandline.model.windows import Session, Sliding

_POSITION: Final = (INPUT, PARTITION, OFFSET)
_ROW: Final = "@row"
"""Number of a row in its batch."""
_LATE: Final = (REASON, START, END, WATERMARK, PARTIAL)

Arrived = Mapping[str, pl.DataFrame]
"""The new rows of each side, with their number in the batch, sorted by key hash, event time and position."""


@dataclass(frozen=True)
class WindowJoinOperator:
    """The window join for given key columns and inputs."""

    definition: WindowJoin
    keys: tuple[str, ...]
    inputs: tuple[OperatorInput, ...]

    @property
    def takes_signs(self) -> bool:
        return False

    @cached_property
    def _firings(self) -> WindowedStep:
        # The newest batch of a firing tells later which rows it had.
        return self.definition.firings(BATCH, Max(BATCH))

    @cached_property
    def _windows(self) -> WindowOperator:
        return WindowOperator(self._firings, self.keys)

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
        arrived, filtered = self._arrivals(batch)
        played = self._play_windows(batch, arrived)
        late = played.played.late
        layout = layout_of(self.definition)
        accepted = arrived if late is None else {role: _except(rows, late[_ROW]) for role, rows in arrived.items()}
        sides = {
            role: SideRows(role, layout, batch.held, batch.index.store(STORES[role].name), accepted.get(role))
            for role in (LEFT, RIGHT)
        }
        rows = self._fired(played.played.rows, sides)
        writes: dict[str, bytes | None] = dict(played.played.writes)
        stores: dict[str, Slices] = dict(played.played.stores)
        inputs: dict[str, InputCounts] = {}
        for role, side in sides.items():
            changed, slices, ended = self._write(side, played, batch.now)
            writes |= changed
            stores |= {side.store.name: slices} if slices else {}
            taken = 0 if side.new is None else side.new.height
            was_late = (arrived[role].height if role in arrived else 0) - taken
            left_out = filtered.get(role, 0)
            inputs[role] = InputCounts(
                taken + left_out, was_late, _row_count(side.slices), ended + left_out, _row_count(slices)
            )
        shown = None if late is None else self._late_rows(arrived, late)
        return BatchResult(
            writes, stores, rows, shown, played.played.contributed, played.played.refused, sum(filtered.values()),
            inputs=inputs,
        )  # fmt: skip

    def _write(
        self, side: SideRows, played: WindowsResult, now: BatchTimes
    ) -> tuple[dict[str, bytes | None], Slices, int]:
        """Store the new rows of a side and remove those that have expired; return how many were removed."""
        kept = side.new
        if isinstance(self.definition.window, Session) and now.after < FOREVER:
            self._remove_expired(side, played, now)
            kept = self._in_open_sessions(kept, played, now)
        ended = 0 if side.new is None or kept is None else side.new.height - kept.height
        stored = None if kept is None else without(kept, (*_POSITION, _ROW))
        changed, slices, removed = write_side(side, stored, now.after)
        return changed, slices, ended + removed

    def _arrivals(self, batch: Batch) -> tuple[Arrived, Mapping[str, int]]:
        """Return the new rows of each side, and how many rows of each no window or no result can have."""
        found: dict[str, list[pl.DataFrame]] = {}
        for block in batch.blocks:
            if ROWS in block.frames:
                frame = block.frames[ROWS]
                found.setdefault(self.inputs[int(frame[INPUT][0])].role, []).append(frame)
        new: dict[str, pl.DataFrame] = {}
        filtered: dict[str, int] = {}
        first = 0
        for role in sorted(found):
            rows = stacked(found[role])
            taken = self._is_taken(rows, role)
            filtered[role] = rows.height - int(taken.sum())
            rows = rows if taken.all() else rows.filter(pl.Series(taken))
            if rows.height:
                ready = _with_hash(rows, self.keys).sort(HASH, AT, *element_columns(rows), maintain_order=True)
                new[role] = ready.with_columns(
                    pl.lit(batch.now.batch_number, pl.Int64).alias(BATCH),
                    pl.int_range(first, first + rows.height, dtype=pl.Int64).alias(_ROW),
                )
                first += rows.height
        return new, filtered

    def _is_taken(self, rows: pl.DataFrame, role: str) -> Flags:
        """Mark rows that a window contains and that a result may have; a null key has no partner."""
        taken = np.ones(rows.height, np.bool_)
        window = self.definition.window
        if not self.definition.pads(role):
            null = rows.select(pl.any_horizontal(pl.col(name).is_null() for name in self.keys).alias("null"))["null"]
            taken &= ~null.to_numpy()
        if isinstance(window, Sliding) and window.leaves_gaps:
            taken &= (rows[AT].to_numpy() - window.offset.ms) % window.every.ms < window.size.ms
        return taken

    def _play_windows(self, batch: Batch, arrived: Arrived) -> WindowsResult:
        """Play the windows over the keys, times and positions of the new rows."""
        blocks: list[Block] = []
        if arrived:
            # Inputs may give keys of different types.
            names = [*self.keys, AT, *element_columns(next(iter(arrived.values()))), BATCH, _ROW]
            frames = [only(rows, names) for rows in arrived.values()]
            blocks = [Block({ROWS: stacked(frames)})]
        return self._windows.play_windows(Batch(batch.held, batch.index, blocks, batch.now, batch.progress))

    def _fired(self, panes: pl.DataFrame | None, sides: Mapping[str, SideRows]) -> pl.DataFrame | None:
        """Join the windows that fire."""
        if panes is None or panes.is_empty():
            return None
        firings = firings_of(panes, self.keys)
        left, right = (members_of(sides[role], firings.bounds, self.keys) for role in (LEFT, RIGHT))
        parts = FiredJoin(self.definition, self.keys, firings).join(left, right)
        if not parts:
            return None
        rows = self._with_missing(stacked(parts))
        known = [name for _, name, _ in self.definition.columns if name in rows.columns]
        others = [name for name in rows.columns if name not in {*self.keys, *known, *PANE}]
        return only(rows, [*self.keys, *known, *others, *PANE])

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

    def _remove_expired(self, side: SideRows, played: WindowsResult, now: BatchTimes) -> None:
        """Remove the stored rows of sessions that have expired in this batch."""
        before = played.before.windows
        if before is None:
            return
        ended = before.filter(expires(self._firings) <= now.after).select(*self.keys, START, END)
        live = self._live(played)
        if ended.height and live is not None:
            # A session that has merged into a live one has expired under its old bounds only.
            inside = ended.join(live, on=self.keys, how="inner", nulls_equal=True, suffix="@live").filter(
                (pl.col(START) >= pl.col(f"{START}@live")) & (pl.col(END) <= pl.col(f"{END}@live"))
            )
            ended = ended.join(inside, on=[*self.keys, START, END], how="anti", nulls_equal=True)
        if not ended.height:
            return
        bounds = bounds_of(ended, self.keys)
        for found in find(side, bounds):
            if found.opened is not None and found.run is not None:
                same = has_keys_of(found.run.at(found.places), ended, found.windows, self.keys)
                found.opened.gone.append(np.unique(found.run.since + found.places[same]))

    def _in_open_sessions(
        self, rows: pl.DataFrame | None, played: WindowsResult, now: BatchTimes
    ) -> pl.DataFrame | None:
        """Return the new rows whose session is still open after the batch."""
        if rows is None or not rows.height:
            return rows
        own = rows.with_columns(pl.col(AT).alias(START), self._own_end().alias(END))
        ended = own.select((expires(self._firings) <= now.after).alias("ended"))["ended"]
        if not ended.any():
            return rows
        live = self._live(played)
        if live is None:
            return rows.filter(~ended)
        found = (
            rows.filter(ended)
            .select(*self.keys, AT, _ROW)
            .join(live, on=self.keys, how="inner", nulls_equal=True)
            .filter((pl.col(AT) >= pl.col(START)) & (pl.col(AT) < pl.col(END)))
        )
        return rows.filter(~ended | rows[_ROW].is_in(found[_ROW].implode()))

    def _own_end(self) -> pl.Expr:
        window = self.definition.window
        assert isinstance(window, Session)  # noqa: S101 - asked for sessions only
        gap = window.gap.ms  # type: ignore[union-attr] # the definition refuses a gap per element
        return pl.col(AT) + gap

    def _live(self, played: WindowsResult) -> pl.DataFrame | None:
        """Return the open windows after the batch, of the keys that it has read."""
        frames = [each for each in (played.after.windows, played.after.fresh) if each is not None and each.height]
        return stacked([each.select(*self.keys, START, END) for each in frames]) if frames else None

    def _late_rows(self, arrived: Arrived, late: pl.DataFrame) -> pl.DataFrame:
        """Return late rows with all their columns."""
        whole = pl.concat(arrived.values(), how="diagonal_relaxed")
        rows = without(whole[late[_ROW]], (HASH, BATCH, _ROW))
        return rows.hstack(only(late, _LATE))

    def blocks_of(self, exported: Exported) -> dict[str, bytes]:
        blocks = self._windows.blocks_of(exported)
        stores = dict(read_index({INDEX: blocks.pop(INDEX)}).stores)
        for role, store in STORES.items():
            rows = exported.frames.get(store.rows)
            if rows is None or rows.is_empty():
                continue
            side = SideRows(role, layout_of(self.definition), {}, {}, None)
            writes, slices, _ = write_side(side, _with_hash(rows, self.keys), NEVER)
            blocks |= {place: data for place, data in writes.items() if data is not None}
            stores[store.name] = slices
        return {**blocks, INDEX: write_index(Index(exported.progress, exported.batch_number, stores), blocks)}

    def fitted(self, exported: Exported, fit: Fit) -> Exported:
        return self._windows.fitted(exported, fit)

    def missing(self, exported: Exported) -> list[str]:
        found = self._windows.missing(exported)
        for store in STORES.values():
            rows = exported.frames.get(store.rows)
            if rows is not None:
                needed = (*self.keys, AT, BATCH)
                found += [f"{store.rows} has no column {name}" for name in needed if name not in rows.columns]
        return found


def _row_count(slices: Slices) -> int:
    return sum(entry.rows for entry in slices.values())


def _except(rows: pl.DataFrame, numbers: pl.Series) -> pl.DataFrame:
    return rows.filter(~rows[_ROW].is_in(numbers.implode()))


def _with_hash(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    return rows.with_columns(pl.Series(HASH, hashed(only(rows, keys)).view(np.int64)))
