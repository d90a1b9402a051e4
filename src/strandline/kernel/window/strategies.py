"""The kinds of windows as strategies of the window operator: what differs between them when a batch is played.

PlainWindows    tumbling, sliding, cumulating, global, custom: each window is a row
SessionWindows  sessions merge before elements are judged
CountWindows    windows fill by arrival; no lateness, no trigger
SharedWindows   overlapping windows that emit at their end share slices until then
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
from strandline.kernel.operator import ROWS, Batch, Instant
from strandline.kernel.state.slice_store import Slices
from strandline.kernel.watermarks import FOREVER, NEVER
from strandline.kernel.window import count_windows, sessions, shared_slice_store
from strandline.kernel.window.arrivals import (
    Arrived,
    Judged,
    arrived,
    gone_window,
    judge,
    placed_rows,
    require_open,
    row_blocks,
    split_late,
    with_hold_times,
)
from strandline.kernel.window.panes import deadlines, fire
from strandline.kernel.window.prepare import gather
from strandline.kernel.window.shared_slice_store import Ripe, Waiting
from strandline.kernel.window.shared_slices import next_over, shares
from strandline.kernel.window.window_rows import OpenWindows, add
from strandline.model.steps import WindowedStep
from strandline.model.windows import Count, Session

Deadlines = tuple[pl.Expr, pl.Expr]


@dataclass(frozen=True, slots=True)
class Updated:
    """Open windows after a batch, the panes they emit, and what became of the elements."""

    windows: OpenWindows
    panes: pl.DataFrame | None
    judged: Judged


@dataclass(frozen=True, slots=True)
class Shared:
    """Shared slices during a batch: as read, with its elements added, and the windows that end in it."""

    read: Waiting = Waiting()
    joined: Waiting = Waiting()
    ended: Ripe = Ripe()


class WindowStrategy(Protocol):
    """What differs between kinds of windows."""

    def arrive(self, blocks: Sequence[Block], now: Instant) -> Arrived:
        """Collect the elements of a batch."""
        ...

    def share(self, batch: Batch, arrived: Arrived) -> Shared:
        """Play the shared slices, where windows have some."""
        ...

    def update(self, windows: OpenWindows, arrived: Arrived, shared: Shared, now: Instant) -> Updated:
        """Judge elements, add them to windows, fire."""
        ...

    def write_shared(self, batch: Batch, shared: Shared) -> tuple[Mapping[str, bytes | None], Mapping[str, Slices]]:
        """Write the shared slices, and return their entries in the index."""
        ...

    def deadlines(self, now: Instant) -> Deadlines:
        """Return the earliest watermark and clock at which a window is due."""
        ...


@dataclass(frozen=True, slots=True)
class PlainWindows:
    """Windows that are a row each."""

    ask: WindowedStep
    keys: tuple[str, ...]

    def arrive(self, blocks: Sequence[Block], now: Instant) -> Arrived:
        return arrived(blocks, self.ask, now)

    def share(self, batch: Batch, arrived: Arrived) -> Shared:  # noqa: ARG002 - a part of the protocol
        return Shared()

    def write_shared(
        self,
        batch: Batch,  # noqa: ARG002 - a part of the protocol
        shared: Shared,  # noqa: ARG002
    ) -> tuple[Mapping[str, bytes | None], Mapping[str, Slices]]:
        return {}, {}

    def deadlines(self, now: Instant) -> Deadlines:
        return deadlines(self.ask, now)

    def update(self, windows: OpenWindows, arrived: Arrived, shared: Shared, now: Instant) -> Updated:
        judged = judge(windows, arrived.placed, self.keys, self.ask, now)
        return self._fire(windows, [arrived.parts, shared.ended.windows], judged, now)

    def _fire(self, windows: OpenWindows, parts: Sequence[Combined | None], judged: Judged, now: Instant) -> Updated:
        """Add the elements to their windows, and let these fire."""
        taken = combined(with_hold_times(judged.taken, windows, self.keys, self.ask, now), self.keys, self.ask)
        added = concat_unmerged([each for each in (*parts, taken) if each is not None])
        panes, left = fire(add(windows, added, self.keys, self.ask), self.keys, self.ask, now)
        return Updated(left, panes, judged)


@dataclass(frozen=True, slots=True)
class SessionWindows(PlainWindows):
    """Sessions: those that meet merge first; only then elements are judged."""

    kind: Session

    def arrive(self, blocks: Sequence[Block], now: Instant) -> Arrived:
        parts = merged(gather(blocks, self.ask), self.keys, self.ask)
        require_open(parts, self.ask, now)
        return Arrived(placed_rows(row_blocks(blocks), self.ask, now), parts)

    def update(self, windows: OpenWindows, arrived: Arrived, shared: Shared, now: Instant) -> Updated:  # noqa: ARG002 - a part of the protocol
        placed, parts, names = arrived.placed, arrived.parts, identity(self.keys)
        spans = [frame.select(names) for frame in (placed, None if parts is None else parts.rows) if frame is not None]
        if not spans:
            return self._fire(windows, [], Judged(), now)
        new = pl.concat(spans, how="vertical_relaxed")
        met = sessions.meet(windows.windows, new, self.keys, self.ask, self.kind.touching, now.before)
        united = sessions.unite(windows, met.live, self.keys, self.ask, now.before)
        moved = None if parts is None else self._moved(parts, met.fresh)
        judged = Judged()
        if placed is not None:
            judged = split_late(sessions.moved(placed, met.fresh, self.keys, REASON), self.ask, now)
        return self._fire(united, [moved], judged, now)

    def _moved(self, parts: Combined, fresh: pl.DataFrame) -> Combined:
        """Put what tasks combined under the bounds of the sessions that it is now part of."""
        rows = merge_rows([sessions.moved(parts.rows, fresh, self.keys)], self.keys, self.ask)
        kinds = items_of(self.ask)
        items = {
            name: together([sessions.moved(frame, fresh, self.keys)], self.keys, kinds[name])
            for name, frame in parts.items.items()
        }
        return Combined(rows, items)


@dataclass(frozen=True, slots=True)
class CountWindows(PlainWindows):
    """Count windows: panes go by arrival."""

    kind: Count

    def deadlines(self, now: Instant) -> Deadlines:  # noqa: ARG002 - a part of the protocol
        return pl.lit(FOREVER), pl.lit(None, pl.Int64)

    def update(self, windows: OpenWindows, arrived: Arrived, shared: Shared, now: Instant) -> Updated:  # noqa: ARG002 - a part of the protocol
        judged = Judged(contributed=0 if arrived.placed is None else arrived.placed.height)
        panes, left = count_windows.count(windows, arrived.placed, self.keys, self.ask, self.kind, now.after)
        return Updated(left, panes, judged)


@dataclass(frozen=True, slots=True)
class SharedWindows(PlainWindows):
    """Overlapping windows: until their end their elements are kept once, by shared slice."""

    def arrive(self, blocks: Sequence[Block], now: Instant) -> Arrived:
        parts, rows = concat_unmerged(gather(blocks, self.ask)), row_blocks(blocks)
        if parts is not None and next_over(self.ask, _first_start(parts), NEVER) <= now.before:
            raise gone_window(now)
        if not rows:
            return Arrived(strips=parts)
        elements = pl.concat([block.frames[ROWS] for block in rows], how="diagonal_relaxed")
        fresh, placed = shared_slice_store.apart(elements.with_columns(pl.lit(now.turn).alias(TURN)), self.ask, now)
        new = combined(fresh, self.keys, self.ask)
        return Arrived(placed, None, concat_unmerged([each for each in (parts, new) if each is not None]))

    def share(self, batch: Batch, arrived: Arrived) -> Shared:
        read = shared_slice_store.read(
            batch.held, batch.index, arrived.strips, arrived.placed, batch.progress, self.ask
        )
        joined = shared_slice_store.add(read, arrived.strips, self.keys, self.ask)
        return Shared(read, joined, shared_slice_store.ripen(joined, self.keys, self.ask, batch.now))

    def update(self, windows: OpenWindows, arrived: Arrived, shared: Shared, now: Instant) -> Updated:
        recalled = shared_slice_store.recall(windows, shared.read, arrived.placed, self.keys, self.ask, now)
        updated = PlainWindows.update(self, recalled, arrived, shared, now)
        return Updated(updated.windows, _in_order(shared.ended.panes, updated.panes, self.keys), updated.judged)

    def write_shared(self, batch: Batch, shared: Shared) -> tuple[Mapping[str, bytes | None], Mapping[str, Slices]]:
        return shared_slice_store.write(shared.joined, batch.index, self.keys, self.ask, batch.now)


def strategy_of(ask: WindowedStep, keys: tuple[str, ...]) -> WindowStrategy:
    """Return the strategy for a definition."""
    if isinstance(ask.window, Session):
        return SessionWindows(ask, keys, ask.window)
    if isinstance(ask.window, Count):
        return CountWindows(ask, keys, ask.window)
    return SharedWindows(ask, keys) if shares(ask) else PlainWindows(ask, keys)


def _first_start(parts: Combined) -> int:
    first: int = parts.rows[START].min()  # type: ignore[assignment] # there are rows, and starts are integers
    return first


def _in_order(on_time: pl.DataFrame | None, others: pl.DataFrame | None, keys: Sequence[str]) -> pl.DataFrame | None:
    """Merge all panes of a batch; those made from shared slices are in order already."""
    if on_time is None or others is None:
        return others if on_time is None else on_time
    both = pl.concat([on_time, others], how="diagonal_relaxed")
    return both.sort(*keys, START, END, maintain_order=True)
