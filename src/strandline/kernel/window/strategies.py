"""Process a batch for each kind of window: one strategy of the window operator per kind.

PlainWindows    tumbling, sliding, cumulating, global, custom: one row per window
SessionWindows  sessions merge before late elements are split off
CountWindows    windows fill in order of arrival; no lateness, no trigger
SharedWindows   overlapping windows without early panes; they use shared slices until their end
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from strandline.kernel.aggregation.accumulators import (
    TURN,
    Combined,
    combined,
    concat_unmerged,
    identity,
    items_of,
    merge_rows,
    merged,
    together,
)
from strandline.kernel.blocks.block import END, REASON, START, Block
from strandline.kernel.operator import ROWS, Batch, BatchTimes
from strandline.kernel.state.slice_store import Slices
from strandline.kernel.watermarks import FOREVER, NEVER
from strandline.kernel.window import count_windows, sessions, shared_slice_store
from strandline.kernel.window.arrivals import (
    Arrivals,
    LateSplit,
    assign_rows,
    collect_arrivals,
    expired_window_error,
    require_open,
    row_blocks,
    split_by_lateness,
    split_by_reason,
    with_hold_times,
)
from strandline.kernel.window.panes import deadlines, fire
from strandline.kernel.window.prepare import gather
from strandline.kernel.window.shared_slice_store import EndedWindows, SharedSliceState
from strandline.kernel.window.shared_slices import next_end_watermark, uses_shared_slices
from strandline.kernel.window.window_rows import OpenWindows, add
from strandline.model.steps import WindowedStep
from strandline.model.windows import Count, Session

Deadlines = tuple[pl.Expr, pl.Expr]


@dataclass(frozen=True, slots=True)
class Updated:
    """Open windows after a batch, the panes they emit, and accepted and late elements."""

    windows: OpenWindows
    panes: pl.DataFrame | None
    late_split: LateSplit


@dataclass(frozen=True, slots=True)
class Shared:
    """Shared slices in a batch: as read, with new elements added, and the windows that end."""

    read: SharedSliceState = SharedSliceState()
    joined: SharedSliceState = SharedSliceState()
    ended: EndedWindows = EndedWindows()


class WindowStrategy(Protocol):
    """The operations that differ between kinds of windows."""

    def collect(self, blocks: Sequence[Block], now: BatchTimes) -> Arrivals:
        """Collect the elements of a batch."""
        ...

    def share(self, batch: Batch, arrivals: Arrivals) -> Shared:
        """Read shared slices, add elements to them, and combine the windows that end."""
        ...

    def update(self, windows: OpenWindows, arrivals: Arrivals, shared: Shared, now: BatchTimes) -> Updated:
        """Split off late elements, add the others to windows, and fire triggers."""
        ...

    def write_shared(self, batch: Batch, shared: Shared) -> tuple[Mapping[str, bytes | None], Mapping[str, Slices]]:
        """Write the shared slices, and return their entries in the index."""
        ...

    def deadlines(self, now: BatchTimes) -> Deadlines:
        """Return the earliest watermark and clock at which a window is due."""
        ...


@dataclass(frozen=True, slots=True)
class PlainWindows:
    """Windows with one row each."""

    step: WindowedStep
    keys: tuple[str, ...]

    def collect(self, blocks: Sequence[Block], now: BatchTimes) -> Arrivals:
        return collect_arrivals(blocks, self.step, now)

    def share(self, batch: Batch, arrivals: Arrivals) -> Shared:  # noqa: ARG002 - a part of the protocol
        return Shared()

    def write_shared(
        self,
        batch: Batch,  # noqa: ARG002 - a part of the protocol
        shared: Shared,  # noqa: ARG002
    ) -> tuple[Mapping[str, bytes | None], Mapping[str, Slices]]:
        return {}, {}

    def deadlines(self, now: BatchTimes) -> Deadlines:
        return deadlines(self.step, now)

    def update(self, windows: OpenWindows, arrivals: Arrivals, shared: Shared, now: BatchTimes) -> Updated:
        late_split = split_by_lateness(windows, arrivals.assigned, self.keys, self.step, now)
        return self._fire(windows, [arrivals.parts, shared.ended.windows], late_split, now)

    def _fire(
        self, windows: OpenWindows, parts: Sequence[Combined | None], late_split: LateSplit, now: BatchTimes
    ) -> Updated:
        """Add elements to their windows and fire triggers."""
        taken = combined(with_hold_times(late_split.accepted, windows, self.keys, self.step, now), self.keys, self.step)
        added = concat_unmerged([each for each in (*parts, taken) if each is not None])
        panes, left = fire(add(windows, added, self.keys, self.step), self.keys, self.step, now)
        return Updated(left, panes, late_split)


@dataclass(frozen=True, slots=True)
class SessionWindows(PlainWindows):
    """Session windows: sessions merge first; late elements are split off afterwards."""

    kind: Session

    def collect(self, blocks: Sequence[Block], now: BatchTimes) -> Arrivals:
        parts = merged(gather(blocks, self.step), self.keys, self.step)
        require_open(parts, self.step, now)
        return Arrivals(assign_rows(row_blocks(blocks), self.step, now), parts)

    def update(self, windows: OpenWindows, arrivals: Arrivals, shared: Shared, now: BatchTimes) -> Updated:  # noqa: ARG002 - a part of the protocol
        assigned, parts, names = arrivals.assigned, arrivals.parts, identity(self.keys)
        spans = [
            frame.select(names) for frame in (assigned, None if parts is None else parts.rows) if frame is not None
        ]
        if not spans:
            return self._fire(windows, [], LateSplit(), now)
        new = pl.concat(spans, how="vertical_relaxed")
        merges = sessions.find_merges(windows.windows, new, self.keys, self.step, self.kind.touching, now.before)
        merged_windows = sessions.merge_open_sessions(windows, merges.live, self.keys, self.step, now.before)
        parts_moved = None if parts is None else self._under_merged_bounds(parts, merges.fresh)
        late_split = LateSplit()
        if assigned is not None:
            late_split = split_by_reason(
                sessions.under_merged_bounds(assigned, merges.fresh, self.keys, REASON), self.step, now
            )
        return self._fire(merged_windows, [parts_moved], late_split, now)

    def _under_merged_bounds(self, parts: Combined, fresh: pl.DataFrame) -> Combined:
        """Give pre-aggregated parts the bounds of their merged sessions."""
        rows = merge_rows([sessions.under_merged_bounds(parts.rows, fresh, self.keys)], self.keys, self.step)
        kinds = items_of(self.step)
        items = {
            name: together([sessions.under_merged_bounds(frame, fresh, self.keys)], self.keys, kinds[name])
            for name, frame in parts.items.items()
        }
        return Combined(rows, items)


@dataclass(frozen=True, slots=True)
class CountWindows(PlainWindows):
    """Count windows: they fill in order of arrival."""

    kind: Count

    def deadlines(self, now: BatchTimes) -> Deadlines:  # noqa: ARG002 - a part of the protocol
        return pl.lit(FOREVER), pl.lit(None, pl.Int64)

    def update(self, windows: OpenWindows, arrivals: Arrivals, shared: Shared, now: BatchTimes) -> Updated:  # noqa: ARG002 - a part of the protocol
        late_split = LateSplit(contributed=0 if arrivals.assigned is None else arrivals.assigned.height)
        panes, left = count_windows.fill_windows(windows, arrivals.assigned, self.keys, self.step, self.kind, now.after)
        return Updated(left, panes, late_split)


@dataclass(frozen=True, slots=True)
class SharedWindows(PlainWindows):
    """Overlapping windows: elements are stored once, by shared slice, until the end of their windows."""

    def collect(self, blocks: Sequence[Block], now: BatchTimes) -> Arrivals:
        parts, rows = concat_unmerged(gather(blocks, self.step)), row_blocks(blocks)
        if parts is not None and next_end_watermark(self.step, _first_start(parts), NEVER) <= now.before:
            raise expired_window_error(now)
        if not rows:
            return Arrivals(shared_parts=parts)
        elements = pl.concat([block.frames[ROWS] for block in rows], how="diagonal_relaxed")
        fresh, assigned = shared_slice_store.split_by_window_end(
            elements.with_columns(pl.lit(now.batch_number).alias(TURN)), self.step, now
        )
        new = combined(fresh, self.keys, self.step)
        return Arrivals(assigned, None, concat_unmerged([each for each in (parts, new) if each is not None]))

    def share(self, batch: Batch, arrivals: Arrivals) -> Shared:
        read = shared_slice_store.read(
            batch.held, batch.index, arrivals.shared_parts, arrivals.assigned, batch.progress, self.step
        )
        joined = shared_slice_store.add(read, arrivals.shared_parts, self.keys, self.step)
        return Shared(read, joined, shared_slice_store.end_windows(joined, self.keys, self.step, batch.now))

    def update(self, windows: OpenWindows, arrivals: Arrivals, shared: Shared, now: BatchTimes) -> Updated:
        restored = shared_slice_store.restore_ended_windows(
            windows, shared.read, arrivals.assigned, self.keys, self.step, now
        )
        updated = PlainWindows.update(self, restored, arrivals, shared, now)
        return Updated(updated.windows, _in_order(shared.ended.panes, updated.panes, self.keys), updated.late_split)

    def write_shared(self, batch: Batch, shared: Shared) -> tuple[Mapping[str, bytes | None], Mapping[str, Slices]]:
        return shared_slice_store.write(shared.joined, batch.index, self.keys, self.step, batch.now)


def strategy_of(step: WindowedStep, keys: tuple[str, ...]) -> WindowStrategy:
    """Return the strategy for the window of a step."""
    if isinstance(step.window, Session):
        return SessionWindows(step, keys, step.window)
    if isinstance(step.window, Count):
        return CountWindows(step, keys, step.window)
    return SharedWindows(step, keys) if uses_shared_slices(step) else PlainWindows(step, keys)


def _first_start(parts: Combined) -> int:
    first: int = parts.rows[START].min()  # type: ignore[assignment] # there are rows, and starts are integers
    return first


def _in_order(on_time: pl.DataFrame | None, others: pl.DataFrame | None, keys: Sequence[str]) -> pl.DataFrame | None:
    """Merge all panes of a batch; panes from shared slices are sorted already."""
    if on_time is None or others is None:
        return others if on_time is None else on_time
    both = pl.concat([on_time, others], how="diagonal_relaxed")
    return both.sort(*keys, START, END, maintain_order=True)
